"""Declared variables of a hosted operator, stored as bases and deltas while it runs.

What must hold: **a delta is relative to versions that the newest published epoch of its region refers to**, so that no
change is ever lost, whatever happens to the checkpoint in between:

- The protocol begins an epoch only after the one before was published, or after a reset. So between two pins either the
  first one's epoch was published, and its manifest lists the pairs the second one builds on, or `restored` was called:
  with the published epoch's pairs, which are the ones to build on again, and with logs that begin at its state.
- An upload that failed brings a reset too. Should a pin ever come without one, before the pairs of the last pin are known
  to be durable (`stored`) or with a number that is not higher, it is a base: it builds on nothing.
- The history that chooses between base and delta is part of the checkpoint it led to, and goes back with it.

- A base is copied by the pin and encoded in the background, if no value of it can change in place. Until it is encoded and
  durable, a pin builds on nothing.

`pin` and `restored` are called between steps, by the element's thread; `part_of` and `stored` in the background, and
never during a `pin` or `restored` of the same operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.checkpoint import chain
from holdfast.checkpoint.adaptive import Cost, Form, Limits
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.chain import Chain, Link, Restored, Taken
from holdfast.checkpoint.costs.tracking_cost import Paces, logging_seconds
from holdfast.checkpoint.parts import Chained, OperatorPart, StoredForm
from holdfast.checkpoint.stored_names import INCR
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


@dataclass(frozen=True, slots=True)
class FrozenVersions:
    """A base whose variables were copied, and are encoded in the background."""

    epoch: Epoch
    taken: Mapping[str, Callable[[], bytes]]
    rest: Any
    refused: int | None
    seconds: float
    """That the copies took."""


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
        self._is_frozen = False
        """The last pin is being encoded."""
        self._epoch = Epoch(0)
        self._is_followed = False
        self._paces: dict[int, Paces] = {}
        """Of steps by input port, with and without changes being followed."""
        self._rows: dict[int, int] = {}
        """Taken since the last pin, by input port."""

    def worked(self, port: int, rows: int, seconds: float) -> None:
        """A step of so many rows took so long."""
        before = self._paces.get(port, Paces())
        self._paces[port] = before.after(rows, seconds, is_followed=self._is_followed)
        self._rows[port] = self._rows.get(port, 0) + rows

    def restored(self, epoch: Epoch, op: Any, found: Restored | None, form: StoredForm | None) -> None:
        """The operator has the state of `epoch`. `found`: None if it was not stored in versions."""
        variables = declared(type(op))
        self._versions = instance_state.versions_of(op)
        self._described = {name: str(variables[name].shape) for name in self._versions}
        self._chain = NOTHING if found is None else self._fitting(found)
        self._pinned, self._is_frozen, self._epoch = None, False, epoch
        self._rows.clear()
        self._chooser.resume(None if found is None else form)
        self._follow(self._chooser.tracking)

    def exchanged(self, op: Any) -> None:
        """The operator went back to an earlier state in the middle of a run: the next checkpoint builds on nothing."""
        self._versions = instance_state.versions_of(op)
        self._is_followed = False

    def _fitting(self, found: Restored) -> Chain:
        """Without variables that are declared differently now: what they hold is not what is stored."""
        same = {
            name: places
            for name, places in found.chain.versions.items()
            if self._described.get(name) == found.described[name]
        }
        return Chain(same, found.chain.pairs_for(same))

    def pin(self, epoch: Epoch, rest: Any) -> PinnedVersions | FrozenVersions:
        """Encode what changed of the variables, or copy them as they are now; and `rest`, whole."""
        begun = time.monotonic()
        logging_s = logging_seconds(self._paces, self._rows)
        self._rows.clear()
        may_build = self._pinned is None and not self._is_frozen and epoch > self._epoch
        taken = self._deltas() if may_build and self._chooser.accepts_delta() else {}
        size = sum(len(data) for _, data in taken.values())
        has_deltas = any(each == "delta" for each, _ in taken.values())
        form: Form = "delta" if has_deltas and self._chooser.accepts_delta(size) else "base"
        refused = size if taken and form == "base" else None
        if taken and not has_deltas and self._chooser.history.base is not None:
            refused = self._chooser.history.base.bytes  # everything changed
        frozen = self._frozen() if form == "base" else None
        if frozen is not None:
            self._follow(self._chooser.tracks_behind_base)
            self._is_frozen, self._epoch = True, epoch
            return FrozenVersions(epoch, frozen, rest, refused, time.monotonic() - begun)
        if form == "base":
            taken = {name: ("base", versions.base()) for name, versions in self._versions.items()}
        link = chain.add(self._chain, epoch, taken, self._described, rest)
        cost = Cost(len(link.data.get(INCR, b"")), time.monotonic() - begun)
        self._chooser.took(form, replace(cost, logging_s=logging_s) if form == "delta" else cost, refused)
        self._follow(self._chooser.tracking)
        self._pinned, self._epoch = link, epoch
        return PinnedVersions(link, self._chooser.record(form))

    def _frozen(self) -> dict[str, Callable[[], bytes]] | None:
        """Copies of the variables, where they hold values that change in place encoded; None if all do."""
        frozen = {name: versions.frozen() for name, versions in self._versions.items()}
        if not any(frozen.values()):
            return None
        return {name: encode or _known(self._versions[name].base()) for name, encode in frozen.items()}

    def _deltas(self) -> dict[str, Taken]:
        """What changed; whole where that is less or unknown. If that is so for all, nothing is encoded yet."""
        found = {
            name: versions.delta() if name in self._chain.versions else None
            for name, versions in self._versions.items()
        }
        is_worth_it = any(delta is not None for delta in found.values())
        return {
            name: ("base", self._versions[name].base() if is_worth_it else b"")
            if delta is None
            else ("delta", delta)
            for name, delta in found.items()
        }

    def _follow(self, tracking: bool) -> None:
        self._is_followed = tracking
        for versions in self._versions.values():
            if tracking:
                versions.follow()
            else:
                versions.forget()

    def part_of(self, epoch: Epoch, pinned: PinnedVersions | FrozenVersions) -> Prepared:
        if isinstance(pinned, FrozenVersions):
            pinned = self._encoded(pinned)
        assert pinned.link.epoch == epoch
        return Prepared(OperatorPart(pairs=pinned.link.older, form=pinned.form), pairs=pinned.link.data)

    def _encoded(self, frozen: FrozenVersions) -> PinnedVersions:
        begun = time.monotonic()
        taken: dict[str, Taken] = {name: ("base", encode()) for name, encode in frozen.taken.items()}
        link = chain.add(self._chain, frozen.epoch, taken, self._described, frozen.rest)
        seconds = frozen.seconds + time.monotonic() - begun
        self._chooser.took("base", Cost(len(link.data.get(INCR, b"")), seconds), frozen.refused)
        self._pinned, self._is_frozen = link, False
        return PinnedVersions(link, self._chooser.record("base"))

    def stored(self, epoch: Epoch, pairs: Sequence[BlobRef]) -> None:
        """The pairs of the last pin are durable."""
        link = self._pinned
        if link is not None and link.epoch == epoch:
            self._chain, self._pinned = link.stored(pairs), None


def _known(data: bytes) -> Callable[[], bytes]:
    return lambda: data
