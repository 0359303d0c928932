"""A connection as a queue in the driver: handles and markers in memory, rows in files. Gone with the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from holdfast.ids import ConnectionId
from holdfast.protocol.messages import Marker
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.links.connection import Connection, Interrupted, Parcel, Signals, never

MAX_ROWS, MAX_BYTES = 2_000_000, 256 << 20


class Queue(Connection):
    """Producers wait when it is full; a reset marker empties it first and never waits.

    `unbounded` is for control ports: they may close a cycle, where waiting for space could be mutual.
    """

    def __init__(
        self,
        id: ConnectionId,
        signals: Signals,
        *,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        unbounded: bool = False,
    ) -> None:
        self.id = id
        self.sent = 0
        self.taken = 0
        self.thrown_away = 0
        self.closed = False
        self._signals = signals
        self._items: deque[Parcel | Marker] = deque()
        self._rows = 0
        self._bytes = 0
        self._limits = None if unbounded else (max_rows, max_bytes)
        self._throws_away = False

    # --- the sender's side --------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch, give_up: Callable[[], bool], hurry: Callable[[], bool] = never) -> None:
        with self._signals.condition:
            while self._full() and not hurry():
                if give_up():
                    raise Interrupted
                self._signals.condition.wait(1.0)
            self.sent += batch.rows
            if self._throws_away:
                self._throw(Parcel(batch, self.sent))
                return
            self._items.append(Parcel(batch, self.sent))
            self._count(batch, 1)
            self._signals.condition.notify_all()

    def put_marker(self, marker: Marker) -> None:
        with self._signals.condition:
            if marker.kind == "reset":
                self._drop(lambda _: True)
                self._items.clear()
            self._items.append(marker)
            self._signals.condition.notify_all()

    def close(self) -> None:
        with self._signals.condition:
            self.closed = True
            self._signals.condition.notify_all()

    def rewind(self, row: int) -> None:
        with self._signals.condition:
            self._drop(lambda parcel: parcel.end > row)
            self.sent = max(row, self.taken)
            self._signals.condition.notify_all()

    def open(self, sent: int, taken: int) -> None:
        self.sent, self.taken = sent, taken

    # --- the receiver's side ------------------------------------------------------------------------------------

    def put_first(self, parcels: Sequence[Parcel]) -> None:
        with self._signals.condition:
            if any(isinstance(item, Marker) and item.kind == "reset" for item in self._items):
                # It took out what waited, and came while these were being worked on: nobody may wait behind them.
                for parcel in parcels:
                    parcel.batch.hold.let_go()
                return
            for parcel in reversed(parcels):
                self._items.appendleft(parcel)
                self._count(parcel.batch, 1)
                self.taken = parcel.end - parcel.batch.rows

    def throw_away(self, now: bool) -> None:
        with self._signals.condition:
            self._throws_away = now
            while now and self._items:
                item = self._items.popleft()
                if isinstance(item, Parcel):
                    self._count(item.batch, -1)
                    self._throw(item)
            self._signals.condition.notify_all()

    def head(self) -> Parcel | Marker | None:
        return self._items[0] if self._items else None

    def pop(self) -> Parcel | Marker:
        item = self._items.popleft()
        if isinstance(item, Parcel):
            self._count(item.batch, -1)
            self.taken = item.end
            self._signals.condition.notify_all()
        return item

    def take(self, max_rows: int) -> list[Parcel]:
        taken: list[Parcel] = []
        rows = 0
        while isinstance(self.head(), Parcel) and (not taken or rows < max_rows):
            parcel = self.pop()
            assert isinstance(parcel, Parcel)
            taken.append(parcel)
            rows += parcel.batch.rows
        return taken

    def ahead_of(self, marker: Marker) -> tuple[Batch, ...] | None:
        if marker not in self._items:
            return None
        ahead = list(self._items)[: self._items.index(marker)]
        return tuple(item.batch for item in ahead if isinstance(item, Parcel))

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def full(self) -> bool:
        return self._full()

    @property
    def empty(self) -> bool:
        return not self._items

    # --- within -------------------------------------------------------------------------------------------------

    def _full(self) -> bool:
        if self._limits is None or self._throws_away:
            return False
        return self._rows >= self._limits[0] or self._bytes >= self._limits[1]

    def _count(self, batch: Batch, sign: int) -> None:
        self._rows += sign * batch.rows
        self._bytes += sign * batch.bytes

    def _throw(self, parcel: Parcel) -> None:
        self.thrown_away += parcel.batch.rows
        self.taken = parcel.end
        parcel.batch.hold.let_go()

    def _drop(self, which: Callable[[Parcel], bool]) -> None:
        """Take out what will be sent again."""
        stay: deque[Parcel | Marker] = deque()
        for item in self._items:
            if isinstance(item, Parcel) and which(item):
                self._count(item.batch, -1)
                item.batch.hold.let_go()
            else:
                stay.append(item)
        self._items = stay
