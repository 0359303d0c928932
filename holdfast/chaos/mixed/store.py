"""What survives every crash of a mixed graph: books, accounts, own checkpoints, epochs, what sinks show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.chaos.mixed.graph import MixedGraph
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, ElementName, Epoch, OperatorName
from holdfast.protocol.accounts import Account, Covered, TakenByRegion
from holdfast.protocol.messages import ControllerRecord


@dataclass(frozen=True, slots=True)
class AccountRecord:
    """Written before a step. `uncounted`: rows of its slice, which only a look into the source tells."""

    account: Account
    position: int
    uncounted: int


@dataclass(frozen=True, slots=True)
class BooksRecord:
    """Written when a run begins or ends."""

    run: int
    closed: bool
    accounts: Mapping[ElementName, Account]
    settled: Mapping[ConnectionId, int] = field(default_factory=dict)
    border_lost: Mapping[ConnectionId, int] = field(default_factory=dict)


@dataclass(slots=True)
class OwnCheckpoint:
    """Of one operator. `damaged`: rows in it that cannot be read, which nobody knows before somebody tries."""

    covers: Covered
    rows: int
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class MixedPart:
    """What an element of the region pinned for an epoch."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt
    position: int
    state: int
    kept: tuple[int, ...]
    sent: Mapping[ConnectionId, int]
    taken: Mapping[ConnectionId, TakenByRegion]


class MixedStore:
    """Writes are atomic. While it is `full`, it refuses all of them."""

    def __init__(self, graph: MixedGraph) -> None:
        self.full = False
        self.token = 0
        accounts = {e.name: _first_account(graph, e.number) for e in graph.elements if not e.in_region}
        self.books = BooksRecord(0, True, accounts)
        self.records: dict[ElementName, AccountRecord] = {}
        self.checkpoints: dict[OperatorName, OwnCheckpoint] = {}
        self.controller: ControllerRecord | None = None
        self.newest = INITIAL_EPOCH
        self.epoch: dict[ElementName, MixedPart] = {
            element.name: MixedPart(
                element.name, INITIAL_EPOCH, Attempt(0), 0, 0, (),
                {w.id: 0 for w in element.outputs if not w.is_link},
                {w.id: TakenByRegion() for w in element.inputs if not w.is_link},
            )
            for element in graph.elements if element.in_region
        }  # fmt: skip
        """Parts of the newest published epoch."""

    def position(self, element: ElementName) -> int:
        """How far the source of an element outside of regions was handed out."""
        return self.records[element].position if element in self.records else 0

    def readable(self, operator: OperatorName) -> int:
        """What a restore of an operator outside of regions brings back."""
        checkpoint = self.checkpoints.get(operator)
        return 0 if checkpoint is None else checkpoint.rows & ~checkpoint.damaged


def _first_account(graph: MixedGraph, number: int) -> Account:
    element = graph.elements[number]
    return Account(
        element.name, 0,
        taken={w.id: 0 for w in element.inputs}, sent={w.id: 0 for w in element.outputs},
        absorbed=dict.fromkeys(element.operators, 0), reach=element.reach, reach_of=element.reach_of,
    )  # fmt: skip
