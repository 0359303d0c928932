"""`Log`: what users hold. Opens a log for reading and, with the first append, for writing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.durations import Duration
from holdfast.durations import seconds as seconds_of
from holdfast.errors import ConfigError, HoldfastError, MismatchError, StoreError
from holdfast.log import consumers, place, recovery
from holdfast.log.appender import MEMORY_BYTES, SEGMENT_BYTES, Appender, Sizes
from holdfast.log.consumers import Registered
from holdfast.log.disk_view import DiskView
from holdfast.log.format.frame import NO_EPOCH, Kind
from holdfast.log.format.note import Note
from holdfast.log.machines.partition_state import PartitionState
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.machines.retention import Decision, Keep
from holdfast.log.notes.between import between
from holdfast.log.notes.newest_first import newest_first
from holdfast.log.owner import Owner
from holdfast.log.pending import Appended, Pending
from holdfast.log.place import LogFacts, Origin
from holdfast.log.query.verbs import LogQueries
from holdfast.log.reader import PartitionReader, Reader, Source, position_of_time
from holdfast.log.rows import Rows, microseconds, plain_schema
from holdfast.log.segments import SegmentRange
from holdfast.log.upkeep import MERGED_BYTES, Merged
from holdfast.log.writer import LogWriter

From = str | int | Mapping[int, int] | datetime
"""Where a reader begins: "beginning", "now", a position (by partition, if there are several), or a time."""

DEFAULT_WRITER = "append"
WINDOW = 64


class Log(LogQueries):
    """A durable, ordered, replayable stream of rows in a directory.

    Any number of objects and processes may read. The first append makes this object the writer; while it lives, others are
    refused (or, with `take_over`, fence it). Safe for several threads. The settings of a new log (`schema`, `time`,
    `partitions`, `origin`) are stored; given for an existing one, they must match.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        schema: pa.Schema | None = None,
        time: str | None = None,
        partitions: int | None = None,
        origin: Origin | None = None,
        keep: Duration | None = None,
        keep_bytes: int | None = None,
        keep_bytes_max: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_age: Duration = 600,
        memory_bytes: int = MEMORY_BYTES,
        upkeep_every: Duration | None = 30,
        take_over: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """`time`: the column that says when a row happened (default: when it was appended). `keep`, `keep_bytes`: let older
        rows go, but for those that consumers need; `keep_bytes_max`: even those. `upkeep_every`: how often small segments
        are merged and old ones let go while this object writes; None: only when asked."""
        if "://" in str(path):
            raise ConfigError(
                f"a log cannot be kept at {path}: what is appended to must be a file in a directory.",
                cure="Keep the log in a directory, and copy its Parquet segments to the object store.",
            )
        self.path = Path(path).absolute()
        self._wanted = (schema, time, partitions, origin)
        self._keep = Keep(None if keep is None else seconds_of(keep, "keep"), keep_bytes, keep_bytes_max)
        self._sizes = Sizes(segment_bytes, seconds_of(segment_age, "segment_age"), memory_bytes)
        self._upkeep_s = None if upkeep_every is None else seconds_of(upkeep_every, "upkeep_every")
        self._take_over = take_over
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._owner: Owner | None = None
        self._closed = False
        self._facts = place.load(self.path)
        if self._facts is not None:
            self._compare(self._facts)
        elif schema is not None:
            self._create(schema)

    # --- what it is ---
    @property
    def facts(self) -> LogFacts:
        """What never changes about it. StoreError: there is no log yet."""
        if not self.exists or self._facts is None:
            raise StoreError(
                f"there is no log at {self.path}.", cure="Check the path; a log is made by its first append."
            )
        return self._facts

    @property
    def exists(self) -> bool:
        """Whether there is a log at its path."""
        if self._facts is None:
            self._facts = place.load(self.path)
        return self._facts is not None

    @property
    def schema(self) -> pa.Schema:
        return self.facts.schema

    @property
    def partitions(self) -> int:
        return self.facts.partitions

    def _create(self, schema: pa.Schema) -> LogFacts:
        _, time, partitions, origin = self._wanted
        made = place.create(self.path, plain_schema(schema, time), time, partitions or 1, origin or Origin())
        self._facts = made
        self._compare(made)
        return made

    def _compare(self, facts: LogFacts) -> None:
        schema, time, partitions, origin = self._wanted
        if schema is not None:
            _compare_schemas(facts, plain_schema(schema, time or facts.time))
        for what, wanted, there in (
            ("time", time, facts.time),
            ("partitions", partitions, facts.partitions),
            ("origin", origin, facts.origin),
        ):
            if wanted is not None and wanted != there:
                raise MismatchError(
                    f"the log {self.path} was made with {what}={there!r}, not {wanted!r}.",
                    cure="Open it without this setting, or begin another log.",
                )

    # --- writing ---
    def owner(self, schema: pa.Schema | None = None) -> Owner:
        """Become the writer. OwnedError: somebody else is."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the log {self.path} is closed.", cure="Open it again.")
            if self._owner is not None and self._owner.pid != os.getpid():
                raise StoreError(
                    f"the log {self.path} was opened for writing by process {self._owner.pid}, of which this one is a fork.",
                    cure="Open it in the process that writes.",
                )
            if self._owner is None:
                if self._facts is None:
                    self._facts = place.load(self.path) or (None if schema is None else self._create(schema))
                self._owner = Owner(
                    self.facts, self._clock, self._sizes, self._keep, self._upkeep_s, self._take_over
                )
            return self._owner

    def writer(self, name: str = DEFAULT_WRITER, *, window: int = WINDOW, partition: int = 0) -> LogWriter:
        """Appends under a name, with up to `window` appends on their way. Sequences go on where the name left off."""
        return LogWriter(self, name, window, partition, self._clock)

    def append(
        self, rows: Rows, *, time: datetime | float | None = None, partition: int = 0, epoch: int = NO_EPOCH
    ) -> Appended:
        """Append rows and wait until they are durable."""
        return self.writer(partition=partition).append(rows, time=time, epoch=epoch, wait=True).result()

    def seal_epoch(self, epoch: int) -> None:
        """All rows of this epoch, and of those before, count from now on. Durable when it returns; again is harmless."""
        behind = [each for each in self.owner().appenders if each.state.sealed < epoch]
        _all_done([each.control(Kind.SEAL, epoch) for each in behind])

    def withdraw_after(self, epoch: int) -> None:
        """Rows of epochs above this one that are not sealed never count: whoever wrote them begins again behind it."""
        behind = [each for each in self.owner().appenders if any(at > epoch for at, _ in each.state.pending)]
        _all_done([each.control(Kind.WITHDRAW, epoch) for each in behind])

    @property
    def sealed_epoch(self) -> int:
        """The newest epoch that is sealed in all partitions; -1: none."""
        return min(self._state(partition).sealed for partition in range(self.partitions))

    # --- reading ---
    def reader(
        self, from_: From = "beginning", *, committed: bool = True, partitions: list[int] | None = None
    ) -> Reader:
        """Rows from a place on. `committed`: only those that count for good, else also those of epochs under way."""
        chosen = list(range(self.partitions)) if partitions is None else partitions
        readers = []
        for partition in chosen:
            source_of = self._source_of(partition)
            start = self._start(source_of(), from_, committed)
            readers.append(PartitionReader(source_of, start, committed))
        return Reader(readers, lambda: None if self._owner is None else self._owner.changed)

    def _source_of(self, partition: int) -> Callable[[], Source]:
        """Who knows how a partition stands: this object if it writes the log, else what lies on disk."""
        if not 0 <= partition < self.partitions:
            raise ConfigError(f"the log {self.path} has no partition {partition}.")
        view = DiskView(self.facts, partition)

        def source() -> Source:
            owner = self._owner
            if owner is not None and owner.appenders[partition].failure is None:
                return owner.appenders[partition]
            return view

        return source

    def _source(self, partition: int) -> Source:
        return self._source_of(partition)()

    def _start(self, source: Source, from_: From, committed: bool) -> int:
        now = source.facts_for(committed)
        match from_:
            case "beginning":
                return now.low
            case "now":
                return now.end
            case datetime():
                return position_of_time(self.facts, source.partition, now, microseconds(from_))
        if isinstance(from_, bool) or not isinstance(from_, int | Mapping):
            raise ConfigError(
                f"a reader cannot begin at {from_!r}.",
                cure='Use "beginning", "now", a position, or a datetime.',
            )
        positions = consumers.whole(self.facts, from_)
        at = positions.get(source.partition, now.low)
        end = source.facts_for(committed=False).end
        if not 0 <= at <= end:
            raise ConfigError(
                f"position {at} of partition {source.partition} is not in the log {self.path}, which has rows up to {end}."
            )
        return at

    def ranges(
        self, start: int, end: int, *, partition: int = 0, committed: bool = True
    ) -> list[SegmentRange]:
        """What to read for these positions, as values that travel: see `read_range`. Only rows that are there now."""
        now = self._source(partition).facts_for(committed)
        found = []
        for each in recovery.layout(self.facts, partition):
            begin, behind = (
                max(start, each.start, now.low),
                min(end, now.end, now.end if each.end is None else each.end),
            )
            if begin < behind:
                path = self.facts.directory(partition) / str(each.name)
                found.append(SegmentRange(str(path), self.facts.id, begin, behind, now.withdrawn))
        return found

    def notes(
        self, writer: str, *, backwards: bool = True, partition: int = 0, committed: bool = True
    ) -> Iterator[Note]:
        """What a writer noted, from the newest to the oldest, read as it is asked for. Notes before what was trimmed are gone,
        but for the newest one. Not `backwards`: the oldest first, after all have been read."""
        found = newest_first(self._source_of(partition), writer, committed)
        return found if backwards else iter(list(found)[::-1])

    def notes_between(
        self, writer: str, start: int, end: int, *, partition: int = 0, committed: bool = True
    ) -> list[Note]:
        """In order what a writer noted together with rows of [start, end), or alone at a place from `start` to `end`."""
        return between(self._source_of(partition), writer, start, end, committed)

    def bounds(self, partition: int = 0, *, committed: bool = True) -> Facts:
        """How a partition stands now."""
        return self._source(partition).facts_for(committed)

    def following(self, partition: int = 0, *, committed: bool = True) -> Callable[[], Facts]:
        """How a partition stands whenever it is asked, by one thread at a time; cheaper than `bounds` again and again."""
        source_of = self._source_of(partition)
        return lambda: source_of().facts_for(committed)

    def _state(self, partition: int) -> PartitionState:
        source = self._source(partition)
        source.facts_for(committed=False)
        assert isinstance(source, Appender | DiskView)
        return source.state

    def last_sequence(self, writer: str, partition: int = 0) -> int:
        """The last sequence that is durable of a writer, without becoming one; 0: none."""
        return self._state(partition).writers.get(writer, (0, 0))[0]

    # --- who needs what ---
    def consumer(
        self,
        name: str,
        at: Mapping[int, int] | int,
        *,
        epoch: int | None = None,
        expires: Duration | None = None,
    ) -> Registered:
        """Register a consumer, or move it on: rows from these positions on are kept for it."""
        positions = consumers.whole(self.facts, at)
        made = Registered(
            name,
            positions,
            epoch,
            None if expires is None else seconds_of(expires, "expires"),
            self._clock.wall(),
        )
        consumers.write(self.facts, made)
        return made

    def consumers(self) -> list[Registered]:
        return consumers.read(self.facts)

    def forget_consumer(self, name: str) -> None:
        consumers.remove(self.facts, name)

    def pin(self, name: str, at: Mapping[int, int] | int) -> None:
        """Rows from these positions on stay until the pin is removed, whatever limits say."""
        made = Registered(name, consumers.whole(self.facts, at), updated=self._clock.wall())
        consumers.write(self.facts, made, pins=True)

    def pins(self) -> list[Registered]:
        return consumers.read(self.facts, pins=True)

    def unpin(self, name: str) -> None:
        consumers.remove(self.facts, name, pins=True)

    def rebuild_index(self) -> int:
        """Make the indexes of closed tails that lack one, or whose is not theirs; how many. Reads are quicker with them."""
        return sum(each.rebuild_index() for each in self.owner().appenders)

    def compact(self, target_bytes: int = MERGED_BYTES) -> Merged:
        """Merge closed segments into large Parquet ones. Becomes the writer if nobody is."""
        return self.owner().compact(target_bytes)

    def retain(self) -> list[Decision]:
        """Let go what the limits and the consumers allow, by partition."""
        return self.owner().retain()

    def trim(self, before: Mapping[int, int] | int | datetime, *, force: bool = False) -> dict[int, int]:
        """Let go all rows before positions, or before a time. Consumers that need them hold them, unless `force`."""
        owner = self.owner()
        if isinstance(before, datetime):
            positions = {
                each.partition: position_of_time(
                    self.facts, each.partition, each.facts_for(True), microseconds(before)
                )
                for each in owner.appenders
            }
        else:
            positions = consumers.whole(self.facts, before)
        return owner.trim(positions, "trimmed by hand", force)

    # --- the end ---
    def close(self) -> None:
        with self._lock:
            self._closed = True
            owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _all_done(pending: list[Pending]) -> None:
    """Wait for all; then raise what the first one that failed says."""
    failed: HoldfastError | None = None
    for each in pending:
        try:
            each.result()
        except HoldfastError as error:
            failed = failed or error
    if failed is not None:
        raise failed


def _compare_schemas(facts: LogFacts, wanted: pa.Schema) -> None:
    there = facts.schema
    for field in there:
        if field.name not in wanted.names:
            raise _other(facts, f"has a column {field.name!r}, and the given schema does not")
        if not wanted.field(field.name).type.equals(field.type):
            raise _other(
                facts, f"has column {field.name!r} as {field.type}, not {wanted.field(field.name).type}"
            )
    extra = next((name for name in wanted.names if name not in there.names), None)
    if extra is not None:
        raise _other(facts, f"has no column {extra!r}, and the given schema does")


def _other(facts: LogFacts, what: str) -> MismatchError:
    return MismatchError(f"the log {facts.root} {what}.", cure="Use the log's schema, or begin another log.")
