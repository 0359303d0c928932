"""The connections by which rows enter and leave a region at one element, counted: a reset costs what entered since the
epoch it goes back to, and takes back what left since and still waits. What the numbers mean: `protocol/accounts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.ids import INITIAL_EPOCH, ConnectionId, ElementName, Epoch
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.protocol.accounts import TakenByRegion
from holdfast.runtime.links.connection import Connection, Parcel
from holdfast.runtime.links.preserved_queue import PreservedQueue

BorderNumbers = Mapping[ConnectionId, Mapping[str, int]]
"""As stored with an element's part: {"taken", "lost"} of a connection that enters, {"sent"} of one that leaves."""


class Borders:
    """Of one element. Called by its thread, between steps; `throw_away` by any."""

    def __init__(
        self,
        inputs: Mapping[ConnectionId, Connection],
        outputs: Mapping[ConnectionId, Connection],
        replayed: frozenset[ConnectionId] = frozenset(),
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self.lost: dict[ConnectionId, int] = dict.fromkeys(inputs, 0)
        """Rows that resets and ends of runs have cost at each entrance, over all runs."""
        self._at: dict[Epoch, dict[ConnectionId, int]] = {}
        self._replayed = replayed
        """Those of the inputs whose rows come again after a reset."""
        self._kept: dict[ConnectionId, list[Parcel]] = {id: [] for id in replayed}
        """What was taken of them since the last epoch but one that was pinned, or restored."""
        self._newest = INITIAL_EPOCH

    def keep(self, parcels: Mapping[ConnectionId, Sequence[Parcel]]) -> None:
        """A step is about to process what was taken: keep what may have to come again."""
        for id in self._replayed & parcels.keys():
            for parcel in parcels[id]:
                parcel.batch.hold.take()
                self._kept[id].append(parcel)

    def _forget(self, epoch: Epoch) -> None:
        """`epoch` is published: what it covers need not come again."""
        for id in self._replayed if epoch in self._at else ():
            covered = [parcel for parcel in self._kept[id] if parcel.end <= self._at[epoch][id]]
            self._kept[id] = self._kept[id][len(covered) :]
            for parcel in covered:
                parcel.batch.hold.let_go()

    def pinned(self, epoch: Epoch) -> BorderNumbers:
        """What the epoch stores of the borders."""
        # An epoch begins only after the one before was published, or after a reset.
        self._forget(self._newest)
        self._newest = epoch
        self._at[epoch] = self._now()
        entering = {id: {"taken": c.taken, "lost": self.lost[id]} for id, c in self._inputs.items()}
        return {**entering, **{id: {"sent": c.sent} for id, c in self._outputs.items()}}

    def restored(self, epoch: Epoch) -> int:
        """The element goes back to `epoch`. Returns the rows that entered since and are lost."""
        then = self._at.get(epoch)
        if then is None:  # the run begins: what earlier ones lost is settled
            self._at = {epoch: self._now()}
            return 0
        rows = 0
        for id in self._replayed:
            again = [parcel for parcel in self._kept[id] if parcel.end > then[id]]
            self._kept[id] = []  # they are taken once more
            self._inputs[id].put_first(again)
        self._newest = epoch
        for id, connection in self._inputs.items():
            if isinstance(connection, PreservedQueue):
                continue  # it gives them again
            gone = connection.taken - then[id]
            self.lost[id] += gone
            rows += gone
            then[id] = connection.taken
        for id, connection in self._outputs.items():
            if not isinstance(connection, PreservedQueue):
                connection.rewind(then[id])
        self._at = {epoch: then}
        return rows

    def throw_away(self, now: bool) -> None:
        """Whether what enters is thrown away, because the region is parked: nobody waits for it. The reset that ends it
        counts that as lost."""
        for connection in self._inputs.values():
            connection.throw_away(now)

    def _now(self) -> dict[ConnectionId, int]:
        entering = {id: connection.taken for id, connection in self._inputs.items()}
        return {**entering, **{id: connection.sent for id, connection in self._outputs.items()}}


def stored_borders(
    plan: Plan, manifests: list[Manifest]
) -> tuple[dict[ConnectionId, int], dict[ConnectionId, TakenByRegion]]:
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
    return sent, taken


def replayed_inputs(element: ElementPlan) -> frozenset[ConnectionId]:
    """The inputs of an element whose rows enter its region by `.replayable()`."""
    keeping = {op.name for op in element.operators if isinstance(op.spec, ReplayableSpec)}
    outside = [
        c for c in element.inputs if c.region is None and element.region is not None and not c.preserved
    ]
    return frozenset(c.id for c in outside if all(name in keeping for name, _ in c.ports))
