"""A connection outside of regions or across a border: batches in memory, numbered. Gone with the run."""

from __future__ import annotations

from collections import deque

from holdfast.chaos.mixed.graph import Wire


class SimConnection:
    """Rows are numbered as they are put; what is taken out again before anybody took it gives its numbers back.

    `lost`, `opened`: of connections into a region, rows that resets have cost there, and where this run began.
    """

    __slots__ = ("capacity", "closed", "items", "lost", "opened", "sent", "taken", "throws_away", "wire")

    def __init__(self, wire: Wire, opened: int, lost: int, capacity: int) -> None:
        self.wire = wire
        self.capacity = capacity
        self.items: deque[tuple[int, int]] = deque()  # (number of the last row, rows in the sender's frame)
        self.sent = self.taken = self.opened = opened
        self.lost = lost
        self.closed = False
        self.throws_away = False

    @property
    def waiting(self) -> int:
        """Rows that wait, in the sender's frame. A row that waits twice shows once."""
        rows = 0
        for _, batch in self.items:
            rows |= batch
        return rows

    @property
    def is_full(self) -> bool:
        return len(self.items) >= self.capacity and not self.throws_away

    def put(self, rows: int) -> None:
        self.sent += rows.bit_count()
        self.items.append((self.sent, rows))
        if self.throws_away:
            self.throw()

    def take(self) -> int:
        """The next batch, in the receiver's frame."""
        self.taken, rows = self.items.popleft()
        return rows << self.wire.shift

    def give_back(self, end: int, rows: int) -> None:
        """Put the last rows of a batch that was taken, in the receiver's frame, ahead of all that waits."""
        self.items.appendleft((end, rows >> self.wire.shift))
        self.taken = end - rows.bit_count()

    def throw(self) -> None:
        """Into a region that takes nothing: throw away what waits, and count it."""
        if self.items:
            self.lost += self.sent - self.taken
            self.taken = self.sent
            self.items.clear()

    def rewind(self, row: int) -> None:
        """The region that sends went back to an epoch: what it sent behind `row` and still waits, it sends again."""
        while self.items and self.items[-1][0] > row:
            self.sent -= self.items.pop()[1].bit_count()

    def restored(self, row: int, lost: int) -> None:
        """The region that takes went back to an epoch that holds `row`s: those taken since are gone."""
        self.lost = lost + self.taken - max(row, self.opened)
