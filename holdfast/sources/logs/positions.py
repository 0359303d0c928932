"""Reading positions of a log in any process: what tasks of Spark ship."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Stamp
from holdfast.log.log import Log
from holdfast.log.place import LogFacts
from holdfast.log.query.choose import Chosen, Selection
from holdfast.log.query.wanted import Wanted
from holdfast.log.rows import LogBatch
from holdfast.log.segments import SegmentRange, read_range
from holdfast.sources.schemas import spark_type

PART_ROWS = 250_000
PART_BYTES = 32 << 20
"""A task reads about so many, of rows or of bytes in files, whichever is reached first."""
PATIENCE_S = 60.0
PAUSE_S = 0.002
TRIES = 5
"""Segments may be merged between looking and reading, but not again and again."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Rows [start, end) of a partition, and where they lay when somebody looked. Small, and travels."""

    root: str
    log: str
    partition: int
    start: int
    end: int
    ranges: tuple[SegmentRange, ...]

    def read(self, columns: list[str] | None = None) -> Iterator[LogBatch]:
        """All of them in order. InputError if they were let go meanwhile."""
        reached, ranges = self.start, self.ranges
        for _ in range(TRIES):
            try:
                for where in ranges:
                    for batch in read_range(where, columns):
                        yield batch
                        reached = batch.next
                return
            except FileNotFoundError:
                ranges = look(Log(self.root), self.partition, reached, self.end, self.log).ranges
        raise InputError(
            f"segments of the log {self.root} vanish whenever they are read.",
            cure="Look for something else that removes its files.",
        )

    def cut(self, parts: int) -> list[Positions]:
        """The same in about so many parts, in order. Parquet is cut between row groups: one that lies in two parts would be
        decoded in both."""
        size = max(1, -(-(self.end - self.start) // parts))
        wanted = range(self.start + size, self.end, size)
        places = {place for each in self.ranges for place in _places_near(each, wanted)}
        ends = sorted(place for place in places if self.start < place < self.end)
        return [self._part(*pair) for pair in pairwise([self.start, *ends, self.end])]

    def for_tasks(self) -> list[Positions]:
        """The same in parts that are worth a task."""
        rows = self.end - self.start
        held = sum(each.held_bytes for each in self.ranges)
        return self.cut(max(-(-rows // PART_ROWS), round(held / PART_BYTES))) if rows > 0 else []

    def _part(self, start: int, end: int) -> Positions:
        inside = [
            replace(each, start=max(start, each.start), end=min(end, each.end))
            for each in self.ranges
            if each.start < end and each.end > start
        ]
        return replace(self, start=start, end=end, ranges=tuple(inside))


def _places_near(where: SegmentRange, wanted: Sequence[int]) -> list[int]:
    """Of these positions the ones in the range; in Parquet, the beginnings of row groups, or the end, that are nearest to them."""
    inside = [at for at in wanted if where.start <= at < where.end]
    if not inside or where.name.is_tail:
        return inside
    places = [*where.group_starts(), where.end]
    return [min(places, key=lambda place: abs(place - at)) for at in inside]


def look(log: Log, partition: int, start: int, end: int, id: str | None = None) -> Positions:
    """Where rows lie now. InputError: they are gone, or the log is another one."""
    if id is not None and log.facts.id != id:
        raise InputError(
            f"{log.path} is not the log that was read before.",
            cure="Give the path of that log, or begin with another store.",
        )
    low = log.bounds(partition).low
    if start < low:
        raise InputError(
            f"rows {start} to {low - 1} of the log {log.path} were let go before they were read here.",
            cure="Let the log keep more, or register a consumer that holds them; to go on without them, begin with another store.",
        )
    # Between a writer and the next one less may be seen than before: what was not acknowledged counts when the next one has found it.
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ranges = log.ranges(start, end, partition=partition)
        if start >= end or (ranges and ranges[-1].end == end):
            return Positions(str(log.path), log.facts.id, partition, start, end, tuple(ranges))
        if time.monotonic() > deadline:
            raise InputError(
                f"the log {log.path} had rows up to {end} a while ago, and has not now.",
                cure="Look whether its files were changed; run again when somebody has opened it for writing.",
            )
        time.sleep(PAUSE_S)


def schema_of(log: pa.Schema) -> pa.Schema:
    """The columns as Spark has them."""
    return pa.schema([pa.field(field.name, spark_type(field.type), field.nullable) for field in log])


@dataclass(frozen=True)
class PositionsReader:
    """Reads positions as a table, with columns that say where each row is in the log if there is a stamp; of those, if
    somebody wants only some, the wanted rows."""

    positions: Positions
    schema: pa.Schema
    stamp: Stamp | None
    wanted: Wanted | None = None

    def __call__(self, columns: Sequence[str]) -> pa.Table:
        return pa.concat_tables([self._empty(columns), *self.tables(columns)])

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        wanted = [name for name in columns if name not in POSITION_COLUMNS]
        schema = pa.schema([self.schema.field(name) for name in wanted])
        for batch in self.positions.read(wanted):
            rows = batch.rows if self.wanted is None else self.wanted.of(batch)
            table = pa.Table.from_batches([rows]).select(wanted).cast(schema)
            if len(wanted) != len(columns):
                assert self.stamp is not None
                table = self.stamp.put_on(table, batch.position, self.positions.partition)
            yield table.select(list(columns))

    def _empty(self, columns: Sequence[str]) -> pa.Table:
        fields = pa.schema([*self.schema, *POSITION_FIELDS])
        return pa.schema([fields.field(name) for name in columns]).empty_table()


def readers_of(selection: Selection, chosen: Sequence[Chosen]) -> list[PositionsReader]:
    """What reads the wanted rows of chosen segments, in parts that are worth a task."""
    schema = schema_of(selection.facts.schema)
    return [
        PositionsReader(part, schema, None, selection.wanted)
        for each in chosen
        for run in each.runs
        for part in _positions(selection.facts, each, run)
    ]


def _positions(facts: LogFacts, chosen: Chosen, run: tuple[int, int]) -> list[Positions]:
    start, end = run
    where = SegmentRange(chosen.where.path, chosen.where.log, start, end, chosen.where.withdrawn)
    return Positions(facts.root, facts.id, chosen.partition, start, end, (where,)).for_tasks()
