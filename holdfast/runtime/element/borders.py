"""The connections by which rows enter and leave a region at one element, counted: a reset costs what entered since the
epoch it goes back to, unless it can be had again, and takes back what left since and still waits. What the numbers mean:
`protocol/accounts.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.compiler.traverse import sinks_behind
from holdfast.ids import ConnectionId, ElementName, Epoch
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.protocol.accounts import RowsByEnd, TakenByRegion
from holdfast.runtime.links.connection import Connection, Parcel
from holdfast.runtime.links.entered_log import EnteredLog
from holdfast.runtime.links.preserved_queue import Place, PreservedQueue
from holdfast.runtime.telling.events import RowsLost

BorderNumbers = Mapping[ConnectionId, Mapping[str, int]]
"""As stored with an element's part: {"taken", "lost"} of a connection that enters, {"sent"} of one that leaves."""


@dataclass(frozen=True, slots=True)
class KnownBorders:
    """What the newest epochs of regions know of their borders, and what is recorded there."""

    sent: Mapping[ConnectionId, int] = field(default_factory=dict)
    taken: Mapping[ConnectionId, TakenByRegion] = field(default_factory=dict)
    recorded: Mapping[ConnectionId, RowsByEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class At:
    """Where everything was at an epoch."""

    rows: Mapping[ConnectionId, int]
    places: Mapping[ConnectionId, Place]
    """Of the inputs that can be had again."""


class Borders:
    """Of one element. Called by its thread, between steps; `throw_away` by any, `published` by its region's."""

    def __init__(
        self,
        inputs: Mapping[ConnectionId, Connection],
        outputs: Mapping[ConnectionId, Connection],
        log: EnteredLog | None = None,
        recorded: frozenset[ConnectionId] = frozenset(),
    ) -> None:
        """`log`: set if there are inputs that can be had again. `recorded`: those of them whose batches are stable in it before a
        step works on them."""
        self._inputs = inputs
        self._outputs = outputs
        self.log = log
        self._recorded = recorded
        self.kept = {id: c for id, c in inputs.items() if isinstance(c, PreservedQueue)}
        """Those of the inputs whose rows come again after a reset."""
        self.lost: dict[ConnectionId, int] = dict.fromkeys(inputs, 0)
        """Rows that resets and ends of runs have cost at each entrance, over all runs."""
        self._thrown: dict[ConnectionId, int] = dict.fromkeys(inputs, 0)
        """Rows thrown away that `lost` knows of."""
        self._at: dict[Epoch, At] = {}
        self._lock = threading.Lock()

    def record(self, parcels: Mapping[ConnectionId, Sequence[Parcel]]) -> None:
        """A step is about to process what was taken: make stable what must not be lost, all in one write."""
        entering = {id: parcels[id] for id in self._recorded & parcels.keys()}
        if entering and self.log is not None:
            self.log.record(entering)

    def record_waiting(self) -> bool:
        """The region is parked: make stable what waits for it, up to a bound. True if something did that was not."""
        if self.log is None:
            return False
        parked = {id: queue for id, queue in self.kept.items() if id in self._recorded and queue.is_parked}
        new = {id: queue.waiting_behind(self.log.is_recorded) for id, queue in parked.items()}
        return any(new.values()) and self.log.record(new)

    def record_all(self) -> None:
        """The run ends in order, and the element works no more: make stable what no epoch covers."""
        if self.log is not None:
            self.log.record({id: connection.uncovered for id, connection in self.kept.items()})

    def pinned(self, epoch: Epoch) -> BorderNumbers:
        """What the epoch stores of the borders."""
        with self._lock:
            self._at[epoch] = self._now()
        entering = {id: {"taken": c.taken, "lost": self.lost[id]} for id, c in self._inputs.items()}
        return {**entering, **{id: {"sent": c.sent} for id, c in self._outputs.items()}}

    def published(self, epoch: Epoch) -> None:
        """What the epoch covers need not come again."""
        with self._lock:
            at = self._at[epoch]
            self._at = {each: known for each, known in self._at.items() if each >= epoch}
        for id, place in at.places.items():
            self.kept[id].cover(place)
        if self.log is not None:
            self.log.published({id: place.rows for id, place in at.places.items()})

    def restored(self, epoch: Epoch) -> int:
        """The element goes back to `epoch`. Returns the rows that entered since and are lost."""
        then = self._at.get(epoch)
        if then is None:  # the run begins: what earlier ones lost is settled
            self._at = {epoch: self._now()}
            if self.log is not None:
                self.log.published({id: place.rows for id, place in self._at[epoch].places.items()})
            return 0
        rows = 0
        for id, place in then.places.items():
            self.kept[id].take_back(place)
        for id, connection in self._inputs.items():
            is_kept = id in self.kept
            gone = connection.thrown_away - self._thrown[id] if is_kept else connection.taken - then.rows[id]
            self._thrown[id] = connection.thrown_away
            self.lost[id] += gone
            rows += gone
        for id, connection in self._outputs.items():
            if not isinstance(connection, PreservedQueue):
                connection.rewind(then.rows[id])
        now = {id: connection.taken for id, connection in self._inputs.items()}
        self._at = {epoch: At({**then.rows, **now}, then.places)}
        return rows

    def throw_away(self, now: bool) -> None:
        """Whether what enters is thrown away, because the region is parked: nobody waits for it. The reset that ends it
        counts that as lost. What enters by `.replayable()` is kept, up to a bound."""
        for connection in self._inputs.values():
            connection.throw_away(now)

    def _now(self) -> At:
        entering = {id: connection.taken for id, connection in self._inputs.items()}
        leaving = {id: connection.sent for id, connection in self._outputs.items()}
        places = {id: connection.place_of_receiver for id, connection in self.kept.items()}
        return At({**entering, **leaving}, places)


def lost_at_reset(plan: Plan, element: ElementPlan, rows: int) -> RowsLost:
    """What is told of rows that `Borders.restored` counted."""
    reach = sinks_behind(plan.graph)
    sinks = tuple(sorted({sink for op in element.operators for sink in reach[op.name]}))
    reason = "they entered the region after the epoch it went back to"
    return RowsLost(element.name, rows, reason, element.region, sinks)


def stored_borders(plan: Plan, manifests: list[Manifest]) -> KnownBorders:
    """What the newest epochs of regions know of their borders: rows sent, and rows taken and lost. Connections that the
    program had when the epoch was established, and those it has now."""
    regions: dict[ElementName, object] = {element.name: element.region for element in plan.elements}
    # Between elements that have epochs of their own both ends know a connection.
    known = [item for one in manifests for part in one.parts.values() for item in part.borders.items()]
    outside = [c for c in plan.connections if c.region is None]
    sent = {c.id: 0 for c in outside if regions[c.source] is not None}
    taken = {c.id: TakenByRegion() for c in outside if regions[c.target] is not None}
    sent |= {id: numbers["sent"] for id, numbers in known if "sent" in numbers}
    taken |= {
        id: TakenByRegion(numbers["taken"], numbers["lost"]) for id, numbers in known if "taken" in numbers
    }
    return KnownBorders(sent, taken)


def kept_bytes(element: ElementPlan, connection: ConnectionId) -> int:
    """How much of what comes along a connection is kept while the region is parked that it enters by `.replayable()`."""
    into = {name for c in element.inputs if c.id == connection for name, _ in c.ports}
    specs = [op.spec for op in element.operators if op.name in into]
    return min((spec.keep_bytes for spec in specs if isinstance(spec, ReplayableSpec)), default=0)


def replayed_inputs(element: ElementPlan) -> frozenset[ConnectionId]:
    """The inputs of an element whose rows enter its region by `.replayable()`."""
    keeping = {op.name for op in element.operators if isinstance(op.spec, ReplayableSpec)}
    outside = [c for c in element.inputs if c.region is None and element.region is not None]
    return frozenset(c.id for c in outside if all(name in keeping for name, _ in c.ports))
