"""A connection that preserves what went along it, between elements that fail and restart alone (mode `independent`). Pure.

Batches are numbered as they are put. The receiver's epochs *cover* batches; what is not covered stays retained:

    ──put──▶ waiting ──take──▶ retained ──cover──▶ gone
                ▲                 │
                └────take_back────┘           the receiver went back to its epoch

A sender that went back does again what it had done since, step by step (`Journal`), and so sends the same batches again:
those with a number up to the highest that was ever put are here already, or gone for good, and are let go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


class NotRepeated(Exception):
    """A batch that is sent again is not the one that was sent before."""


@dataclass
class Preserved(Generic[T]):
    """What waits and what is retained, in order. Must hold: taken ≤ highest, and sent ≤ highest."""

    sent: int = 0
    """Batches put by the sender as it is now."""
    highest: int = 0
    """Batches ever put."""
    taken: int = 0
    waiting: deque[T] = field(default_factory=deque)
    retained: deque[T] = field(default_factory=deque)
    _sizes: dict[int, int] = field(default_factory=dict)
    """Rows of the batches that the sender may send again."""

    @property
    def uncovered(self) -> list[T]:
        """What no epoch of the receiver covers, in order."""
        return [*self.retained, *self.waiting]

    @property
    def may_come_again(self) -> list[int]:
        """Rows of the batches that the sender has sent since its newest epoch, in order."""
        return [self._sizes[number] for number in sorted(self._sizes)]

    def go_on_with(self, items: Sequence[T], taken: int, sent: int, sizes: Sequence[int]) -> None:
        """A run begins with what an earlier one left: `items` wait; the receiver's epoch has taken `taken` batches, the
        sender's has sent `sent`, and behind it sent batches of `sizes` rows. Numbers begin anew."""
        self.waiting.extend(items)
        self.taken, self.sent = taken, sent
        self.highest = taken + len(items)
        self._sizes = dict(enumerate(sizes, sent + 1))

    # --- the sender ---

    def put(self, item: T, rows: int) -> bool:
        """True if the item is new; False if the receiver has it already, or will find it here."""
        self.sent += 1
        if self.sent <= self.highest:
            before = self._sizes[self.sent]
            if before != rows:
                raise NotRepeated(f"{rows} rows were sent again as batch {self.sent}, which had {before}")
            return False
        self.highest = self.sent
        self._sizes[self.sent] = rows
        self.waiting.append(item)
        return True

    def sent_for_good(self, number: int) -> None:
        """An epoch of the sender holds that it has sent so many batches."""
        for each in [each for each in self._sizes if each <= number]:
            del self._sizes[each]

    def send_again(self, number: int) -> None:
        """The sender went back to where it had sent so many batches."""
        self.sent = number

    def drop_behind(self, number: int) -> list[T]:
        """Nobody will take what waits behind batch `number`; no sender sends it again. Returns it."""
        count = max(0, self.highest - max(number, self.taken))
        gone = [self.waiting.pop() for _ in range(count)][::-1]
        self.highest -= count
        self.sent = min(self.sent, self.highest)
        return gone

    # --- the receiver ---

    def take(self) -> T:
        self.taken += 1
        self.retained.append(self.waiting.popleft())
        return self.retained[-1]

    def take_back(self, number: int) -> list[T]:
        """The receiver went back to where it had taken so many batches. Returns those that wait again."""
        back = [self.retained.pop() for _ in range(self.taken - number)]
        self.waiting.extendleft(back)
        self.taken = number
        return back

    def cover(self, number: int) -> list[T]:
        """An epoch of the receiver holds what it made of so many batches. Returns what nobody needs any more."""
        first = self.taken - len(self.retained)
        return [self.retained.popleft() for _ in range(number - first)]


E = TypeVar("E")


class Journal(Generic[E]):
    """What an element did since its newest epoch, step by step: after a failure it does the same again, up to the end of the
    journal, before it does anything new."""

    def __init__(self) -> None:
        self._entries: deque[E] = deque()
        self._first = 0  # number of the first entry
        self._done = 0  # entries done by the element as it is now
        self._at: dict[int, int] = {}  # entries done when an epoch was pinned

    @property
    def is_repeating(self) -> bool:
        return self._done < self._first + len(self._entries)

    def did(self, entry: E) -> None:
        """Something new was begun."""
        assert not self.is_repeating
        self._entries.append(entry)
        self._done += 1

    def peek(self) -> E:
        return self._entries[self._done - self._first]

    def next(self) -> E:
        """What is to be done again."""
        entry = self.peek()
        self._done += 1
        return entry

    def pinned(self, epoch: int) -> None:
        self._at[epoch] = self._done

    def published(self, epoch: int) -> None:
        """What was done before is never done again."""
        while self._entries and self._first < self._at[epoch]:
            self._entries.popleft()
            self._first += 1
        self._at = {each: done for each, done in self._at.items() if each >= epoch}

    @property
    def entries(self) -> list[E]:
        """What was done since the newest published epoch."""
        return list(self._entries)

    def go_on_with(self, entries: Sequence[E]) -> None:
        """A run begins with the journal that an earlier one left."""
        self._entries = deque(entries)

    def restored(self, epoch: int) -> None:
        """The element went back. An epoch that is not known is the one with which the run began."""
        self._done = self._at.setdefault(epoch, self._first)
        self._at = {epoch: self._done}
