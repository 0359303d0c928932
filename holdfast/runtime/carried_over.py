"""What is carried from run to run before and between elements of regions: batches that entered a region and that no epoch
covers, and, in mode `independent`, what elements did since their newest epochs.

Batches are recorded before steps work on them (`.replayable()`), or when a run ends in order. A batch counts if no epoch of
its receiver has it and its sender does not send it again: one outside of regions never does. An element of a region does, from its
newest epoch on; in mode `independent` exactly the same batches, if its journal is there (`Left`), so they count too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.checkpoint.stored_names import entered_elements, entered_entry
from holdfast.compiler.plan import ConnectionPlan, Plan
from holdfast.ids import ConnectionId, ElementName, Epoch
from holdfast.runtime.element.borders import KnownBorders
from holdfast.runtime.element.epochs import journal_record
from holdfast.runtime.element.epochs.repeating import Left
from holdfast.runtime.element.region_life import RegionLife
from holdfast.runtime.links.connection import Connection, Parcel
from holdfast.runtime.links.entered_log import Entered, EnteredLog
from holdfast.runtime.links.preserved_queue import PreservedQueue
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Given:
    """What waits in a connection when a run begins. The rest is as in `Preserved.go_on_with`."""

    batches: tuple[Entered, ...]
    taken: int = 0
    sent: int = 0
    sizes: tuple[int, ...] = ()
    dropped: tuple[Entered, ...] = ()
    """Recorded, and of no use."""


def given_to(
    id: ConnectionId,
    found: list[Entered],
    taken: int,
    sent: int | None,
    receiver: Left | None,
    sender: Left | None,
) -> Given:
    """Which of the batches recorded at a connection count. Pure. `taken`, `sent`: rows that the newest epochs at its ends hold; `sent` is
    None if the sender is outside of regions. `receiver`, `sender`: their journals, if these belong to their newest epochs."""
    waits = [each for each in found if each.end > taken or (not each.rows and each.end == taken)]
    if receiver is not None and id in receiver.waiting:
        count = receiver.waiting[id]
        waits = waits[len(waits) - count :] if count <= len(waits) else waits
    if sent is None:
        return Given(tuple(waits), sent=len(waits))
    sizes = None if sender is None or id not in sender.sent else tuple(sender.sent[id])
    surplus = 0 if sizes is None else len(waits) - len(sizes)
    if sizes is not None and [e.rows for e in waits[max(0, surplus) :]] == list(sizes[max(0, -surplus) :]):
        return Given(tuple(waits), max(0, -surplus), max(0, surplus), sizes)
    stay = tuple(each for each in waits if each.end <= sent)
    return Given(stay, sent=len(stay), dropped=tuple(each for each in waits if each.end > sent))


@dataclass
class CarriedOver:
    """Of one run. `read` changes nothing; `begin` comes when connections have their numbers, `store_all` at the end."""

    plan: Plan
    store: Store | None
    run: int
    live: Path
    logs: dict[ElementName, EnteredLog] = field(default_factory=dict)
    _left: dict[ElementName, Left] = field(default_factory=dict)
    _given: dict[ConnectionId, Given] = field(default_factory=dict)

    def log_of(self, element: ElementName) -> EnteredLog:
        assert self.store is not None
        return self.logs.setdefault(element, EnteredLog(self.store, element, self.run, self.live))

    # --- a run begins -------------------------------------------------------------------------------------------

    def read(self, epochs: Mapping[ElementName, Epoch], borders: KnownBorders) -> None:
        """`epochs`: the newest ones of the elements of mode `independent`."""
        if self.store is None:
            return
        self._left = {
            name: left
            for name, epoch in epochs.items()
            if (left := journal_record.load(self.store, name)) is not None and left.epoch == epoch
        }
        found = {element: log.read() for element, log in self.logs.items()}
        unfit: set[ElementName] | bool = True
        while unfit:  # what one cannot do again, others cannot be given
            self._given = {}
            for c in self.plan.connections:
                if c.region is None and c.target in found:
                    batches = [each for each in found[c.target] if each.connection == c.id]
                    known = (borders.taken[c.id].row, borders.sent.get(c.id))
                    ends = (self._left.get(c.target), self._left.get(c.source))
                    self._given[c.id] = given_to(c.id, batches, *known, *ends)
            unfit = {name for name, left in self._left.items() if not self._fits(name, left)}
            self._left = {name: left for name, left in self._left.items() if name not in unfit}

    def _fits(self, name: ElementName, left: Left) -> bool:
        """Whether an element can do again what its journal says: its inputs have the batches, its outputs know what comes."""
        outputs = {c.id for c in self.plan.connections if c.source == name and c.preserved}
        sent = {id for id in left.sent if left.sent[id]}
        if not sent <= outputs or any(tuple(left.sent[id]) != self._sizes(id) for id in sent):
            return False
        for id, count in left.waiting.items():
            if count and len(self._given.get(id, Given(())).batches) < count:
                return False
        return True

    def _sizes(self, id: ConnectionId) -> tuple[int, ...]:
        return self._given.get(id, Given(())).sizes

    @property
    def recorded(self) -> dict[ConnectionId, dict[int, int]]:
        """For the accounts: batches that count and whose rows the sender does not send again. See `RowsByEnd`."""
        found: dict[ConnectionId, dict[int, int]] = {}
        for id, given in self._given.items():
            known = found.setdefault(id, {})
            for each in given.batches[: given.sent]:
                known[each.end] = known.get(each.end, 0) + each.rows
        return found

    def goes_on(self, c: ConnectionPlan) -> bool:
        """Whether a connection goes on as it was left: the receiver from its epoch, the sender behind it or not."""
        given = self._given.get(c.id)
        return given is not None and (bool(given.batches) or c.source in self._left)

    def begin(self, connections: Mapping[ConnectionId, Connection], lives: list[RegionLife]) -> None:
        """Give everybody what was left. Comes when connections have their numbers; writes nothing into the store."""
        for id, given in self._given.items():
            queue, log = connections[id], self._log_at(id)
            if isinstance(queue, PreservedQueue):
                parcels = [Parcel(log.batch(each), each.end) for each in given.batches]
                queue.go_on_with(parcels, given.taken, given.sent, given.sizes)
        for life in lives:
            left = self._left.get(life.loop.name)
            if life.repeating is not None and left is not None:
                life.repeating.go_on_with(left)

    def _log_at(self, id: ConnectionId) -> EnteredLog:
        return next(self.logs[c.target] for c in self.plan.connections if c.id == id)

    def drop(self) -> None:
        """Delete what is of no use: it is counted, or sent again. Elements that are no more, or that nothing enters any more, go."""
        for id, given in self._given.items():
            self._log_at(id).drop(given.dropped)
        if self.store is not None:
            for element in entered_elements(self.store):
                if element not in self.logs:
                    self.store.delete_entry(entered_entry(element))

    # --- a run ends in order ------------------------------------------------------------------------------------

    def store_all(self, lives: list[RegionLife], epochs: Mapping[ElementName, Epoch]) -> None:
        """No element works any more: what no epoch covers is put into the store."""
        for life in lives:
            life.borders.record_all()
        for life in lives:
            left = None if life.repeating is None else life.repeating.left(epochs[life.loop.name])
            if left is not None and self.store is not None:
                waiting = {id: len(queue.uncovered) for id, queue in life.borders.kept.items()}
                left = Left(left.epoch, left.steps, left.sent, waiting)
                journal_record.save(self.store, life.loop.name, left)

    def recorded_now(self, borders: KnownBorders) -> dict[ConnectionId, dict[int, int]]:
        """The same as `recorded`, when the run ends."""
        found: dict[ConnectionId, dict[int, int]] = {}
        for log in self.logs.values():
            for id, known in log.recorded.items():
                sent = borders.sent.get(id)
                found[id] = {end: rows for end, rows in known.items() if sent is None or end <= sent}
        return found
