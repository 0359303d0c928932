"""One partition as its owner writes it: appends of many threads become groups, and a group costs one fsync.

A thread takes what is queued, writes it with one call, makes it durable, looks whether a newer owner has come, and only then
acknowledges, in order. Rows are shown to readers of this process from memory, after that. Decisions are made by the pure
`WriterMachine`; this is its rim.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from holdfast import durable
from holdfast.clock import Clock
from holdfast.errors import ConfigError, HoldfastError, NoSpaceError, StoreError
from holdfast.failpoints import fp
from holdfast.log import place, recovery, refusals, segments
from holdfast.log.format import frame as frames
from holdfast.log.format.body import Body, body_of, control
from holdfast.log.format.frame import NO_EPOCH, NO_TIME, Frame, Kind
from holdfast.log.format.index import Index
from holdfast.log.format.names import SegmentName
from holdfast.log.format.note import Note
from holdfast.log.format.tail import Placed, TailHeader
from holdfast.log.machines.partition_state import PartitionState
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.machines.writer_machine import (
    CONTROL,
    Behind,
    Entry,
    Phase,
    Refused,
    Stored,
    UnderWay,
    WriterMachine,
)
from holdfast.log.notes import in_segment
from holdfast.log.pending import Appended, Pending
from holdfast.log.place import LogFacts
from holdfast.log.recent import Recent
from holdfast.log.rows import LogBatch, required_columns, times_of
from holdfast.log.tail_file import TailFile
from holdfast.store.files.lease import Lease

GROUP_BYTES = 16 << 20
SEGMENT_BYTES = 64 << 20
MEMORY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a log is told about its files and its memory."""

    segment_bytes: int = SEGMENT_BYTES
    segment_s: float = 600.0
    memory_bytes: int = MEMORY_BYTES
    """What is kept of each partition for readers that have caught up."""


