"""Connections between elements: bounded FIFO queues of batches and markers, in the driver.

All connections and mailboxes of a run share one condition variable (`Signals`): events are rare (tens per second),
and a thread that waits for "anything that concerns me" needs exactly one place to wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from holdfast.ids import ConnectionId
from holdfast.protocol.messages import Marker
from holdfast.runtime.links.batch import Batch


class Interrupted(Exception):
    """A reset or a stop arrived while waiting: what the thread was doing no longer matters."""


class Signals:
    """The run's one condition variable. Hold it to look at or change any queue."""

    def __init__(self) -> None:
        self.condition = threading.Condition()

    def notify(self) -> None:
        with self.condition:
            self.condition.notify_all()


class Connection:
    """A bounded FIFO. Producers wait when it is full; a reset marker empties it first and never waits.

    `unbounded` is for control ports: they may close a cycle, where waiting for space could be mutual.
    """

    def __init__(
        self,
        id: ConnectionId,
        signals: Signals,
        *,
        max_rows: int = 2_000_000,
        max_bytes: int = 256 << 20,
        unbounded: bool = False,
    ) -> None:
        self.id = id
        self._signals = signals
        self._items: deque[Batch | Marker] = deque()
        self._rows = 0
        self._bytes = 0
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._unbounded = unbounded
        self.closed = False

    def put_batch(self, batch: Batch, give_up: Callable[[], bool]) -> None:
        """Append a batch, waiting for space. Raises Interrupted as soon as `give_up()` is true."""
        with self._signals.condition:
            while self._full():
                if give_up():
                    raise Interrupted
                self._signals.condition.wait(1.0)
            self._items.append(batch)
            self._rows += batch.rows
            self._bytes += batch.bytes
            self._signals.condition.notify_all()

    def put_marker(self, marker: Marker) -> None:
        """Append a marker; never waits. A reset marker clears what is in the queue."""
        with self._signals.condition:
            if marker.kind == "reset":
                self._clear()
            self._items.append(marker)
            self._signals.condition.notify_all()

    def close(self) -> None:
        """Nothing more will come."""
        with self._signals.condition:
            self.closed = True
            self._signals.condition.notify_all()

    # The methods below expect the caller to hold `signals.condition`, or to be the only consumer.

    def head(self) -> Batch | Marker | None:
        return self._items[0] if self._items else None

    def pop(self) -> Batch | Marker:
        item = self._items.popleft()
        if isinstance(item, Batch):
            self._rows -= item.rows
            self._bytes -= item.bytes
            self._signals.condition.notify_all()
        return item

    def take_batches(self, max_rows: int) -> list[Batch]:
        """Batches before the next marker, up to `max_rows` rows (at least one batch)."""
        taken: list[Batch] = []
        rows = 0
        while self._items and isinstance(self._items[0], Batch) and (not taken or rows < max_rows):
            batch = self.pop()
            assert isinstance(batch, Batch)
            taken.append(batch)
            rows += batch.rows
        return taken

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def empty(self) -> bool:
        return not self._items

    def _full(self) -> bool:
        over = self._rows >= self._max_rows or self._bytes >= self._max_bytes
        return over and not self._unbounded

    def _clear(self) -> None:
        for item in self._items:
            if isinstance(item, Batch):
                item.hold.let_go()
        self._items.clear()
        self._rows = self._bytes = 0
