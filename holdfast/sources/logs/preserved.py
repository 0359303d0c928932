"""`Preserved`: a source that cannot replay, made replayable by a log: rows are durable there before anybody sees them.

Only the source saves rows, once; what follows in the graph recovers by reading the log again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.durations import Duration
from holdfast.errors import ConfigError, HoldfastError
from holdfast.failpoints import fp
from holdfast.language.connectors import Lag, Slice, Source, Stamp, TaskReader
from holdfast.log.log import Log
from holdfast.log.writer import LogWriter
from holdfast.sources.logs.log_source import ROWS_PER_STEP, LogSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITER = "preserved"
TAKEN_AT_ONCE = 1_000_000
"""Rows that are taken in before the graph gets some: a source that never pauses must not keep it waiting."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A slice of the source on its way into the log. `before`: where the source was."""

    sequence: int
    before: Any
    piece: Slice


class Preserved(Source):
    """Rows of another source, by way of a log, so that it may feed a region.

    Example::

        lines = topology.source(hf.Preserved(hf.TcpLines(9999), "logs/lines"), name="lines").consistent("r")
        lines = topology.source(hf.TcpLines(9999), name="lines").preserve("logs/lines").consistent("r")  # the same

    What the source has given is appended to the log and forced to disk before a step gets it. A run that dies, or a region that
    resets, reads it there again; a run that starts anew first reads what was not processed. What had not reached the driver is
    the sender's to send again. `keep`: how long rows stay (default: for ever); rows that are let go before a run has read them
    are refused by name, never left out.
    """

    def __init__(
        self,
        source: Source,
        path: str | Path,
        *,
        keep: Duration | None = None,
        rows_per_step: int = ROWS_PER_STEP,
    ) -> None:
        if source.replayable:
            raise ConfigError(
                f"{source.describe()} can be read again by itself.",
                cure="Use it as it is, without a log; to keep its rows for later, .sink(hf.LogSink(…)).",
            )
        self._inner = self.preserves = source
        self._path, self._keep = Path(path), keep
        self._log = Log(path, keep=keep)
        self._read = LogSource(self._log, rows_per_step=rows_per_step, schema=source.schema())
        self._sequence = 0
        """Of the newest append; 0: not known yet."""
        self._under_way: list[UnderWay] = []
        self._is_broken = False

    # --- what it is ---

    @property
    def reads(self) -> LogSource:
        """What its rows come from."""
        return self._read

    def schema(self) -> pa.Schema:
        return self._read.schema()

    def describe(self) -> str:
        return f"{self._inner.describe()}, preserved in {self._read.describe()}"

    def stored(self) -> tuple[str, int, int] | None:
        """Where the log is, its first row and the end of those that count; None: there is no log yet."""
        if not self._log.exists:
            return None
        facts = self._log.bounds()
        return str(self._log.path), facts.low, facts.end

    def counts(self) -> dict[str, int]:
        return self._inner.counts()

    def lag(self) -> Lag:
        """Rows in the log, and those that were received and are not there yet."""
        stored, received = self._read.lag().rows, self._inner.lag().rows
        return Lag(None if stored is None and received is None else (stored or 0) + (received or 0))

    # --- a run ---

    def cut_smaller(self, rows: int) -> None:
        self._read.cut_smaller(rows)

    def bound(self) -> None:
        self._inner.bound()

    def unbound(self) -> None:
        self._inner.unbound()

    def open(self, wake: Callable[[], None]) -> None:
        self._inner.open(wake)
        self._inner.seek(None)

    def seek(self, state: Any | None) -> None:
        """The log goes back, the source does not: what it has given is there."""
        self._read.seek(state)

    def next_slice(self) -> Slice | None:
        self._take_in()
        return self._read.next_slice()

    def _take_in(self) -> None:
        """Append what has come, and wait until it is durable."""
        if self._is_broken:
            self._mend()
        try:
            writer, taken = None, 0
            while taken < TAKEN_AT_ONCE:
                before = self._inner.snapshot()
                piece = self._inner.next_slice()
                if piece is None:
                    break
                rows = self._inner.read_arrow(piece, None)
                writer = writer or self._writer(rows.schema)
                self._sequence += 1
                self._under_way.append(UnderWay(self._sequence, before, piece))
                writer.append(rows, sequence=self._sequence)
                fp("log.preserved")
                taken += rows.num_rows
            if writer is not None:
                writer.flush()
        except HoldfastError:
            self._is_broken = True
            raise
        self._let_go(self._sequence)

    def _writer(self, schema: pa.Schema) -> LogWriter:
        if not self._log.exists:
            self._log = Log(self._path, schema=schema, keep=self._keep)
            self._read.use_log(self._log)
        writer = self._log.writer(WRITER)
        self._sequence = self._sequence or writer.last_sequence
        return writer

    def _mend(self) -> None:
        """An append failed. What the log has is there once; what it has not, the source still has."""
        self._log.close()
        self._log = Log(self._path, keep=self._keep)
        self._read.use_log(self._log)
        if self._under_way:
            stored = self._log.writer(WRITER).last_sequence if self._log.exists else 0
            self._let_go(stored)
            if self._under_way:
                self._inner.seek(self._under_way[0].before)
            self._under_way, self._sequence = [], stored
        self._is_broken = False

    def _let_go(self, stored: int) -> None:
        for each in self._under_way:
            if each.sequence <= stored:
                self._inner.processed(each.piece)
        self._under_way = [each for each in self._under_way if each.sequence > stored]

    def snapshot(self) -> Any:
        return self._read.snapshot()

    def processed(self, piece: Slice) -> None:
        self._read.processed(piece)

    def finish(self) -> bool:
        return self._inner.finish()

    def close(self) -> None:
        self._inner.close()
        self._log.close()
        self._log = Log(self._path, keep=self._keep)
        self._read.use_log(self._log)
        self._under_way, self._sequence, self._is_broken = [], 0, False

    # --- reading ---

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        return self._read.read_arrow(piece, stamp)

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        return self._read.read_spark(session, piece, stamp)

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        return self._read.read_small(piece, stamp)

    def task_reader(self, piece: Slice, stamp: Stamp | None) -> TaskReader | None:
        return self._read.task_reader(piece, stamp)
