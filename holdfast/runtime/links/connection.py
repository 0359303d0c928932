"""Connections between elements, as an interface: what a sender and a receiver ask of one, whatever carries the rows.

Rows are numbered as they are put, over all runs: `sent - taken` is what waits. Inside a region the numbers mean nothing;
at a border and outside they tell what a failure cost: see `protocol/accounts.py`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.ids import ConnectionId
from holdfast.protocol.messages import Marker
from holdfast.runtime.links.batch import Batch


def never() -> bool:
    return False


class Interrupted(Exception):
    """A reset or a stop arrived while waiting: what the thread was doing no longer matters."""


class Signals:
    """The run's one condition variable. Hold it to look at or change any connection."""

    def __init__(self) -> None:
        self.condition = threading.Condition()

    def notify(self) -> None:
        with self.condition:
            self.condition.notify_all()


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch on its way; its last row has the number `end`."""

    batch: Batch
    end: int

    def rest(self, done: int) -> Parcel:
        """What is left when its first `done` rows were processed. Held once more."""
        self.batch.hold.take()
        return Parcel(self.batch.behind(done), self.end)


class Connection(ABC):
    """A bounded FIFO of batches and markers. One sender, one receiver; methods may be called by both at once, those
    marked `receiver` by the receiver alone, who holds `signals.condition`."""

    id: ConnectionId
    sent: int
    """Rows put so far."""
    taken: int
    """Rows taken out so far."""
    thrown_away: int
    """Rows put while nobody would ever take them: see `throw_away`."""
    closed: bool
    """Nothing more will come."""

    @abstractmethod
    def put_batch(self, batch: Batch, give_up: Callable[[], bool], hurry: Callable[[], bool] = never) -> None:
        """Append a batch, waiting for space, but no longer once `hurry()` is true. Raises Interrupted as soon as
        `give_up()` is."""

    @abstractmethod
    def put_marker(self, marker: Marker) -> None:
        """Append a marker; never waits. A reset marker takes out what waits."""

    @abstractmethod
    def put_first(self, parcels: Sequence[Parcel]) -> None:
        """Receiver: put back what it has taken and not processed, ahead of all that waits."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def throw_away(self, now: bool) -> None:
        """While true, what is put is thrown away and counted, and what waits too: the receiver has given up."""

    @abstractmethod
    def open(self, sent: int, taken: int) -> None:
        """Go on with the numbers of an earlier run."""

    @abstractmethod
    def rewind(self, row: int) -> None:
        """The sender's region went back to where it had sent `row` rows: what waits behind will be sent again."""

    @abstractmethod
    def head(self) -> Parcel | Marker | None:
        """Receiver: what comes next."""

    @abstractmethod
    def pop(self) -> Parcel | Marker:
        """Receiver: take the next."""

    @abstractmethod
    def take(self, max_rows: int) -> list[Parcel]:
        """Receiver: batches before the next marker, up to `max_rows` rows (at least one batch)."""

    @abstractmethod
    def ahead_of(self, marker: Marker) -> tuple[Batch, ...] | None:
        """Receiver: the batches ahead of a marker; None: it is not here yet."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Rows that wait."""

    @property
    @abstractmethod
    def full(self) -> bool:
        """Who puts a batch waits for space."""

    @property
    @abstractmethod
    def empty(self) -> bool: ...
