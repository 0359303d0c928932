"""`LogSink`: rows go into a log as they come, and count there once their epoch is sealed.

Rows are appended with the number of the first epoch that may cover them; the seal of an epoch covers those of earlier
numbers too. So nothing is staged elsewhere: prepare waits until what was appended is durable, commit is one small write.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.durations import Duration
from holdfast.errors import DamagedError, HoldfastError, MismatchError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, SinkContext, StepId
from holdfast.log.format.frame import NO_EPOCH
from holdfast.log.format.note import Note
from holdfast.log.log import Log
from holdfast.log.pending import Pending
from holdfast.log.place import Origin
from holdfast.log.segments import read_range
from holdfast.log.writer import LogWriter
from holdfast.sinks.staged import StagedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LogSink(StagedSink):
    """Appends rows to a log, which is made if it is not there.

    Example::

        cleaned.sink(hf.LogSink("logs/clean", time="at", keep="7 days"), name="clean")

    In a region each row is in the log exactly once, for readers of what counts (`LogSource`, `hf.Log(…).reader()`); outside of
    regions a row counts as soon as it is durable. `time`: the column that says when a row happened, for queries by time. `keep`,
    `keep_bytes`: older rows go, but for those that consumers need. One run at a time writes a log.
    """

    keeps_notes: ClassVar[bool] = True
    reason: ClassVar[str] = "rows count in the log once their epoch is sealed, which is one write"
    elsewhere = "write into another log"

    def __init__(
        self,
        path: str | Path,
        *,
        time: str | None = None,
        keep: Duration | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self._path = Path(path).absolute()
        self._time = time
        self._limits: dict[str, Any] = {"keep": keep, "keep_bytes": keep_bytes}
        self._schema: pa.Schema | None = None
        self._log: Log | None = None
        self._writer: LogWriter | None = None
        self._making = threading.RLock()
        """A step may write its first rows while an epoch without any is sealed: one of them makes the log."""
        self._under_way: list[Pending] = []
        self._tag = 1
        """The first epoch that may cover what is written now."""
        self.note: bytes | None = None
        """What is written together with rows, if anything."""

    @property
    def log_path(self) -> Path:
        return self._path

    def redirected(self, place: Path) -> LogSink:
        return LogSink(place / "log", time=self._time)

    def visible_rows(self) -> Sequence[Mapping[str, Any]]:
        log = Log(self._path)
        if not log.exists:
            return []
        facts = log.bounds()
        ranges = log.ranges(facts.low, facts.end)
        return [row for each in ranges for batch in read_range(each) for row in batch.rows.to_pylist()]

    def check_columns(self, schema: pa.Schema) -> None:
        self._schema = pa.schema([field for field in schema if field.name not in POSITION_COLUMNS])
        if Log(self._path).exists:
            Log(self._path, schema=self._schema, time=self._time)

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        super().open(context)
        self._tag = 1
        self._reopen()

    def _reopen(self) -> None:
        """Without becoming the writer: that comes with the first change."""
        with self._making:
            self.close()
            self._log, self._writer = self._at_path(), None

    def _appending(self, schema: pa.Schema) -> LogWriter:
        """Ready to append. The log is made now if it is not there."""
        with self._making:
            if self._writer is None:
                if not self._opened.exists:
                    self._log = self._at_path(schema=schema, origin=self._origin)
                self._refuse_others()
                self._writer = self._opened.writer(self._run.sink)
            return self._writer

    def _at_path(self, **settings: Any) -> Log:
        return Log(self._path, time=self._time, take_over=self._takes_over, **self._limits, **settings)

    @property
    def _takes_over(self) -> bool:
        """Whether a writer that seems to live is replaced: who owns the store is known then."""
        return self.is_staged

    @property
    def _origin(self) -> Origin:
        return Origin(self._run.topology, self._run.sink)

    def _refuse_others(self) -> None:
        there = self._opened.facts.origin
        if there not in (Origin(), self._origin):
            raise MismatchError(
                f"the log {self._path} is the output of {there.operator!r} of topology {there.topology!r}.",
                cure="Write into another log.",
            )

    @property
    def _opened(self) -> Log:
        assert self._log is not None, "open() comes first"
        return self._log

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        return self.write_arrow(frame.toArrow(), step)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        fp("sink.write")
        kept = table.drop_columns([name for name in POSITION_COLUMNS if name in table.column_names])
        try:
            writer = self._appending(kept.schema)
            note = self.note
            if kept.num_rows:
                pending = writer.append(kept, epoch=self._tag if self.is_staged else NO_EPOCH, note=note)
                if self.is_staged:
                    self.stage(pending)
                    self._under_way = [each for each in self._under_way if not each.is_done] + [pending]
                else:
                    pending.result()
            elif note is not None:
                writer.note(note)
        except HoldfastError:
            if not self.is_staged:
                self._reopen()
            raise
        return int(table.num_rows)

    def accepts_writes(self) -> bool:
        """Found out by the next write."""
        return True

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = self._writer = None

    # --- notes of an operator that keeps its checkpoints in the log ---

    def take_notes(self) -> Iterator[Note]:
        """What was noted, from the newest to the oldest; in a log that nobody else writes from now on. Rows and notes that may be on
        their way are there, or will never be, when it returns."""
        assert self._schema is not None, "check_columns() comes first"
        self._reopen()
        self._appending(self._schema)
        self._opened.owner()
        found = self._opened.notes(self._run.sink)
        first = next(found, None)
        if first is None and self._opened.bounds().end:
            raise MismatchError(
                f"the log {self._path} has rows, but nothing that tells how the operator stood behind them.",
                cure="Write into another log.",
            )
        return iter(()) if first is None else chain((first,), found)

    def append_noted(self, table: pa.Table, notes: Sequence[bytes]) -> int:
        """Notes, and with the last one rows, of which there may be none: either all of that is durable when it returns, or the last
        note and the rows are not there. Returns the position of the first row."""
        assert self._schema is not None
        writer = self._appending(self._schema)
        fp("eventual.note")
        for note in notes[:-1]:
            writer.note(note)
        done = writer.append(table.select(self._schema.names), note=notes[-1], wait=True).result()
        fp("eventual.noted")
        return int(done.position or 0)

    def keep_from(self, position: int) -> None:
        """Notes and rows from this position on stay, whatever limits say and whoever has them behind."""
        self._opened.pin(self._run.sink, position)
        fp("eventual.pinned")

    # --- an epoch ---

    def seal(self, epoch: Epoch) -> Any:
        self._tag = int(epoch) + 1
        return super().seal(epoch)

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        done = [pending.result() for pending in sealed if isinstance(pending, Pending)]
        ends = [each.position + each.rows for each in done if each.position is not None]
        return {"end": max(ends, default=0), "rows": sum(each.rows for each in done)}

    def show(self, epoch: Epoch, prepared: Any) -> None:
        self.note_committed(epoch)

    def committed_epoch(self) -> Epoch | None:
        if not self._opened.exists:
            return Epoch(0)
        self._refuse_others()
        return Epoch(max(0, self._opened.sealed_epoch))

    def note_committed(self, epoch: Epoch) -> None:
        if self.committed_epoch() != epoch:
            if self._schema is not None:
                self._appending(self._schema)
            self._opened.seal_epoch(epoch)

    # --- after a failure ---

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        if prepared is None or not prepared["end"] or (committed or 0) >= epoch:
            return
        end = self._opened.bounds(committed=False).end if self._opened.exists else 0
        if end < prepared["end"]:
            raise DamagedError(
                f"the log {self._path} has {end} rows, but epoch {epoch} wrote up to row {prepared['end']}.",
                cure="Restore the log from a backup. Nothing was changed.",
            )

    def abandon(self, epoch: Epoch) -> None:
        for pending in self._under_way:  # what is on its way must be there before it can be withdrawn
            with contextlib.suppress(HoldfastError):
                pending.result()
        self._under_way = []
        self._tag = int(epoch)
        if not self._opened.exists:
            return
        try:
            self._opened.withdraw_after(int(epoch) - 1)
        except StoreError:
            # The writer may have failed, or wait for somebody to take notice: begin anew, once.
            self._reopen()
            self._opened.withdraw_after(int(epoch) - 1)

    def is_untouched(self, prepared: Any) -> bool:
        return True

    def describe(self) -> str:
        return f"the log {self._path}"