class Appender:
    """Safe for several threads. `changed` is shared by the partitions of a log: whoever waits for one, waits for all."""

    is_quick = True

    def __init__(
        self,
        facts: LogFacts,
        partition: int,
        lease: Lease,
        clock: Clock,
        sizes: Sizes,
        lock: threading.RLock,
        changed: threading.Condition,
    ) -> None:
        self.facts = facts
        self.partition = partition
        self._lease = lease
        self._clock = clock
        self._sizes = sizes
        self._changed = changed
        self.state, self._tail, self.low = recovery.take_up(facts, partition, lease)
        self._notes = self._tail.header.notes.copied()
        self._format = facts.format
        self._index = _index_of(self._tail.header)
        self._rows_end = self._tail.header.bytes
        """The offset behind the last frame with rows: notes behind it go along into the next tail."""
        self._rolled_at = clock.monotonic()
        self.required = required_columns(facts.schema)
        self._machine = WriterMachine(self.state)
        self._bodies: dict[int, Body] = {}
        self._waiting: dict[int, Pending] = {}
        self._recent = Recent(self.state.next, sizes.memory_bytes)
        self._io = threading.Lock()
        """Held by whoever writes: the thread of this object, or one that waits for what it appended. Taken before `changed`."""
        self._work = threading.Condition(lock)
        self._failure: HoldfastError | None = None
        self._closing = False
        self.groups = 0
        self._thread = threading.Thread(target=self._run, name=f"holdfast-log-{partition}", daemon=True)
        self._thread.start()

    # --- appending ---
    def append(
        self, writer: str, sequence: int | None, rows: pa.RecordBatch | None, bounds: tuple[int, int], epoch: int, window: int,
        timeout_s: float | None = None, inline: bool = False, note: bytes | None = None,
    ) -> Pending:  # fmt: skip
        """Queue rows, a note, or both; waits while the writer's window is full. `inline`: the caller will `help`."""
        kind, body = body_of(rows, note, bounds, round(self._clock.wall() * 1e6))
        count = 0 if rows is None else rows.num_rows
        if kind is Kind.NOTE and self._format < place.FORMAT:
            place.raise_format(self.facts, self._lease)
            self._format = place.FORMAT
        with self._changed:
            deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
            while self._machine.outstanding(writer) >= window and self._failure is None and not self._closing:
                self._wait(deadline)
            return self._submit(kind, writer, sequence, count, body, epoch, window, inline)

    def _wait(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - self._clock.monotonic()
        if left is not None and left <= 0:
            raise StoreError(
                "the window of the writer stayed full.", cure="Wait longer, or make the window larger."
            )
        self._changed.wait(left)

    def control(self, kind: Kind, epoch: int) -> Pending:
        """Queue a frame without rows."""
        with self._changed:
            return self._submit(kind, CONTROL, None, 0, control(round(self._clock.wall() * 1e6)), epoch)

    def _submit(
        self, kind: Kind, writer: str, sequence: int | None, rows: int, body: Body, epoch: int,
        window: int = 2, inline: bool = False,
    ) -> Pending:  # fmt: skip
        self._refuse_if_over()
        share = max(1, window // 4)  # the rest is made ready while this is written
        answer = self._machine.submit(kind, writer, sequence, rows, body.size, epoch, share)
        match answer:
            case Entry():
                self._bodies[answer.ticket] = body
                pending = self._waiting[answer.ticket] = Pending(
                    self._changed, self.partition, told=partial(self._machine.told, writer)
                )
                if not inline:
                    self._work.notify()
                return pending
            case UnderWay():
                return self._waiting[answer.ticket]
            case Stored():
                position = None if answer.end is None else answer.end - rows
                done = Appended(self.partition, position, rows, sequence or 0, is_new=False)
                return Pending(self._changed, self.partition, done)
            case Behind():
                self._machine.told(writer)
                raise refusals.no_space(self.facts.root)
            case Refused():
                raise ConfigError(f"the append was refused: {answer.reason}.", cure="Append epochs in order.")

    def last_sequence(self, writer: str) -> int:
        with self._changed:
            return self._machine.last_sequence(writer)

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise StoreError("the log is closed.", cure="Open it again to append.")

    # --- the thread that writes ---
    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._machine.queued:
                    if self._failure is not None or self._closing:
                        return
                    self._work.wait()
            self._step()

    def _step(self) -> None:
        """Write what is queued, unless somebody else was faster."""
        with self._io:
            with self._changed:
                group = self._machine.take(GROUP_BYTES)
            if group:
                try:
                    self._write(group)
                except BaseException as error:
                    self._fail(error)
                    if not isinstance(error, Exception):
                        raise  # an interrupt, in the thread of somebody who waits

    def help(self, pending: Pending) -> None:
        """Write in the thread that waits for it: nobody has to wake up first."""
        while not pending.is_done:
            self._step()

    def _write(self, group: Sequence[Entry]) -> None:
        made = self._frames(group)
        tail = self._tail
        buffers: list[Any] = []
        for _, frame, body in made:
            buffers.append(frames.pack(frame) + body.head)
            buffers.append(memoryview(body.rows))
        fp("log.write")
        tail.write(buffers)
        fp("log.written")
        try:
            tail.sync()
        except OSError as error:
            raise refusals.NotSynced from error
        fp("log.synced")
        self._check_owner()
        with self._changed:
            self._acknowledge(made)
        fp("log.acknowledged")
        if tail.end >= self._sizes.segment_bytes or self._is_old():
            self._roll()

    def _frames(self, group: Sequence[Entry]) -> list[tuple[Entry, Frame, Body]]:
        made = []
        run_max, token, log = self.state.t_run_max, int(self._lease.token), self.facts.id_bytes
        for entry in group:
            body = self._bodies[entry.ticket]
            run_max = max(run_max, body.t_max)
            frame = Frame(
                entry.kind, log, self.partition, entry.position, entry.rows, token, entry.writer, entry.sequence,
                self._tail.end, entry.epoch, body.t_min, body.t_max, run_max, body.wall, body.size, body.crc,
            )  # fmt: skip
            made.append((entry, frame, body))
        return made

    def _acknowledge(self, made: Sequence[tuple[Entry, Frame, Body]]) -> None:
        for _, frame, body in made:
            self.state.apply(frame)
            self._index.add(Placed(self._tail.end, frame))
            self._tail.end += frame.bytes
            if frame.rows or body.head:
                self._recent.add(frame, body)
            if frame.rows:
                self._rows_end = self._tail.end
            self._notes.apply(frame, memoryview(body.head))
        self._tail.confirm(self.state.next, self.state.committed)
        self.groups += 1
        for entry in self._machine.done():
            del self._bodies[entry.ticket]
            done = Appended(self.partition, entry.position, entry.rows, entry.sequence)
            self._waiting.pop(entry.ticket).settle(done)
        self._changed.notify_all()

    def _check_owner(self) -> None:
        """What was written before a newer owner came is found by it; what comes later is not acknowledged."""
        if not os.path.isdir(self._lease.private):
            raise refusals.fenced(self.facts.root)

    def _is_old(self) -> bool:
        return self._clock.monotonic() - self._rolled_at >= self._sizes.segment_s

    def _roll(self) -> None:
        """Begin a new tail; the old one is a segment now and gets its index."""
        old = self._tail
        name = SegmentName(self.state.next, int(self._lease.token))
        if name.first == old.header.name.first:
            return  # no row came since
        with self._changed:
            self.state.forget_below(self.low)
            header = replace(old.header, name=name, state=_copied(self.state), notes=self._notes.copied())
        edge = in_segment.behind_rows(old.path, self.facts, header, self._rows_end, old.end)
        made = TailFile.make(self.facts.directory(self.partition), header, self._lease, edge)
        self._rows_end = made.header.bytes
        index, self._index = self._index, _index_of(made.header)
        made.confirm(self.state.next, self.state.committed)
        with self._changed:
            self._tail = made
        self._rolled_at = self._clock.monotonic()
        old.close()
        old.forget_live()
        try:
            segments.store_index(old.path, self.facts.id, old.header.name, index)
            fp("log.index.written")
        except OSError:
            pass  # it is made again when somebody needs it

    def _fail(self, error: BaseException) -> None:
        """None of what is queued or in flight becomes durable: what was written of it is cut off."""
        no_space = isinstance(error, NoSpaceError) or (
            isinstance(error, OSError) and error.errno in durable.NO_SPACE
        )
        told: HoldfastError
        root = self.facts.root
        try:
            is_owner = self._tail.cut(self._lease.private)
        except OSError:
            is_owner, no_space = True, False
        if not is_owner:
            told, phase = refusals.fenced(root), Phase.FENCED
        else:
            told, phase = (
                (refusals.no_space(root), Phase.OPEN)
                if no_space
                else (refusals.broken(root, error), Phase.BROKEN)
            )
        with self._changed:
            if phase is not Phase.OPEN:
                self._failure = told
            for entry in self._machine.failed(phase):
                del self._bodies[entry.ticket]
                self._waiting.pop(entry.ticket).fail(told)
            self._work.notify()
            self._changed.notify_all()

    # --- for readers of this process ---
    def facts_for(self, committed: bool) -> Facts:
        with self._changed:
            end = self.state.committed if committed else self.state.next
            memory = min(max(self._recent.first, self.low), end)
            return Facts(self.low, end, memory, tuple(self.state.withdrawn))

    def from_memory(self, start: int, end: int) -> LogBatch | None:
        """Rows that begin at `start`. None: they have left memory."""
        with self._changed:
            found = self._recent.find(start)
        if found is None:
            return None
        frame, payload = found
        rows = pa.ipc.read_record_batch(payload, self.facts.schema)
        times = times_of(rows, self.facts.time, frame.t_max)
        return LogBatch(self.partition, frame.position, rows, times).cut(start, end)

    def notes_in_memory(self, writer: str, start: int, end: int) -> list[Note] | None:
        """See `Recent.notes`."""
        with self._changed:
            return self._recent.notes(writer, start, end)

    @property
    def tail_name(self) -> SegmentName:
        with self._changed:
            return self._tail.header.name

    @property
    def tail_bytes(self) -> int:
        with self._changed:
            return self._tail.end

    @property
    def edge(self) -> tuple[SegmentName, int]:
        """The newest tail, and the offset up to which it counts."""
        with self._changed:
            return self._tail.header.name, self._tail.end

    @property
    def failure(self) -> HoldfastError | None:
        return self._failure

    def rebuild_index(self) -> int:
        """Of the tails that are closed; how many were made."""
        return segments.rebuild_indexes(self.facts.directory(self.partition), self.facts.id, self.tail_name)

    def raise_low(self, low: int) -> None:
        with self._changed:
            self.low = max(self.low, low)

    # --- the end ---
    def close(self) -> None:
        """Write what is queued, then say that nothing is missing. What cannot be written any more stays as after a crash."""
        with self._changed:
            if not self._closing and self._failure is None:
                try:
                    self._submit(Kind.END, CONTROL, None, 0, control(NO_TIME), NO_EPOCH)
                except HoldfastError:
                    pass
            self._closing = True
            self._work.notify()
            self._changed.notify_all()
        self._thread.join()
        self._tail.close()


def _copied(state: PartitionState) -> PartitionState:
    return PartitionState.restored(state.snapshot())


def _index_of(header: TailHeader) -> Index:
    return Index.beginning(header.name.first, header.bytes, header.state.t_run_max)
