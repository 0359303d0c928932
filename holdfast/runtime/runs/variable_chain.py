"""Declared variables of a hosted operator, stored as bases and deltas while it runs.

What must hold: **a delta is relative to versions that the newest published epoch of its region refers to**, so that no
change is ever lost, whatever happens to the checkpoint in between:

- The protocol begins an epoch only after the one before was published, or after a reset. So between two pins either the
  first one's epoch was published, and its manifest lists the pairs the second one builds on, or `restored` was called:
  with the published epoch's pairs, which are the ones to build on again, and with logs that begin at its state.
- An upload that failed brings a reset too. Should a pin ever come without one, before the pairs of the last pin are known
  to be durable (`stored`) or with a number that is not higher, it is a base: it builds on nothing.
- The history that chooses between base and delta is part of the checkpoint it led to, and goes back with it.

`pin` and `restored` are called between steps, by the element's thread; `part_of` and `stored` in the background, and
never during a `pin` or `restored` of the same operator.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint import chain
from holdfast.checkpoint.adaptive import Cost, Form, Limits
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.chain import INCR, Chain, Link, Restored, Taken
from holdfast.checkpoint.parts import Chained, OperatorPart, StoredForm
from holdfast.ids import Epoch
from holdfast.language.checkpoint_form import CheckpointForm
from holdfast.runtime.region.restore_budget import Chooser
from holdfast.runtime.runs.operator_runs import Prepared
from holdfast.state.variables import instance_state
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.versions import Versions

NOTHING = Chain({})


def limits_of(form: CheckpointForm) -> Limits:
    """What a user allows, for the policy."""
    count = 0 if form.kind == "full" else form.max_deltas
    return Limits(ratio=form.ratio, count=count, seconds=form.restore_within_s)


@dataclass(frozen=True, slots=True)
class PinnedVersions:
    """A checkpoint, encoded."""

    link: Link
    form: Chained


class VersionedState:
    """Takes base and delta checkpoints of one operator's variables."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self._versions: dict[str, Versions] = {}
        self._described: dict[str, str] = {}
        self._chain = NOTHING
        """Of the last pin, if its pairs are durable, or of the epoch that was restored."""
        self._pinned: Link | None = None
        """The last pin, until its pairs are durable."""
        self._epoch = Epoch(0)

    def restored(self, epoch: Epoch, op: Any, found: Restored | None, form: StoredForm | None) -> None:
        """The operator has the state of `epoch`. `found`: None if it was not stored in versions."""
        variables = declared(type(op))
        self._versions = instance_state.versions_of(op)
        self._described = {name: str(variables[name].shape) for name in self._versions}
        self._chain = NOTHING if found is None else self._fitting(found)
        self._pinned, self._epoch = None, epoch
        self._chooser.resume(None if found is None else form)
        self._follow()

    def exchanged(self, op: Any) -> None:
        """The operator went back to an earlier state in the middle of a run: the next checkpoint builds on nothing."""
        self._versions = instance_state.versions_of(op)

    def _fitting(self, found: Restored) -> Chain:
        """Without variables that are declared differently now: what they hold is not what is stored."""
        same = {
            name: places
            for name, places in found.chain.versions.items()
            if self._described.get(name) == found.described[name]
        }
        return Chain(same, found.chain.pairs_for(same))

    def pin(self, epoch: Epoch, rest: Any) -> PinnedVersions:
        """Encode the variables as they are now, and `rest`, whole."""
        begun = time.monotonic()
        may_build = self._pinned is None and epoch > self._epoch
        taken = self._deltas() if may_build and self._chooser.accepts_delta() else {}
        size = sum(len(data) for _, data in taken.values())
        has_deltas = any(each == "delta" for each, _ in taken.values())
        form: Form = "delta" if has_deltas and self._chooser.accepts_delta(size) else "base"
        refused = size if taken and form == "base" else None
        if form == "base":
            taken = {name: ("base", versions.base()) for name, versions in self._versions.items()}
        link = chain.add(self._chain, epoch, taken, self._described, rest)
        self._chooser.took(form, Cost(len(link.data.get(INCR, b"")), time.monotonic() - begun), refused)
        self._follow()
        self._pinned, self._epoch = link, epoch
        return PinnedVersions(link, self._chooser.record(form))

    def _deltas(self) -> dict[str, Taken]:
        """What changed; whole where that is less or unknown."""
        taken: dict[str, Taken] = {}
        for name, versions in self._versions.items():
            delta = versions.delta() if name in self._chain.versions else None
            taken[name] = ("base", versions.base()) if delta is None else ("delta", delta)
        return taken

    def _follow(self) -> None:
        for versions in self._versions.values():
            if self._chooser.tracking:
                versions.follow()
            else:
                versions.forget()

    def part_of(self, epoch: Epoch, pinned: PinnedVersions) -> Prepared:
        assert pinned.link.epoch == epoch
        return Prepared(OperatorPart(pairs=pinned.link.older, form=pinned.form), pairs=pinned.link.data)

    def stored(self, epoch: Epoch, pairs: Sequence[BlobRef]) -> None:
        """The pairs of the last pin are durable."""
        link = self._pinned
        if link is not None and link.epoch == epoch:
            self._chain, self._pinned = link.stored(pairs), None
