"""Both ends of a persisted stream: a sink and a source that share one open log.

The source is woken by appends and seals of the sink, and reads from the log's memory when it has caught up. Each is used by its own
element: they meet in `SharedLog` only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from holdfast.errors import ConfigError, HoldfastError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OperatorName
from holdfast.language.connectors import (
    POSITION_COLUMNS,
    POSITION_FIELDS,
    SinkContext,
    Slice,
    Stamp,
    StepId,
)
from holdfast.language.operators.persist import PersistSpec
from holdfast.log.log import Log
from holdfast.log.place import Origin
from holdfast.operators.python.hosted_clock import Clock
from holdfast.runtime.persisted.stream_notes import StreamNote
from holdfast.runtime.persisted.stream_time import StreamTime
from holdfast.sinks.log_sink import LogSink
from holdfast.sources.logs.log_source import ROWS_PER_STEP, LogSource
from holdfast.sources.logs.positions import schema_of

PROBE_S = 0.2
"""How often it is tried again to append when there was no space."""
BYTES_PER_STEP = 64 << 20
FEW = 1000
"""So many rows are read without a look at how large they are."""
NOWHERE = Path("logs")
"""Of logs in a store that nobody has named yet."""


class SharedLog:
    """The log of one persisted stream, in one run. Its two ends have a thread each."""

    def __init__(self, name: str, spec: PersistSpec, logs: Path | None) -> None:
        self.name = name
        self.spec = spec
        place = Path(spec.path) if spec.path is not None else None if logs is None else logs / name
        self.path = place
        """None: nobody has said where it is."""
        self.schema: pa.Schema | None = None
        self.wake: Callable[[], None] = lambda: None
        """Called when there may be more to read."""
        self.is_over: Callable[[], bool] = lambda: True
        """Whether nothing more comes in this run."""
        self.source: PersistedSource | None = None
        self.log: Log | None = None
        """As the sink has it open; None: not yet."""
        self.time = StreamTime()
        self.writer = ""
        """The name under which the sink writes."""

    @property
    def limits(self) -> dict[str, Any]:
        return {"keep": self.spec.keep_s, "keep_bytes": self.spec.keep_bytes}

    def described(self) -> str:
        return (
            f"the log {self.path}" if self.path is not None else f"the log {NOWHERE / self.name} in the store"
        )

    def use(self, log: Log) -> None:
        """The sink has opened it, perhaps anew: what was read from the one before is read on from this one."""
        self.log = log
        if self.source is not None:
            self.source.use_log(log)


class PersistSink(LogSink):
    """The end at which rows enter. Outside of regions it waits while the disk is full: rows are not lost for that."""

    wants_positions = True
    alone: ClassVar[str] = ""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(shared.path or NOWHERE / shared.name, **shared.limits)
        self._shared = shared
        self.leads_to = shared.name
        self._seats: Mapping[OperatorName, Any] | None = None
        """Where the sources are behind the rows of the step under way; None: nobody asks."""

    @property
    def shared(self) -> SharedLog:
        return self._shared

    def check_columns(self, schema: pa.Schema) -> None:
        self._schema = pa.schema([field for field in schema if field.name not in POSITION_COLUMNS])
        self._shared.schema = self._schema
        if self._shared.path is not None:
            super().check_columns(schema)

    def open(self, context: SinkContext) -> None:
        if self._shared.path is None:
            raise ConfigError(
                f"the stream {self._shared.name!r} is persisted, and this run has no directory for its log.",
                cure=f'Say where: .persist("{self._shared.name}", path="…"), or use a store that is a directory.',
            )
        self._shared.writer = context.sink
        super().open(context)

    def _at_path(self, **settings: Any) -> Log:
        opened = super()._at_path(**settings)
        self._shared.use(opened)
        return opened

    @property
    def _takes_over(self) -> bool:
        return self.is_staged or int(self._run.token) > 0

    @property
    def _origin(self) -> Origin:
        return Origin(self._run.topology, self._shared.name)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        ordered = in_order(table)
        self.note = self._noted(ordered)
        while True:
            try:
                written = super().write_arrow(ordered, step)
                break
            except NoSpaceError:
                if self.is_staged or self._run.must_end():
                    raise
                time.sleep(PROBE_S)
        if not self.is_staged:
            fp("persist.appended")
            self._tell_time()
        return written

    def append_noted(self, table: pa.Table, notes: Sequence[bytes]) -> int:
        position = super().append_noted(in_order(table), notes)
        self._shared.wake()
        return position

    def note_committed(self, epoch: Epoch) -> None:
        super().note_committed(epoch)
        self._shared.wake()

    # --- event time, if what is behind the log goes by more than its rows tell ---

    def use_clock(self, clock: Clock) -> None:
        """Before the first step, behind `open`."""
        self._shared.time.use(clock)
        if not self.is_staged:  # else `restore` follows
            self._look_up_time()

    def begin_step(self, times: Sequence[pa.Table], now_us: int) -> None:
        """What lies beside the rows of the step that begins."""
        self._shared.time.begin(times, now_us)

    def end_step(self, step: StepId) -> None:
        """Its rows were written, if it had any."""
        if self._shared.time.is_due:
            self.write_arrow(pa.schema([*self._columns, *POSITION_FIELDS]).empty_table(), step)

    @property
    def _columns(self) -> pa.Schema:
        assert self._schema is not None, "check_columns() comes first"
        return self._schema

    def time_passes(self, times: Sequence[pa.Table], now_us: int) -> None:
        """The rows of a step are in the log, with what tells their time: it may have gone on without any."""
        self.begin_step(times, now_us)
        self._shared.time.passed(pa.schema([*self._columns, *POSITION_FIELDS]).empty_table())
        self._tell_time()

    def _noted(self, ordered: pa.Table) -> bytes | None:
        """What the log is to have beside rows; None: nothing."""
        time = self._shared.time
        if not time.is_kept:
            return None if self._seats is None else StreamNote(self._seats).encode()
        rises = time.passed(ordered)
        if not ordered.num_rows and (self.is_staged or not (rises or self._seats)):
            return None
        return StreamNote(self._seats, rises, time.clock.stored()).encode()

    def _tell_time(self, watermark: int | None = None) -> None:
        """The other end learns how far time has come behind all that counts."""
        time = self._shared.time
        if time.is_kept and self._opened.exists:
            time.tell(self._opened.bounds().end, time.clock.watermark if watermark is None else watermark)
        self._shared.wake()

    def _look_up_time(self) -> None:
        there = self._opened.notes(self._run.sink) if self._opened.exists else ()
        newest = next((found for note in there if (found := StreamNote.of(note)) is not None), StreamNote())
        self._shared.time.restore(newest.clock)
        self._tell_time(newest.watermark)

    def seal(self, epoch: Epoch) -> Any:
        time = self._shared.time
        if time.is_kept:
            self.stage({"clock": time.clock.stored()})
        return super().seal(epoch)

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        told = next((each for each in sealed if isinstance(each, dict)), {})
        return {**super().make_durable(epoch, sealed), **told}

    def show(self, epoch: Epoch, prepared: Any) -> None:
        super().show(epoch, prepared)
        self._time_of(prepared)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        super().restore(epoch, prepared)
        if self.is_staged and self._shared.time.is_kept:
            self._shared.time.restore(None if prepared is None else prepared.get("clock"))
            self._time_of(prepared)

    def _time_of(self, prepared: Any | None) -> None:
        clock = None if prepared is None else prepared.get("clock")
        if clock is not None:
            self._tell_time(clock["watermark"])

    # --- where the sources are ---

    def note_sources(self, seats: Mapping[OperatorName, Any]) -> None:
        """With the rows of the next step the log has where the sources are behind them."""
        self._seats = dict(seats)

    def noted_sources(self, own: bool = False) -> dict[OperatorName, Any]:
        """Where the sources are behind the last rows. Empty: the log does not tell; rows may have come from a program that was another
        then. `own`: nobody else writes it from now on, a run that was replaced and does not know it least of all."""
        if self._shared.path is None or not self._opened.exists:
            return {}
        self._refuse_others()
        if own:
            self._opened.owner()
            if self._shared.time.is_kept:
                self._look_up_time()
        found = next(iter(self._opened.notes(self._run.sink)), None)
        is_last = found is not None and found.sequence == self._opened.last_sequence(self._run.sink)
        note = StreamNote.of(found) if found is not None and is_last else None
        return dict(note.sources or {}) if note is not None else {}

    def durable_sources(self, seats: dict[OperatorName, Any]) -> dict[OperatorName, Any]:
        """Positions of the sources before which nothing is read again, given those behind all rows that were written."""
        return seats

    def describe(self) -> str:
        return self._shared.described()


def in_order(table: pa.Table) -> pa.Table:
    """Rows in the order of their positions, where they have some: the log keeps the order in which it is written."""
    known = [name for name in POSITION_COLUMNS if name in table.column_names]
    return table.sort_by([(name, "ascending") for name in known]) if known and table.num_rows > 1 else table


class PersistedSource(LogSource):
    """The end at which rows leave. A bounded run ends with the last row that the other end writes."""

    def __init__(self, shared: SharedLog) -> None:
        super().__init__(None if shared.path is None else Log(shared.path), consumer=shared.name)
        self._shared = shared
        self._told: int | None = None
        """The watermark that was told last without a row."""
        shared.source = self

    def schema(self) -> pa.Schema:
        assert self._shared.schema is not None, "the sink is looked at first"
        return schema_of(self._shared.schema)

    def open(self, wake: Callable[[], None]) -> None:
        self._shared.wake = wake

    def next_slice(self) -> Slice | None:
        """After an outage there may be much: a step takes no more than fits into memory."""
        if self._next is not None and self._log.exists:
            now = self._following()()
            if now.end - self._next > FEW:
                directory = self._log.facts.directory(self._partition)
                stored = sum(entry.stat().st_size for entry in os.scandir(directory))
                per_row = max(1.0, stored / max(1, now.end - now.low))
                self._rows = max(1, min(ROWS_PER_STEP, round(BYTES_PER_STEP / per_row)))
        reached = self._shared.time.reached  # before rows: what counts later has its time beside it
        return super().next_slice() or (None if reached is None else self._without_rows(*reached))

    def _without_rows(self, position: int, watermark: int) -> Slice | None:
        """All rows that count were read, and behind them time has gone on."""
        if self._next is None or (self._told is not None and watermark <= self._told):
            return None
        self._told = watermark
        return Slice(self._next, self._next, rows=0, bytes=0, detail=[position, watermark])

    def seek(self, state: Any | None) -> None:
        super().seek(state)
        self._told = None

    def times_beside(self, piece: Slice) -> Sequence[tuple[int, int, int]]:
        if piece.detail is not None:
            return [(self._partition, *piece.detail)]
        found = []
        for each in self._log.notes_between(self._shared.writer, piece.start, piece.end):
            note = StreamNote.of(each)
            found += [(each.position + row, time) for row, time in (() if note is None else note.rises)]
        # What was told behind the last row belongs to rows that may not be there yet: it is told now, and again with them.
        return [(self._partition, at, time) for at, time in found if at <= piece.end]

    def bound(self) -> None:
        """What the other end still writes belongs to the run."""

    def awaits_more(self) -> bool:
        return not self._shared.is_over()

    def close(self) -> None:
        """The sink lets go of the log."""

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        """From memory if all of it is there, else as others read."""
        columns, tables = self.schema(), []
        with contextlib.suppress(HoldfastError):
            reader = self._log.reader({self._partition: piece.start}, partitions=[self._partition])
            with reader:
                while reader.position[self._partition] < piece.end and (batch := reader.next()) is not None:
                    cut = batch.cut(piece.start, piece.end)
                    table = pa.Table.from_batches([cut.rows]).cast(columns)
                    tables.append(
                        table if stamp is None else stamp.put_on(table, cut.position, self._partition)
                    )
            made = pa.concat_tables([self._columns(stamp).empty_table(), *tables])
            if made.num_rows == piece.rows:
                return made
        return super().read_arrow(piece, stamp)

    def describe(self) -> str:
        return self._shared.described()
