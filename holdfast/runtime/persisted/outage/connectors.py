"""Both ends of a stream that is persisted for outages only."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.errors import ConfigError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import OperatorName
from holdfast.language.connectors import (
    POSITION_COLUMNS,
    Sink,
    SinkContext,
    Slice,
    Source,
    Stamp,
    StepId,
    TaskReader,
)
from holdfast.language.operators.persist import PersistSpec
from holdfast.runtime.persisted.connectors import (
    PROBE_S,
    PersistedSource,
    PersistSink,
    in_order,
)
from holdfast.runtime.persisted.outage.resuming import Place
from holdfast.runtime.persisted.outage.shared import MARKED, OutageLog, snapshot_of
from holdfast.runtime.persisted.stream_notes import StreamNote
from holdfast.sinks.log_sink import LogSink
from holdfast.sources.schemas import spark_schema
from holdfast.state.values import codec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class OutageSink(PersistSink):
    """The end at which rows enter. They go by memory or by the log, as the switch says."""

    only_outages: ClassVar[bool] = True

    def __init__(self, shared: OutageLog) -> None:
        super().__init__(shared)
        self._both = shared
        self._unsure: tuple[int, int, dict[str, Any]] | None = None
        """The end of the log if an append that failed is there after all, its new rows, and where the sources are behind them."""
        self._floor: dict[OperatorName, Any] = {}

    def open(self, context: SinkContext) -> None:
        if int(context.token) == 0:
            raise ConfigError(
                f"the stream {self._both.name!r} is persisted for outages, and this run has no store to know what was read.",
                cure='Give the run a store, or leave when="outage" out.',
            )
        self._both.begin(int(context.token), str(context.sink))
        super().open(context)

    def noted_sources(self, own: bool = False) -> dict[OperatorName, Any]:
        """Where the sources go on, of all of them: behind the last row that came, wherever it is held."""
        with self._both.lock:
            self._settle()
            found = self._both.switch.sources or {}
            return {OperatorName(name): at for name, at in found.items()}

    def durable_sources(self, seats: dict[OperatorName, Any]) -> dict[OperatorName, Any]:
        return self._floor

    def let_go(self, sources: Mapping[OperatorName, Any]) -> None:
        """Who reads never asks for rows before these positions again."""
        self._floor = dict(sources)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        ordered = in_order(table)
        kept = ordered.drop_columns([name for name in POSITION_COLUMNS if name in ordered.column_names])
        while True:
            try:
                with self._both.lock:
                    self._pass_on(kept, step)
                break
            except NoSpaceError:
                if self._run.must_end():
                    raise
                time.sleep(PROBE_S)
        fp("persist.appended")
        self._both.wake()
        return int(table.num_rows)

    def _pass_on(self, table: pa.Table, step: StepId) -> None:
        switch = self._both.switch
        self._settle()
        seats: dict[str, Any] = {str(name): at for name, at in (self._seats or {}).items()}
        if not table.num_rows:
            switch.touch(seats)
        elif switch.fits(table.nbytes):
            switch.hold(table, table.num_rows, table.nbytes, seats)
            fp("persist.held")
        else:
            wanted = switch.to_log()
            whole = (
                pa.concat_tables([*wanted.held, table.select(self._columns.names)]) if wanted.held else table
            )
            self.note = StreamNote(self._seats).encode()
            if wanted.mark is not None:
                self.note = MARKED + codec.encode(
                    {
                        "sources": seats,
                        "run": wanted.mark.run,
                        "base": wanted.mark.base,
                        "gap": wanted.mark.is_gap,
                    }
                )
            self._unsure = (switch.end + whole.num_rows, table.num_rows, seats)
            fp("persist.to_log")
            LogSink.write_arrow(self, whole, step)
            fp("persist.in_log")
            self._unsure = None
            switch.logged(table.num_rows, seats)

    def _settle(self) -> None:
        """An append failed: whether its rows are in the log is looked up, never assumed."""
        if self._unsure is None:
            return
        end, rows, seats = self._unsure
        if self._opened.exists:
            self._opened.owner()
            if self._opened.bounds().end == end:
                self._both.switch.logged(rows, seats)
        self._unsure = None


class OutageSource(PersistedSource):
    """The end at which rows leave. Its snapshots tell where the sources were: what was in memory can be made again."""

    _log_schema: pa.Schema | None = None

    def __init__(self, shared: OutageLog, sink: OutageSink) -> None:
        super().__init__(shared)
        self._both = shared
        self._other = sink
        self._place = Place(0)
        self._is_unmoved = True
        """Nothing was read since this run began: it is where it was, whatever that is called now."""

    def seek(self, state: Any | None) -> None:
        with self._both.lock:
            self._both.check(state)
            if not self._both.is_known:
                return
            self._place = self._both.place_of(state)
            self._is_unmoved = state is None or state.get("run") != self._both.run
            self._skip_over()
            if self._both.log is not None and self._both.log.exists:
                self._hold(self._place.log)

    def next_slice(self) -> Slice | None:
        with self._both.lock:
            switch = self._both.switch
            self._skip_over()
            self._place = switch.caught_up(self._place)
            at = switch.physical(self._place)
            if at is not None:
                return self._from_log(at)
            taken = switch.ahead(self._place, self._rows)
            if not taken:
                return None
            start, self._place = self._place, Place(self._place.log, taken[-1].behind)
            self._is_unmoved = False
            fp("persist.taken")
            return Slice(
                [start.log, start.passed],
                [self._place.log, self._place.passed],
                taken[-1].behind - taken[0].first,
                sum(each.bytes for each in taken),
            )

    def _skip_over(self) -> None:
        skip = self._both.switch.begun.skip
        if skip is not None and skip[0] <= self._place.log < skip[1]:
            self._place = Place(skip[1])

    def _from_log(self, at: int) -> Slice | None:
        skip, self._next = self._both.switch.begun.skip, at
        self._end = skip[0] if skip is not None and at < skip[0] else None
        piece = super().next_slice()
        if piece is None:
            return None
        self._place, self._is_unmoved = Place(piece.end), False
        return Slice([piece.start, 0], [piece.end, 0], piece.rows)

    def snapshot(self) -> Any:
        with self._both.lock:
            if self._is_unmoved and self._both.known is not None:
                return self._both.known
            self._skip_over()
            switch, place = self._both.switch, self._place
            log, skip = self._both.log, switch.begun.skip
            is_before_skip = skip is not None and place.log < skip[0]
            there = log is not None and log.exists
            return {
                "log": log.facts.id if there and log is not None else None,
                "partition": 0,
                "next": place.log,
                "passed": place.passed,
                "run": self._both.run,
                "sources": switch.begun.sources if is_before_skip else switch.sources_behind(place),
                "skip": list(skip) if is_before_skip and skip is not None else None,
                "number": switch.number(place),
            }

    def kept(self, snapshots: Sequence[Any], epoch: int | None) -> None:
        with self._both.lock:
            mine = [snapshot_of(each).place for each in snapshots if each.get("run") == self._both.run]
            if mine:
                self._both.switch.release(max(mine))
            if snapshots and all(each.get("sources") is not None for each in snapshots):
                self._other.let_go(snapshots[0]["sources"])
            fp("persist.released")
            if self._both.log is not None and self._both.log.exists:
                super().kept(snapshots, epoch)

    # --- reading ---

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        start, end = Place(*piece.start), Place(*piece.end)
        with self._both.lock:
            switch = self._both.switch
            held = switch.between(start, end) if end.passed else None
            first, behind = (start.log, end.log)
            if end.passed and held is None:
                first, behind = switch.physical(start) or 0, switch.physical(end) or 0
            number = switch.number(start) if end.passed else first + switch.shift
        if held is None:
            plain = super().read_arrow(Slice(first, behind, piece.rows), None)
        else:
            plain = pa.concat_tables([each.rows for each in held])
            plain = plain.select(self.schema().names).cast(self.schema())
        return plain if stamp is None else stamp.put_on(plain, number, self._partition)

    def task_reader(self, piece: Slice, stamp: Stamp | None) -> TaskReader | None:
        """Rows in memory are the driver's."""
        return None

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        return session.createDataFrame(self.read_arrow(piece, stamp), spark_schema(self._columns(stamp)))

    @property
    def reached(self) -> int | None:
        return self._place.log  # for people: rows that are held are not in the log


def ends_for_outages(name: str, spec: PersistSpec, logs: Path | None) -> tuple[Sink, Source]:
    """Both ends of a stream that is persisted for outages only."""
    shared = OutageLog(name, spec, logs)
    sink = OutageSink(shared)
    return sink, OutageSource(shared, sink)
