"""An element that restarts alone (mode `independent`): it gets its input again, and does again what it did.

Its input connections preserve what it took since its newest epoch (`borders.py`); a journal says in which steps it took it. After a
failure the same steps give the same batches, which the receivers have already. The machine behind it: `protocol/preserved.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.ids import ConnectionId, Epoch, OperatorName
from holdfast.language.connectors import Slice
from holdfast.protocol.preserved import Journal
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.element.loop import Ends
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.links.preserved_queue import Place, PreservedQueue


@dataclass(frozen=True, slots=True)
class Did:
    """One step: the slices it read, where its sources were then, and how many batches it took. A drain took nothing."""

    slices: Mapping[OperatorName, Slice] = field(default_factory=dict)
    sources: Mapping[OperatorName, Any] = field(default_factory=dict)
    batches: Mapping[ConnectionId, int] = field(default_factory=dict)
    drain: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What an element did and sent since its newest epoch, when a run ended in order."""

    epoch: Epoch
    steps: tuple[Did, ...] = ()
    sent: Mapping[ConnectionId, Sequence[int]] = field(default_factory=dict)
    """Rows of each batch, by connection."""
    waiting: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of each input, how many batches no epoch of the element covers."""


class Repeating:
    """Of one element. Called by its thread, `published` by that of its region."""

    def __init__(self, worker: Worker, ends: Ends) -> None:
        self._worker = worker
        self._lock = ends.signals.condition
        self._inputs = {id: c for id, c in ends.inputs.items() if isinstance(c, PreservedQueue)}
        self._outputs = {id: c for id, c in ends.outputs.items() if isinstance(c, PreservedQueue)}
        self._journal: Journal[Did] = Journal()
        self._at: dict[Epoch, dict[ConnectionId, Place]] = {}
        self._again: Work | None = None

    # --- steps --------------------------------------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """True while the element has to do again what it did before."""
        return self._journal.is_repeating

    def next_work(self) -> Work | None:
        """The step that is to be done again; None: something new, or a drain."""
        with self._lock:
            if not self.is_under_way or self._journal.peek().drain:
                return None
            did = self._journal.next()
            parcels = {id: self._inputs[id].take_just(count) for id, count in did.batches.items()}
        for run in self._worker.sources:
            if run.name in did.slices:
                run.go_to(did.sources[run.name])
        self._again = Work(did.slices, parcels)
        return self._again

    def begins(self, work: Work) -> None:
        """Remember a new step before it begins: it may fail with some of its output on the way."""
        if work is self._again:
            return
        sources = {
            run.name: run.place_behind(work.slices[run.name])
            for run in self._worker.sources
            if run.name in work.slices
        }
        batches = {id: len(parcels) for id, parcels in work.parcels.items() if id in self._inputs}
        self._did(Did(dict(work.slices), sources, batches))

    def begins_drain(self) -> None:
        self._did(Did(drain=True))

    def takes_drain(self) -> bool:
        """True if what comes next is a drain that has to be done again."""
        with self._lock:
            is_next = self.is_under_way and self._journal.peek().drain
            if is_next:
                self._journal.next()
        return is_next

    def _did(self, did: Did) -> None:
        with self._lock:
            self._journal.did(did)

    # --- epochs -------------------------------------------------------------------------------------------------

    def pinned(self, epoch: Epoch) -> None:
        with self._lock:
            self._journal.pinned(epoch)
            self._at[epoch] = self._places()

    def published(self, epoch: Epoch) -> None:
        """What the epoch holds need not be had again."""
        with self._lock:
            self._journal.published(epoch)
            places = self._at[epoch]
            for id, connection in self._outputs.items():
                connection.sent_for_good(places[id])
            self._at = {each: known for each, known in self._at.items() if each >= epoch}

    def restored(self, epoch: Epoch) -> None:
        with self._lock:
            places = self._at.setdefault(epoch, self._places())
            self._journal.restored(epoch)
            for id, connection in self._outputs.items():
                connection.send_again(places[id])
            self._at = {epoch: places}
            self._again = None

    def _places(self) -> dict[ConnectionId, Place]:
        return {id: connection.place_of_sender for id, connection in self._outputs.items()}

    # --- from run to run ----------------------------------------------------------------------------------------

    def left(self, epoch: Epoch) -> Left | None:
        """What the next run needs to do the same again from `epoch`, the newest one; None: the element has not begun."""
        with self._lock:
            if epoch not in self._at:
                return None
            sent = {id: connection.may_come_again for id, connection in self._outputs.items()}
            return Left(epoch, tuple(self._journal.entries), sent)

    def go_on_with(self, left: Left) -> None:
        """What an earlier run left. Comes before the first restore."""
        self._journal.go_on_with(left.steps)
