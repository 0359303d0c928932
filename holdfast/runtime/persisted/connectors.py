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
from holdfast.language.connectors import POSITION_COLUMNS, SinkContext, Slice, Stamp, StepId
from holdfast.language.operators.persist import PersistSpec
from holdfast.log.log import Log
from holdfast.log.place import Origin
from holdfast.sinks.log_sink import LogSink
from holdfast.sources.logs.log_source import ROWS_PER_STEP, LogSource
from holdfast.sources.logs.positions import schema_of
from holdfast.state.values import codec

PROBE_S = 0.2
"""How often it is tried again to append when there was no space."""
BYTES_PER_STEP = 64 << 20
FEW = 1000
"""So many rows are read without a look at how large they are."""
SOURCES = b"holdfast sources 1\n"
"""Begins a note of where sources are."""
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
            self._shared.wake()
        return written

    def append_noted(self, table: pa.Table, notes: Sequence[bytes]) -> int:
        position = super().append_noted(in_order(table), notes)
        self._shared.wake()
        return position

    def note_committed(self, epoch: Epoch) -> None:
        super().note_committed(epoch)
        self._shared.wake()

    def note_sources(self, seats: Mapping[OperatorName, Any]) -> None:
        """With the rows of the next step the log has where the sources are behind them."""
        self.note = SOURCES + codec.encode(dict(seats))

    def noted_sources(self, own: bool = False) -> dict[OperatorName, Any]:
        """Where the sources are behind the last rows. Empty: the log does not tell; rows may have come from a program that was another
        then. `own`: nobody else writes it from now on, a run that was replaced and does not know it least of all."""
        if self._shared.path is None or not self._opened.exists:
            return {}
        self._refuse_others()
        if own:
            self._opened.owner()
        found = next(iter(self._opened.notes(self._run.sink)), None)
        is_last = found is not None and found.sequence == self._opened.last_sequence(self._run.sink)
        if found is None or not is_last or not found.payload.startswith(SOURCES):
            return {}
        states: dict[OperatorName, Any] = codec.decode(found.payload.removeprefix(SOURCES))
        return states

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
        shared.source = self

    def schema(self) -> pa.Schema:
        assert self._shared.schema is not None, "the sink is looked at first"
        return schema_of(self._shared.schema)

    def open(self, wake: Callable[[], None]) -> None:
        self._shared.wake = wake

    def next_slice(self) -> Slice | None:
        """After an outage there may be much: a step takes no more than fits into memory."""
        if self._facts is not None and self._next is not None:
            now = self._facts()
            if now.end - self._next > FEW:
                directory = self._log.facts.directory(self._partition)
                stored = sum(entry.stat().st_size for entry in os.scandir(directory))
                per_row = max(1.0, stored / max(1, now.end - now.low))
                self._rows = max(1, min(ROWS_PER_STEP, round(BYTES_PER_STEP / per_row)))
        return super().next_slice()

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

    @property
    def reached(self) -> int | None:
        """The next row to be read, for people; None: nothing was read yet."""
        return self._next

    def describe(self) -> str:
        return self._shared.described()
