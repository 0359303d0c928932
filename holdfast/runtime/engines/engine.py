"""The job-runner seam: everything a step asks of the machinery that moves rows.

A *frame* is opaque to the runtime: a lazy Spark DataFrame (`runtime/engines/spark/engine.py`) or an Arrow table
(`runtime/engines/local.py`). Methods that read `runs a job` perform exactly one action.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.compiler.analyse import Analyser
from holdfast.durable import remove_quietly
from holdfast.errors import DamagedError
from holdfast.ids import Attempt, ElementName, OperatorName
from holdfast.language.connectors import POSITION_COLUMNS, TIMES, RowCheck, Sink, Slice, Source, Stamp, StepId
from holdfast.language.graph import Operator
from holdfast.operators.shared.changes import stored_changes
from holdfast.operators.shared.logic import KeyedLogic, Segments
from holdfast.runtime.links.batch import TIMES_SUFFIX, Batch, Hold, Holds, batch_of
from holdfast.state.keyed.segment import Segment
from holdfast.store.base import SegmentRef, Store

UPLOADS_AT_ONCE = 4
"""Of one operator: uploads mostly wait for the disk or the network."""

Frame = Any
STATE = "state"
"""The directory of live segments in that of the run."""


@dataclass(frozen=True, slots=True)
class Spare:
    """What the restore of a keyed operator may do without, where rows may be lost."""

    damaged: Callable[[SegmentRef, DamagedError], None]
    """Hears of each damaged segment that is left out."""
    missed: tuple[int, ...] = ()
    """Rows that each input brought since the state was stored, and that it lacks: what they would have pushed out of
    windows is left out. Empty: nothing is known of such rows."""
    meta: Any = None
    """As stored with the state."""


@dataclass(frozen=True, slots=True)
class StepName:
    """Who runs: goes into file names and job descriptions."""

    element: ElementName
    attempt: Attempt
    step: int
    epoch: int

    @property
    def id(self) -> StepId:
        return StepId(self.attempt, self.step)

    def describe(self, topology: str) -> str:
        return f"{topology}/{self.element} step {self.step} epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class KeyedState:
    """One version of a keyed operator's state: the segments of each partition, and what all partitions share."""

    partitions: tuple[Segments, ...]
    meta: Any = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """What the operator counted since its initial state: late rows. Part of the state, so a replay counts once. Names that
    begin with `_` are for the operator itself."""

    pins: int = 0
    """Checkpoints of this run that recorded an earlier version."""
    held: tuple[int | None, ...] = ()
    """About how many rows each partition has, where only its task can look; None: nobody has looked yet."""

    def counting(self, more: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
        """The counts with those of a step's partitions added."""
        return dict(sum((Counter(counts) for counts in more), Counter(self.counts)))


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """What a keyed step needs to know about its operator."""

    operator: OperatorName
    logic: KeyedLogic
    may_die: bool = False
    """What it does with a row may end the process it runs in: that must not be the driver's."""
    limit_s: float | None = None
    """After this time a step counts as dead; None: never."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where the output of a keyed step goes: sinks that read nothing but port 0, and ports others read as well."""

    sinks: tuple[Sink, ...] = ()
    kept: frozenset[int] = frozenset({0})


KEEP = Delivery()


@dataclass(frozen=True, slots=True)
class KeyedOutput:
    """What a keyed step gave: the new version, the emitted rows by port (ports without rows, and those nobody reads,
    are left out), rows of port 0, what to let go of after the step, the sinks of the delivery that have got their
    rows already."""

    state: KeyedState
    frames: Mapping[int, Frame]
    rows: int
    holds: tuple[Hold, ...] = ()
    delivered: tuple[Sink, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Live segments of a restored state. `as_stored`: they hold what the store has, dealt out and formed as there; but
    of segments that are no keyed map stale rows may be missing, under other names."""

    partitions: tuple[Segments, ...]
    as_stored: bool = True
    stale: int = 0
    """Rows that were left out because missed ones would have pushed them out."""
    held: tuple[int | None, ...] = ()
    """As `KeyedState.held`."""


class Engine(ABC):
    """Moves rows. Element loops call it concurrently, each from its own thread."""

    live: Path
    """Directory for live segments and transient batches of this run. Never read by a later run."""
    partitions: int
    """Partitions of keyed operators, unless restored with another number."""
    before_step: Callable[[ElementName, Any], None] | None = None
    """Called with the work of each step before it begins, in the element's thread; what it raises fails the step. For studies of failures."""

    def check_workers(self) -> None:
        """ConfigError if what runs the tasks cannot run ours. Comes before a run writes anything."""

    @abstractmethod
    def analyser(self) -> Analyser: ...

    @abstractmethod
    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A thread from which steps may be run."""

    @abstractmethod
    def begin_step(self, name: StepName, topology: str) -> None:
        """Label the calling thread's next jobs."""

    @abstractmethod
    def cancel(self, element: ElementName) -> None:
        """Cancel the jobs an element runs now (a reset makes them worthless)."""

    def is_alive(self) -> bool:
        """False if nothing can be run any more: no reset would help."""
        return True

    @abstractmethod
    def read(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame: ...

    @abstractmethod
    def read_malformed(self, source: Source, piece: Slice, stamp: Stamp | None) -> Frame:
        """Rows of a slice that the source could not read, as a stream of their own."""

    @abstractmethod
    def from_batches(self, batches: Sequence[Batch], schema: pa.Schema) -> Frame: ...

    def read_batch(self, batch: Batch, schema: pa.Schema, ordered: bool) -> pa.Table:
        """All rows of one batch in the driver, always in the same order: by position if `ordered`. Runs no job."""
        tables = [pq.ParquetFile(file).read(schema.names) for file in batch.row_files]
        found = [table.select(schema.names).cast(schema) for table in tables]
        table = pa.concat_tables([schema.empty_table(), *found])
        return table.sort_by([(name, "ascending") for name in POSITION_COLUMNS]) if ordered else table

    @abstractmethod
    def from_table(self, table: pa.Table) -> Frame: ...

    @abstractmethod
    def empty(self, schema: pa.Schema) -> Frame: ...

    @abstractmethod
    def union(self, frames: Sequence[Frame]) -> Frame: ...

    @abstractmethod
    def stateless(self, operator: Operator, inputs: Sequence[Frame], stamped: bool) -> list[Frame]:
        """Apply a stateless operator; one frame per output port. `stamped`: position columns pass through."""

    @abstractmethod
    def collect_times(self, frame: Frame) -> pa.Table:
        """Times beside rows, in the driver: only those that are later than all before them. Runs a job."""

    def with_times(self, batch: Batch | None, frame: Frame, name: StepName, stream: str) -> Batch | None:
        """A batch, if there is one, with the times that travel beside its rows. Runs a job."""
        times = self.collect_times(frame)
        if not times.num_rows:
            return batch
        path = self.live / "batches" / f"{stream}-a{name.attempt}-s{name.step}{TIMES_SUFFIX}"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(times, path, compression="none")
        made = batch_of([path], 0)
        if batch is None:
            return made
        return Batch(
            (*batch.files, *made.files), batch.rows, batch.bytes + made.bytes, Holds((batch.hold, made.hold))
        )

    def read_times(self, batches: Sequence[Batch]) -> list[pa.Table]:
        """The times beside the rows of batches; few, and in the driver."""
        files = [file for batch in batches for file in batch.time_files]
        tables = [pq.read_table(file, memory_map=False) for file in files]
        return [pa.concat_tables(tables).cast(TIMES)] if tables else []

    @abstractmethod
    def times(self, frame: Frame, on: str) -> Frame:
        """Positions and event times of a stamped frame, as they travel beside rows; rows without a time are left out."""

    @abstractmethod
    def strip(self, frame: Frame) -> Frame:
        """The frame without position columns."""

    @abstractmethod
    def share(self, frame: Frame) -> Frame:
        """Keep the frame's rows for several consumers within one step."""

    @abstractmethod
    def unshare(self, frame: Frame) -> None: ...

    @abstractmethod
    def materialise(self, frame: Frame, name: StepName, stream: str, near: bool = False) -> Batch | None:
        """Write the rows as a batch. None if there are none. Runs a job. `near`: all who read the batch do so in the driver."""

    @abstractmethod
    def checked(self, frame: Frame, check: RowCheck, sink: OperatorName) -> tuple[Frame, Frame, list[Frame]]:
        """Rows that a sink can write, letters about the others, and what must be unshared when the step is over."""

    @abstractmethod
    def write(self, sink: Sink, frame: Frame, step: StepId) -> int | None:
        """Hand the rows to a sink. Runs a job."""

    @abstractmethod
    def keyed_step(
        self,
        task: KeyedTask,
        state: KeyedState,
        frames: Mapping[int, Frame],
        name: StepName,
        delivery: Delivery = KEEP,
    ) -> KeyedOutput:
        """Apply what arrived, by input port, to a keyed operator; under `times_at(port)` the times beside a port's rows.
        Runs a job, which may hand the output to sinks as well."""

    @abstractmethod
    def load_keyed(
        self,
        task: KeyedTask,
        segments: list[list[SegmentRef]],
        store: Store | None,
        spare: Spare | None = None,
    ) -> Loaded:
        """Bring stored segments to where steps will need them, verified. No segments: the initial state. `spare`
        tells what the operator can do without; without it damage is an error."""

    def bring(self, segments: tuple[Segments, ...]) -> tuple[Segments, ...]:
        """Live segments that the driver wrote, by partition, where steps will need them."""
        return segments

    @abstractmethod
    def collect(self, frame: Frame, schema: pa.Schema) -> pa.Table:
        """Rows that a keyed step emitted, in the driver; few. Runs no job."""

    def put_segments(
        self, entry: str, segments: Sequence[tuple[int, Segment]], store: Store
    ) -> list[SegmentRef]:
        """Make live segments durable in the store, each given with its partition; in background priority."""
        found = [(segment.name, Path(segment.path), segment.crc) for _, segment in segments]
        at_once = -(-len(found) // UPLOADS_AT_ONCE) or 1
        lots = [found[start : start + at_once] for start in range(0, len(found), at_once)]
        with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
            return [ref for refs in pool.map(partial(store.put_segments, entry), lots) for ref in refs]

    def put_joined(
        self,
        task: KeyedTask,
        entry: str,
        changes: Sequence[tuple[int, Segments]],
        store: Store,
        as_base: bool = False,
    ) -> list[list[SegmentRef]]:
        """Make what steps changed durable, joined, for each partition given; in background priority. `as_base`: what is
        given are whole versions."""
        assert task.logic.chained is not None
        rows = task.logic.chained
        directory = self.live / "uploads"
        directory.mkdir(parents=True, exist_ok=True)
        put = partial(_put, store, entry)
        # One after the other: what is joined is in memory.
        return [stored_changes(rows, segments, directory, put, as_base) for _, segments in changes]

    def has_live(self, state: KeyedState) -> bool:
        """False if a version cannot be read any more: what held it is gone."""
        return all(Path(segment.path).exists() for partition in state.partitions for segment in partition)

    def remove_leftovers(self, operator: OperatorName, name: StepName, needed: Collection[str]) -> None:
        """A step failed: remove live files that its tasks wrote for an operator and that nobody heard of."""
        written = re.compile(rf"{re.escape(operator[:40])}-p\d+-a{name.attempt}-s{name.step}-")
        for path in (self.live / STATE).glob(f"*-a{name.attempt}-s{name.step}-*"):
            if written.match(path.name) and path.stem not in needed and path.name not in needed:
                remove_quietly(path)

    def remove_live(self, segment: Segment) -> None:
        """A live segment nobody needs any more."""
        remove_quietly(segment.path)

    @abstractmethod
    def run_tasks(self, fn: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run an importable function over items, in background priority."""

    def stop(self) -> None:
        """The run ends: release what the engine made for it (not the caller's session)."""


def _put(store: Store, entry: str, segment: Segment) -> SegmentRef:
    return store.put_segment(entry, segment.name, Path(segment.path), segment.crc)
