"""The window of a partition's writers, as a pure machine: what is admitted, what is written together, what is acknowledged.

    submit → queued → take → flying → durable → acknowledged, in order
                              └ failed: all that is queued or flying fails, nothing of it becomes durable

Invariants, checked on every change:
1. Positions and, for each writer, sequences ascend in the order of submission; acknowledgements come in that order.
2. One group is in flight at a time; what is behind it waits. So nothing behind a failure is ever written.
3. A sequence that is not above the last acknowledged one of its writer was stored; one between that and the last submitted one
   is under way. Neither is written again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from holdfast.log.format.frame import NO_EPOCH, Kind
from holdfast.log.machines.partition_state import PartitionState

CONTROL = "-"
"""The writer of frames without rows."""


class Phase(Enum):
    """OPEN → BROKEN (the disk failed), FENCED (a newer owner) or CLOSED; none leads back."""

    OPEN = "open"
    BROKEN = "broken"
    FENCED = "fenced"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame on its way."""

    ticket: int
    kind: Kind
    writer: str
    sequence: int
    position: int
    rows: int
    bytes: int
    epoch: int
    share: int
    """How many of its writer's frames a group takes at most."""

    @property
    def next(self) -> int:
        return self.position + self.rows


@dataclass(frozen=True, slots=True)
class Stored:
    """Asked for again: it was acknowledged before. `end`: the position behind it, if it was the writer's last."""

    end: int | None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Asked for again: it is being written."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Cannot be admitted, for a reason that a sentence tells."""

    reason: str


@dataclass(frozen=True, slots=True)
class Behind:
    """An earlier append of this writer (for a seal: of any) failed, and it may not know yet: nothing behind is taken."""


Answer = Entry | Stored | UnderWay | Refused | Behind


class WriterMachine:
    """Not safe for several threads: its owner has a lock."""

    def __init__(self, state: PartitionState) -> None:
        self.phase = Phase.OPEN
        self._durable = state
        """Changed by whoever applies frames to it once they are durable, before `done` is told."""
        self._queued: deque[Entry] = deque()
        self._flying: tuple[Entry, ...] = ()
        self._tickets = 0
        self._last: dict[str, int] = {}
        self._in_window: Counter[str] = Counter()
        self._untold: set[str] = set()
        """Writers that lost appends, and have not been told."""
        self._next = state.next
        self._epoch = self._last_epoch()

    def _last_epoch(self) -> int:
        pending = self._durable.pending
        return max(self._durable.sealed, pending[-1][0] if pending else NO_EPOCH)

    # --- in ---
    def outstanding(self, writer: str) -> int:
        """How many appends of a writer are not acknowledged yet."""
        return self._in_window[writer]

    def last_sequence(self, writer: str) -> int:
        """The last one submitted; 0: none ever."""
        return self._last.get(writer) or self._durable.writers.get(writer, (0, 0))[0]

    @property
    def next(self) -> int:
        """Where the next row will be."""
        return self._next

    def submit(
        self, kind: Kind, writer: str, sequence: int | None, rows: int, size: int, epoch: int = NO_EPOCH,
        share: int = 1 << 30,
    ) -> Answer:  # fmt: skip
        """`sequence` None: the next one."""
        if self.phase is not Phase.OPEN:
            return Refused(f"the writer is {self.phase.value}")
        if kind in (Kind.ROWS, Kind.NOTE):
            if writer in self._untold or CONTROL in self._untold:
                return Behind()
            last = self.last_sequence(writer)
            sequence = last + 1 if sequence is None else sequence
            if sequence <= last:
                return self._again(writer, sequence)
            if epoch != NO_EPOCH and (epoch < self._epoch or epoch <= self._sealed_soon()):
                return Refused(
                    f"epoch {epoch} is not above what is sealed, or below {self._epoch}, the last one appended"
                )
            self._last[writer] = sequence
            self._epoch = max(self._epoch, epoch)
        elif kind is Kind.SEAL and self._untold:
            return Behind()  # rows of the epoch may be among those that failed
        elif kind is Kind.WITHDRAW:
            self._epoch = max(epoch, self._sealed_soon())
        self._tickets += 1
        entry = Entry(self._tickets, kind, writer, sequence or 0, self._next, rows, size, epoch, share)
        self._queued.append(entry)
        self._in_window[writer] += 1
        self._next = entry.next
        return entry

    def _sealed_soon(self) -> int:
        waiting = (entry.epoch for entry in (*self._flying, *self._queued) if entry.kind is Kind.SEAL)
        return max((self._durable.sealed, *waiting))

    def _again(self, writer: str, sequence: int) -> Answer:
        for entry in (*self._flying, *self._queued):
            if entry.writer == writer and entry.sequence == sequence:
                return UnderWay(entry.ticket)
        last, end = self._durable.writers.get(writer, (0, 0))
        return Stored(end if sequence == last else None)

    # --- out ---
    def take(self, bytes_max: int) -> tuple[Entry, ...]:
        """What is to be written and made durable together, at least one frame if there is any. Empty: nothing, or a group is
        in flight."""
        if self._flying or self.phase is not Phase.OPEN:
            return ()
        group: list[Entry] = []
        size = 0
        taken: Counter[str] = Counter()
        while self._queued and (not group or size + self._queued[0].bytes <= bytes_max):
            if taken[self._queued[0].writer] >= self._queued[0].share:
                break
            entry = self._queued.popleft()
            taken[entry.writer] += 1
            assert not group or entry.position == group[-1].next, (
                "positions of a group must follow each other"
            )
            group.append(entry)
            size += entry.bytes
        self._flying = tuple(group)
        return self._flying

    def done(self) -> Sequence[Entry]:
        """The group in flight is durable, and the durable state has its frames: acknowledge these, in this order."""
        done, self._flying = self._flying, ()
        for entry in done:
            self._in_window[entry.writer] -= 1
        rows = [entry for entry in done if entry.kind in (Kind.ROWS, Kind.NOTE)]
        assert not rows or rows[-1].next == self._durable.next, "acknowledged what is not in the state"
        return done

    def failed(self, phase: Phase = Phase.OPEN) -> Sequence[Entry]:
        """The group in flight is not durable and was taken back, or (not OPEN) nobody knows: all these fail, in this order.
        With OPEN the next append goes where the first of them was to go."""
        lost = (*self._flying, *self._queued)
        self._flying = ()
        self._queued.clear()
        self._in_window.clear()
        self._last.clear()
        self._next = self._durable.next
        self._epoch = self._last_epoch()
        self._untold |= {entry.writer for entry in lost}
        if self.phase is Phase.OPEN:
            self.phase = phase
        return lost

    def told(self, writer: str) -> None:
        """The writer knows that appends of its failed: what it appends from now on is meant to be."""
        self._untold.discard(writer)

    @property
    def queued(self) -> bool:
        """Whether there is something that `take` would give, were nothing in flight."""
        return bool(self._queued) and self.phase is Phase.OPEN

    @property
    def idle(self) -> bool:
        return not self._queued and not self._flying
