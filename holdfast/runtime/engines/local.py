"""An engine without Spark: frames are Arrow tables, steps run in the calling thread.

For tests and for trying things out: protocol, failpoints and recovery are the same code as on Spark. It runs sources,
`map_arrow`, `union`, `aggregate`, Python operators and sinks; operators made of Spark expressions need Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.compiler.analyse import Analyser, ArrowAnalyser
from holdfast.ids import ElementName, OperatorName
from holdfast.language.connectors import POSITION_COLUMNS, RowCheck, Sink, Slice, Source, Stamp, StepId
from holdfast.language.graph import Operator
from holdfast.operators.bad_rows import checked
from holdfast.operators.kinds import stateless_kind
from holdfast.operators.python.user_errors import naming_functions
from holdfast.operators.shared.logic import Place, Segments, Share
from holdfast.operators.shared.timed import rising, times_of
from holdfast.runtime.engines import engine
from holdfast.runtime.engines.apart import apart
from holdfast.runtime.engines.engine import Engine, Frame
from holdfast.runtime.links.batch import Batch, batch_of
from holdfast.runtime.live_directory import LiveDirectoryLock
from holdfast.runtime.runs.keyed_load import load_segments
from holdfast.state.keyed.layout import aged
from holdfast.store.base import SegmentRef, Store


class LocalEngine(Engine):
    """Runs everything in this process."""

    def __init__(self, partitions: int = 2, live: Path | None = None) -> None:
        self._live_lock = LiveDirectoryLock() if live is None else None
        self.live = live or self._live_lock.path  # type: ignore[union-attr]
        self.partitions = partitions

    def analyser(self) -> Analyser:
        return ArrowAnalyser()

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=target, name=name, daemon=True)

    def begin_step(self, name: engine.StepName, topology: str) -> None:
        pass

    def cancel(self, element: ElementName) -> None:
        pass

    def read(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame:
        return source.read_arrow(piece, stamp)

    def read_malformed(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame:
        return source.read_malformed_arrow(piece, stamp)

    def from_batches(self, batches: Sequence[Batch], schema: pa.Schema) -> Frame:
        tables = [pq.read_table(file, memory_map=False) for batch in batches for file in batch.row_files]
        return (
            pa.concat_tables([t.select(schema.names).cast(schema) for t in tables])
            if tables
            else schema.empty_table()
        )

    def from_table(self, table: pa.Table) -> Frame:
        return table

    def empty(self, schema: pa.Schema) -> Frame:
        return schema.empty_table()

    def union(self, frames: Sequence[Frame]) -> Frame:
        return pa.concat_tables([f.select(frames[0].column_names) for f in frames])

    def stateless(self, operator: Operator, inputs: Sequence[Frame], stamped: bool) -> list[Frame]:
        work = partial(stateless_kind(operator).tables, operator, inputs[0])
        poison = getattr(operator.spec, "poison", None)
        return list(work() if poison is None else apart(work, poison.timeout_s))

    def collect_times(self, frame: Frame) -> pa.Table:
        return rising(frame)

    def times(self, frame: Frame, on: str) -> Frame:
        return times_of(frame, on)

    def strip(self, frame: Frame) -> Frame:
        return frame.drop_columns([name for name in POSITION_COLUMNS if name in frame.column_names])

    def share(self, frame: Frame) -> Frame:
        return frame

    def unshare(self, frame: Frame) -> None:
        pass

    def materialise(
        self, frame: Frame, name: engine.StepName, stream: str, near: bool = False
    ) -> Batch | None:
        if not frame.num_rows:
            return None
        directory = self.live / "batches"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{stream}-a{name.attempt}-s{name.step}.parquet"
        pq.write_table(frame, path, compression="none")
        return batch_of([path], frame.num_rows)

    def checked(self, frame: Frame, check: RowCheck, sink: OperatorName) -> tuple[Frame, Frame, list[Frame]]:
        found = checked(frame, check, sink)
        return found.good, found.letters, []

    def write(self, sink: Sink, frame: Frame, step: StepId) -> int | None:
        return sink.write_arrow(frame, step) if frame.num_rows else 0

    def keyed_step(
        self,
        task: engine.KeyedTask,
        state: engine.KeyedState,
        frames: Mapping[int, Frame],
        name: engine.StepName,
        delivery: engine.Delivery = engine.KEEP,
    ) -> engine.KeyedOutput:
        logic, partitions = task.logic, len(state.partitions)
        shares: dict[int, list[Share]] = {}
        for port, frame in frames.items():
            needed = frame.select(list(logic.needed(port)))
            for partition, rows in logic.shares(port, needed, partitions).items():
                shares.setdefault(partition, []).append((port, rows))
        work = partial(self._applied, task, state, shares, name)
        versions, meta, counts, tables = apart(work, task.limit_s) if task.may_die else work()
        made = {port: table for port, table in enumerate(tables) if table.num_rows}
        advanced = engine.KeyedState(tuple(versions), meta, state.counting(counts), state.pins)
        return engine.KeyedOutput(advanced, made, tables[0].num_rows)

    def _applied(
        self,
        task: engine.KeyedTask,
        state: engine.KeyedState,
        shares: Mapping[int, list[Share]],
        name: engine.StepName,
    ) -> tuple[list[Segments], Any, list[Mapping[str, int]], list[pa.Table]]:
        """What the partitions give: their segments, the new meta, counts, and one table per output port."""
        logic, versions = task.logic, list(state.partitions)
        meta: Any = state.meta
        counts: list[Mapping[str, int]] = []
        outputs: list[list[pa.Table]] = [[schema.empty_table()] for schema in logic.outputs]
        (self.live / engine.STATE).mkdir(parents=True, exist_ok=True)
        for partition in sorted(shares):
            prefix = f"{task.operator}-p{partition}-a{name.attempt}-s{name.step}"
            place = Place(self.live / engine.STATE, aged(prefix, state.pins))
            with naming_functions(f"operator {task.operator!r}"):
                applied = logic.apply(versions[partition], state.meta, logic.gather(shares[partition]), place)
            versions[partition], meta = applied.segments, applied.meta
            counts.append(applied.counts)
            for port, table in enumerate(applied.outputs):
                outputs[port].append(table)
        return versions, meta, counts, [pa.concat_tables(port) for port in outputs]

    def load_keyed(
        self,
        task: engine.KeyedTask,
        segments: list[list[SegmentRef]],
        store: Store | None,
        spare: engine.Spare | None = None,
    ) -> engine.Loaded:
        return load_segments(task, segments, store, self.live / engine.STATE, self.partitions, spare)

    def collect(self, frame: Frame, schema: pa.Schema) -> pa.Table:
        return frame

    def run_tasks(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [fn(item) for item in items]

    def stop(self) -> None:
        if self._live_lock is not None:
            self._live_lock.release()
