"""Reading a log: from any place up to the live edge and on, without gap or overlap.

A reader decides by the pure `ReaderMachine`, partition by partition, and reads from memory if the log is written in this very
object and it has caught up, else from segments. Readers hold no locks: what they read may be merged or trimmed meanwhile.
"""

from __future__ import annotations

import bisect
import threading
import time as clocks
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from holdfast.errors import DamagedError, InputError, StoreError
from holdfast.log import place, recovery, segments
from holdfast.log.format.names import SegmentName, Stretch
from holdfast.log.format.note import Note
from holdfast.log.machines.reader_machine import Facts, FromDisk, FromMemory, ReaderMachine, Trimmed, Wait
from holdfast.log.place import LogFacts
from holdfast.log.rows import LogBatch
from holdfast.log.segments import SegmentRange, TailCursor

TRIES = 100
POLL_S = 0.002
POLL_MAX_S = 0.02


class Source(Protocol):
    """Whoever knows how a partition stands: its owner, or a look at the disk."""

    facts: LogFacts
    partition: int
    is_quick: bool
    """Whether `facts_for` costs nothing to speak of."""

    def facts_for(self, committed: bool) -> Facts: ...

    def from_memory(self, start: int, end: int) -> LogBatch | None: ...

    def notes_in_memory(self, writer: str, start: int, end: int) -> list[Note] | None:
        """Those that touch a stretch; None: they may have left memory."""
        ...

    @property
    def tail_name(self) -> SegmentName | None: ...

    @property
    def edge(self) -> tuple[SegmentName, int] | None:
        """The newest tail, and the offset up to which it counts."""
        ...


class TrimmedError(InputError):
    """Rows that a reader needs next are not there any more."""


class PartitionReader:
    """One reader in one partition. Used by one thread."""

    def __init__(self, source_of: Callable[[], Source], position: int, committed: bool) -> None:
        """`source_of` is asked again and again: a log that was read only may be written by this process later."""
        self._source_of = source_of
        self.source = source_of()
        self.committed = committed
        self.machine = ReaderMachine(position)
        self._stretch: Stretch | None = None
        self._cursor: TailCursor | None = None
        self._batches: Iterator[LogBatch] | None = None
        self._expected = -1
        self._seen: Facts | None = None

    def next(self) -> LogBatch | None:
        """The next rows. None: there are none yet."""
        for _ in range(TRIES):
            action = self.machine.decide(self._look())
            match action:
                case Wait():
                    return None
                case Trimmed():
                    raise self._trimmed(action)
                case FromMemory():
                    batch = self.source.from_memory(action.start, action.end)
                case FromDisk():
                    batch = self._from_disk(action)
            if batch is not None:
                self.machine.delivered(action, batch.position, batch.next)
                return batch
            self._seen = None
        raise StoreError(
            f"segments of {self.source.facts.directory(self.source.partition)} vanish whenever they are read.",
            cure="Look for something else that removes its files.",
        )

    def _look(self) -> Facts:
        """How the partition stands. A look at the disk is good for all rows that it found: none of them can change."""
        source = self._source_of()
        seen = self._seen
        if seen is None or source is not self.source or source.is_quick or self.machine.position >= seen.end:
            seen = self._seen = source.facts_for(self.committed)
            self.source = source
        return seen

    def _from_disk(self, action: FromDisk) -> LogBatch | None:
        """Rows that begin at the action's start. None: files have changed meanwhile, decide again."""
        if self._expected != action.start or self._is_stale():
            try:
                self._open(action.start)
            except FileNotFoundError:
                return None
        stretch = self._stretch
        if stretch is None:
            return None
        end = action.end if stretch.end is None else min(action.end, stretch.end)
        try:
            if self._cursor is not None:
                batch: LogBatch | None = self._cursor.read(action.start, end)
            else:
                batch = self._from_parquet(stretch, action.start, end)
        except DamagedError:
            # A look at names that come and go may have missed some: believe it only if it is so again.
            if self._find(action.start) == stretch:
                raise
            self.close()
            return None
        if batch is not None:
            self._expected = batch.next
        return batch

    def _from_parquet(self, stretch: Stretch, start: int, end: int) -> LogBatch | None:
        if self._batches is None:
            path = self.source.facts.directory(self.source.partition) / str(stretch.name)
            whole = SegmentRange(str(path), self.source.facts.id, start, end)
            self._batches = segments.read_range(whole)
        try:
            batch = next(self._batches, None)
        except FileNotFoundError:
            batch = None
        if batch is None or batch.position != start:
            self._expected = -1
            return None
        return batch.cut(start, end)

    def _is_stale(self) -> bool:
        """Behind the last segment, or in a tail that was the newest one and is not any more."""
        here = self._stretch
        if here is None:
            return True
        if here.end is None:
            return self.source.tail_name != here.name
        return self._expected >= here.end

    def _open(self, position: int) -> None:
        self.close()
        stretch = self._find(position)
        if stretch is not None:
            facts = self.source.facts
            if stretch.name.is_tail:
                path = facts.directory(self.source.partition) / str(stretch.name)
                self._cursor = TailCursor(path, facts.id, stretch.name, position)
            self._stretch = stretch
            self._expected = position

    def _find(self, position: int) -> Stretch | None:
        for stretch in recovery.layout(self.source.facts, self.source.partition):
            if stretch.start <= position and (stretch.end is None or position < stretch.end):
                return stretch
        return None

    def _trimmed(self, found: Trimmed) -> TrimmedError:
        facts, partition = self.source.facts, self.source.partition
        why = place.read_low(facts, partition).because
        return TrimmedError(
            f"the rows from position {found.position} to {found.low} of partition {partition} of the log {facts.root}"
            f" were trimmed{f' ({why})' if why else ''}.",
            cure=f"Begin at {found.low}, and register a consumer before the next time: it holds what it needs.",
        )

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
        self._cursor, self._batches, self._stretch, self._expected = None, None, None, -1


