"""`ReplaySource`: a stored stretch of a log as the input of a topology, at the speed at which it came, faster, or as fast as it goes.

How rows are cut into steps depends on the log alone, never on the clock: with a speed at every tick of the log's own time, without one
after so many rows. The clock only says when a step may begin. So two replays have the same steps, also if one of them was killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.errors import StateError
from holdfast.language.connectors import POSITION_FIELDS, Slice, Source, Stamp
from holdfast.log.machines.partition_state import without
from holdfast.log.rows import LogBatch
from holdfast.sources.logs.log_source import ROWS_PER_STEP, LogSource
from holdfast.sources.logs.positions import look
from holdfast.sources.logs.ticks import Ticks
from holdfast.sources.schemas import spark_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TICK_S = 0.1
"""With a speed: rows of so much time, by the clock, are a step."""


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """Rows [start, end) of a partition of a log."""

    path: str
    partition: int
    start: int
    end: int


class ReplaySource(LogSource):
    """Takes the place of another source. `speed`: 1.0 is the original one; None: as fast as it goes."""

    def __init__(
        self,
        stretch: ReplayRange,
        instead_of: Source,
        *,
        speed: float | None = None,
        rows_per_step: int = ROWS_PER_STEP,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            Path(stretch.path), from_=stretch.start, partition=stretch.partition, rows_per_step=rows_per_step
        )
        self.stretch = stretch
        self._end = stretch.end
        self._malformed = instead_of.malformed_schema()
        self._clock = clock or SystemClock()
        self._speed = speed
        self._ticks = Ticks(1)
        self._reading: Iterator[LogBatch] | None = None
        self._batch: LogBatch | None = None
        self._cut: tuple[Slice, int] | None = None
        """The next slice, and the tick at whose end it is due."""
        self._before = self._ticks.place
        """Before that slice was cut."""
        self._begun: float | None = None
        """When tick 0 was, by the clock of this run."""

    # --- what it is ---

    def bound(self) -> None:
        """Its end is known."""

    def unbound(self) -> None:
        """The same."""

    def describe(self) -> str:
        pace = "as fast as it goes" if self._speed is None else f"at {self._speed:g} times its speed"
        return f"rows {self.stretch.start} to {self.stretch.end} of {super().describe()}, {pace}"

    @property
    def position(self) -> int:
        """Of the next row."""
        return self.stretch.start if self._next is None else self._next

    @property
    def is_at_end(self) -> bool:
        """No row of the stretch is left."""
        withdrawn = self._log.bounds(self._partition).withdrawn
        return not without(self.position, self.stretch.end, withdrawn)

    @property
    def due_in_s(self) -> float:
        """How long until the next rows are due; 0: now."""
        cut = self._cut
        return 0.0 if cut is None else max(0.0, self._due(cut[1]) - self._clock.monotonic())

    def malformed_schema(self) -> pa.Schema | None:
        """Rows of a log can all be read."""
        return self._malformed

    def read_malformed_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        assert self._malformed is not None
        fields = self._malformed if stamp is None else pa.schema([*self._malformed, *POSITION_FIELDS])
        return fields.empty_table()

    def read_malformed_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        table = self.read_malformed_arrow(piece, stamp)
        return spark_frame(session, table)

    # --- a run ---

    def seek(self, state: Any | None) -> None:
        place = (
            None
            if state is None
            else {key: state[key] for key in ("log", "partition", "next") if key in state}
        )
        super().seek(place)
        if state is not None and "ticks" not in state:
            raise StateError("the snapshot is not one of a replay.", cure="Check the store.")
        length = 1 if self._speed is None else max(1, round(TICK_S * self._speed * 1_000_000))
        self._ticks = Ticks(length, *((None, None) if state is None else state["ticks"]))
        self._reading = self._batch = self._cut = self._begun = None

    def snapshot(self) -> Any:
        origin, greatest = self._before if self._cut is not None else self._ticks.place
        return {**super().snapshot(), "ticks": [origin, greatest]}

    def awaits_more(self) -> bool:
        return self._cut is not None

    def next_slice(self) -> Slice | None:
        if self._speed is None:
            return super().next_slice()
        if self._cut is None:
            self._before = self._ticks.place
            self._cut = self._next_cut()
            if self._cut is None:
                return None
        piece, tick = self._cut
        if self._clock.monotonic() < self._due(tick):
            return None
        self._cut, self._next = None, piece.end
        return piece

    def _due(self, tick: int) -> float:
        """When the tick is over."""
        if self._begun is None:
            self._begun = self._clock.monotonic() - tick * TICK_S
        return self._begun + (tick + 1) * TICK_S

    def _next_cut(self) -> tuple[Slice, int] | None:
        """Rows from here on that belong to one tick."""
        start, end, rows, tick = self.position, self.position, 0, None
        while rows < self._rows and (batch := self._at_hand()) is not None:
            cut = self._ticks.cut(batch.times.slice(0, self._rows - rows), tick)
            if cut.rows == 0:
                break
            tick, rows, end = cut.tick, rows + cut.rows, batch.position + cut.rows
            self._batch = batch.cut(end, batch.next) if end < batch.next else None
            if end < batch.next:
                break
        return None if tick is None else (Slice(start, end, rows), tick)

    def _at_hand(self) -> LogBatch | None:
        """Rows, with one of their columns, that were not cut yet."""
        if self._reading is None:
            wanted = look(self._log, self._partition, self.position, self.stretch.end)
            self._reading = wanted.read([_narrow(self._log.schema)])
        while self._batch is None or not self._batch.times:
            self._batch = next(self._reading, None)
            if self._batch is None:
                return None
        return self._batch


def _narrow(schema: pa.Schema) -> str:
    """The column that costs least to read."""
    sized = [field for field in schema if pa.types.is_primitive(field.type)]
    return str(min(sized, key=lambda field: field.type.bit_width).name if sized else schema.names[0])
