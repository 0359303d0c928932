"""`LogSource`: a partition of a log as a replayable source, from any place up to the live edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, InputError, NoSpaceError, StateError
from holdfast.ids import is_safe_name
from holdfast.language.connectors import POSITION_FIELDS, Lag, Slice, Source, Stamp, TaskReader
from holdfast.language.schema import to_arrow
from holdfast.log.log import From, Log
from holdfast.log.machines.partition_state import without
from holdfast.log.machines.reader_machine import Facts
from holdfast.sources.logs.positions import Positions, PositionsReader, look, schema_of
from holdfast.sources.schemas import spark_frame, spark_schema
from holdfast.sources.small.sizes import if_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_STEP = 200_000
DRIVER_ROWS = 5_000
"""Fewer are read by the driver itself: a job of Spark costs more than reading them."""


class LogSource(Source):
    """Rows of a log, in their order; only those that count for good, so that what a `LogSink` of another program writes is
    read exactly once.

    Example::

        clicks = topology.source(hf.LogSource("logs/clicks"), name="clicks").consistent("r")
        recent = hf.LogSource("logs/clicks", from_="now")

    `from_`: where the first run begins: "beginning", "now", a position, or a datetime; later runs go on where they were. A log
    with several partitions is read by one source for each (`partition=`), since there is no order between them. `schema`: needed
    if the log is not there yet. With `until="available"` the run ends with the rows that count when it begins.

    `consumer`: a name under which the source tells the log what it still needs: rows behind what the epochs and savepoints of its region
    may go back to (outside of regions: behind what was taken). The log then keeps those, and lets go what all its consumers have
    behind them, if it was not told to keep more (`keep=`). Without a name nothing is kept or let go because of this source.
    """

    def __init__(
        self,
        path: str | Path | Log | None,
        *,
        from_: From = "beginning",
        partition: int | None = None,
        rows_per_step: int = ROWS_PER_STEP,
        schema: pa.Schema | str | None = None,
        consumer: str | None = None,
    ) -> None:
        if consumer is not None and not is_safe_name(consumer):
            raise ConfigError(
                f"{consumer!r} cannot be the name of a consumer.",
                cure="Use letters, digits and _.- only, at most 100.",
            )
        if rows_per_step < 1:
            raise ConfigError(f"a step cannot hold {rows_per_step} rows.", cure="Give at least 1.")
        self._opened = path if isinstance(path, Log) or path is None else Log(path)
        self._consumer = consumer
        self._registered: int | None = None
        """What the consumer was last known to need."""
        self._from = from_
        self._wanted = partition
        self._rows = rows_per_step
        self._given = None if schema is None else to_arrow(schema, "the schema of the log")
        self._next: int | None = None
        """None: the log was not there yet."""
        self._end: int | None = None
        self._last: int | None = None
        """Where it ends for those who want no more than was there at a moment."""
        self._facts: Callable[[], Facts] | None = None

    @property
    def _log(self) -> Log:
        assert self._opened is not None, "nobody said where the log is"
        return self._opened

    # --- what it is ---

    def schema(self) -> pa.Schema:
        if self._log.exists or self._given is None:
            self._check_partition()
            found = schema_of(self._log.schema)
            if self._given is not None and found.names != self._given.names:
                raise ConfigError(
                    f"the log {self._log.path} has the columns {', '.join(found.names)}, not {', '.join(self._given.names)}.",
                    cure="Leave schema= out, or correct it.",
                )
            return found
        return schema_of(self._given)

    def use_schema(self, schema: pa.Schema) -> None:
        if self._log.exists and schema_of(self._log.schema).names != schema.names:
            raise InputError(
                f"the log {self._log.path} has other columns than before.", cure="Give the path of that log."
            )

    def _check_partition(self) -> None:
        if self._wanted is None and self._log.partitions > 1:
            raise ConfigError(
                f"the log {self._log.path} has {self._log.partitions} partitions, and there is no order between them.",
                cure="Read each by a source of its own (partition=0, …), and union the streams.",
            )

    @property
    def _partition(self) -> int:
        return self._wanted or 0

    def describe(self) -> str:
        partition = f", partition {self._wanted}" if self._wanted is not None else ""
        return f"the log {self._log.path}{partition}"

    @property
    def log_path(self) -> Path:
        return self._log.path

    @property
    def stands_at(self) -> tuple[int, int] | None:
        """Its partition and the next row that it takes, for people; None: it has not begun."""
        return None if self._next is None else (self._partition, self._next)

    # --- a run ---

    def cut_smaller(self, rows: int) -> None:
        self._rows = min(self._rows, rows)

    def extent(self) -> Any:
        return self._log.bounds(self._partition).end if self._log.exists else 0

    def keep_to(self, extent: Any) -> None:
        self._consumer = None  # what the log keeps is for its own readers to say
        self._last = int(extent)

    def bound(self) -> None:
        self._end = self.extent() if self._last is None else self._last

    def unbound(self) -> None:
        self._end = None

    def seek(self, state: Any | None) -> None:
        if state is None:
            self._next = self._first() if self._log.exists else None
            self._hold(self._next)
            return
        if not isinstance(state, dict) or not {"log", "partition", "next"} <= state.keys():
            raise StateError("the snapshot is not one of a log.", cure="Check the store.")
        self._next = state["next"]
        if state["log"] is None:
            return
        if state["partition"] != self._partition:
            raise InputError(
                f"partition {state['partition']} of the log {self._log.path} was read before, not {self._partition}.",
                cure="Name the source of another partition otherwise.",
            )
        if not self._log.exists or self._log.facts.id != state["log"]:
            raise InputError(
                f"{self._log.path} is not the log that was read before.",
                cure="Give the path of that log, or begin with another store.",
            )
        self._hold(self._next)

    def _hold(self, position: int | None) -> None:
        """Before the first row is read: what comes now stays until it is not needed any more."""
        if self._consumer is None or position is None or self._registered is not None:
            return
        known = {each.name: each for each in self._log.consumers()}.get(self._consumer)
        at = None if known is None else known.positions.get(self._partition)
        if at is None or at > position:
            self._log.consumer(self._consumer, {self._partition: position})
            at = position
        self._registered = at

    def kept(self, snapshots: Sequence[Any], epoch: int | None) -> None:
        found = [
            each["next"] for each in snapshots if isinstance(each, dict) and each.get("next") is not None
        ]
        if self._consumer is None or not found or not self._log.exists:
            return
        position = min(found)
        if self._registered is not None and position <= self._registered:
            return
        try:
            self._log.consumer(self._consumer, {self._partition: position}, epoch=epoch)
            self._registered = position
        except NoSpaceError:
            pass  # more is kept than needed, until the next time

    def _first(self) -> int:
        self._check_partition()
        from_ = {self._partition: self._from} if type(self._from) is int else self._from
        return self._log.reader(from_, partitions=[self._partition]).position[self._partition]

    def next_slice(self) -> Slice | None:
        if self._next is None:
            if not self._log.exists:
                return None
            self._next = 0 if self._from == "now" else self._first()  # all of it came after this run began
            self._hold(self._next)
        now = self._following()()
        most = now.end if self._end is None else min(now.end, self._end)
        start, end, rows = self._next, self._next, 0
        if start < min(now.low, most):
            look(self._log, self._partition, start, most)  # says what was let go
        while not rows and end < most:  # a slice is not made of withdrawn rows alone
            end = min(most, end + self._rows)
            rows = sum(behind - begin for begin, behind in without(start, end, now.withdrawn))
        if not rows:
            return None
        self._next = end
        return Slice(start, end, rows)

    def _following(self) -> Callable[[], Facts]:
        """How the log stands whenever it is asked."""
        if self._facts is None:
            self._facts = self._log.following(self._partition)
        return self._facts

    def snapshot(self) -> Any:
        there = self._next is not None
        return {
            "log": self._log.facts.id if there else None,
            "partition": self._partition,
            "next": self._next,
        }

    def lag(self) -> Lag:
        """Withdrawn rows count until they are passed."""
        if self._facts is None or self._next is None:
            return Lag()
        end = self._facts().end
        return Lag(rows=max(0, (end if self._end is None else min(end, self._end)) - self._next))

    def close(self) -> None:
        self._log.close()
        self.use_log(Log(self._log.path))

    def use_log(self, log: Log) -> None:
        """The same log, opened anew."""
        self._opened, self._facts = log, None

    # --- reading ---

    def _positions(self, piece: Slice) -> Positions:
        return look(self._log, self._partition, piece.start, piece.end)

    def _columns(self, stamp: Stamp | None) -> pa.Schema:
        return self.schema() if stamp is None else pa.schema([*self.schema(), *POSITION_FIELDS])

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        return PositionsReader(self._positions(piece), self.schema(), stamp)(self._columns(stamp).names)

    def task_reader(self, piece: Slice, stamp: Stamp | None) -> TaskReader | None:
        return PositionsReader(self._positions(piece), self.schema(), stamp)

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        return if_small(self.read_arrow(piece, stamp)) if (piece.rows or 0) <= DRIVER_ROWS else None

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        columns = self._columns(stamp)
        if (piece.rows or 0) <= DRIVER_ROWS:
            return spark_frame(session, self.read_arrow(piece, stamp))
        parts = self._positions(piece).cut(session.sparkContext.defaultParallelism)
        readers = tuple(PositionsReader(part, self.schema(), stamp) for part in parts)
        numbers = session.range(0, len(parts), 1, len(parts))
        return numbers.mapInArrow(ReadParts(readers, tuple(columns.names)), spark_schema(columns))


@dataclass(frozen=True)
class ReadParts:
    """Ships to tasks: reads the parts whose numbers it is given."""

    parts: tuple[PositionsReader, ...]
    columns: tuple[str, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for table in self.parts[number].tables(self.columns):
                    yield from table.to_batches()