class Reader:
    """Reads all partitions of a log in turn. Iterating ends at the live edge; `follow` does not end."""

    def __init__(
        self, partitions: Sequence[PartitionReader], wait_on: Callable[[], threading.Condition | None]
    ) -> None:
        """`wait_on`: what is notified of appends, if they are made in this process."""
        self._partitions = list(partitions)
        self._turn = 0
        self._wait_on = wait_on

    @property
    def position(self) -> dict[int, int]:
        """By partition: of the next row. Give it to another reader, and it goes on there."""
        return {each.source.partition: each.machine.position for each in self._partitions}

    @property
    def is_live(self) -> bool:
        """Whether all partitions are read from memory, or have nothing more to read."""
        return all(each.machine.is_live for each in self._partitions)

    def next(self, timeout_s: float = 0.0) -> LogBatch | None:
        """The next rows; waits for some, if there are none, for up to `timeout_s`. None: there are none."""
        deadline = clocks.monotonic() + timeout_s
        pause = POLL_S
        while True:
            for _ in self._partitions:
                reader = self._partitions[self._turn]
                self._turn = (self._turn + 1) % len(self._partitions)
                batch = reader.next()
                if batch is not None:
                    return batch
            left = deadline - clocks.monotonic()
            if left <= 0:
                return None
            self._pause(min(left, pause))
            pause = min(2 * pause, POLL_MAX_S)

    def _pause(self, seconds: float) -> None:
        condition = self._wait_on()
        if condition is None:
            clocks.sleep(seconds)
            return
        with condition:
            if not any(
                each.source.facts_for(each.committed).end > each.machine.position for each in self._partitions
            ):
                condition.wait(seconds)

    def __iter__(self) -> Iterator[LogBatch]:
        while (batch := self.next()) is not None:
            yield batch

    def follow(self, timeout_s: float = 0.1) -> Iterator[LogBatch | None]:
        """Never ends by itself. None whenever nothing came for `timeout_s`."""
        while True:
            yield self.next(timeout_s)

    def read_all(self) -> pa.Table:
        """All rows up to the live edge as one table, partition by partition."""
        batches = sorted(self, key=lambda batch: (batch.partition, batch.position))
        schema = self._partitions[0].source.facts.schema
        return pa.Table.from_batches([batch.rows for batch in batches], schema)

    def close(self) -> None:
        for each in self._partitions:
            each.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- from time to position ---


def position_of_time(facts: LogFacts, partition: int, now: Facts, time: int) -> int:
    """The first row that is not before `time`; the live edge if there is none."""
    found = [each for each in recovery.layout(facts, partition) if each.start < now.end]
    at = bisect.bisect_left(
        found, time, key=lambda each: segments.time_before(facts.directory(partition), facts.id, each.name)
    )
    for stretch in found[max(0, at - 1) :]:
        path = facts.directory(partition) / str(stretch.name)
        end = now.end if stretch.end is None else min(stretch.end, now.end)
        place_found = segments.position_of_time(SegmentRange(str(path), facts.id, stretch.start, end), time)
        if place_found is not None:
            return max(place_found, now.low)
    return now.end
