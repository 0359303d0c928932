"""Base classes for the outside world: `Source` and `Sink`. Public; subclasses live in `holdfast.sources` / `.sinks`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.ids import Attempt, Epoch, OwnerToken
from holdfast.language.positions import POSITION_COLUMNS as POSITION_COLUMNS
from holdfast.language.positions import POSITION_FIELDS as POSITION_FIELDS
from holdfast.language.positions import TIME_COLUMN as TIME_COLUMN
from holdfast.language.positions import TIMES as TIMES
from holdfast.language.positions import Capture as Capture
from holdfast.language.positions import Captured as Captured
from holdfast.language.positions import Lag as Lag
from holdfast.language.positions import Slice as Slice
from holdfast.language.positions import Stamp as Stamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Declined(Exception):
    """These rows are not for a task but for Spark: what the task would make of them might be something else, or a kernel failed where Spark
    tells the user what is wrong, or is not asked at all (`b <> 0 and a / b > 1`). `by`: the operator or source it is about."""

    by: str = ""


TaskReader = Callable[[Sequence[str]], pa.Table]
"""Reads the named columns of a slice (positions among them if it is stamped) in any process. Picklable. One that has a method
`tables(columns)` can read the same rows in tables of bounded size, one that has `parts()` gives several readers that read them together."""


TaskWriter = Callable[[pa.Table, int, int], Any]
"""Writes a partition's rows of a step, given the partition and the task attempt, in any process. Picklable; answers
plain data that `Sink.adopt` understands. What attempts write that are not adopted never counts."""


RowCheck = Callable[[pa.Table], Sequence[str | None]]
"""Of each row of a table why it cannot be written, None if it can; in any process. Picklable, and a function of the row alone:
the same rows get the same answers, however they are cut."""


def _refuse_nothing(row: Any, error: Exception | str) -> None:
    raise error if isinstance(error, Exception) else ConfigError(f"a row was refused: {error}.")


class Source(ABC):
    """Where rows come from. All methods are called by one thread at a time, in the driver.

    Life: `open(wake)`; `seek(None)` for the initial position or `seek(state)` with what `snapshot` returned; then `next_slice`
    again and again; each slice is read once (again after a reset, with the same rows). Must hold: reading from one
    snapshot always gives the same rows, or an InputError that names what changed."""

    replayable: ClassVar[bool] = True

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns without positions. May look at the data once; the answer is stored in the job's record."""

    def use_schema(self, schema: pa.Schema) -> None:
        """A stored schema from an earlier run: use it instead of inferring."""

    def check(self) -> None:
        """Raise if there cannot be anything to read (no such directory). Called before Spark is started for the run, so
        that this is told at once: quick, and without Spark."""

    def cut_smaller(self, rows: int) -> None:
        """Let slices hold at most so many rows. Called before `open`, by those who want to see more steps; a source that cannot
        be cut so stays as it is."""

    def extent(self) -> Any:
        """What is there now, as plain data: for those who read the same in several runs. None: whatever is there when it is read."""
        return None

    def keep_to(self, extent: Any) -> None:
        """Give only what `extent` told, although there is more now. Before `open`, and only of runs that belong to nobody
        else: what others know of the source stays as it is."""

    def bound(self) -> None:
        """Only what exists now is wanted: after its last row `next_slice` answers None for ever."""

    def unbound(self) -> None:
        """What comes later is wanted too. Before each run comes this or `bound`: a source may serve several runs, one after the other."""

    def open(self, wake: Callable[[], None]) -> None:
        """A run begins; comes before `seek`. A source that receives rows by itself (over a network, say) calls `wake` from any
        thread whenever `next_slice` may find something new: then it is asked at once. Others are asked again and again, and
        need no `wake`. Never call it while holding a lock that `next_slice` takes."""

    def awaits_more(self) -> bool:
        """Whether rows that belong to a bounded run are still to come by themselves: another part of the run makes them, or they come
        at a pace. Asked before and after `next_slice`: its None means the end if both answers are no."""
        return False

    def kept(self, snapshots: Sequence[Any], epoch: int | None) -> None:
        """The run may go back to these snapshots, as of `epoch` (None: outside of regions), and to none before. Called now and
        then, by another thread than the others are; must not fail for want of space."""

    def finish(self) -> bool:
        """The run is to end in order. A source that receives rows by itself takes in nothing more and answers True: it is asked
        for what it has received until `next_slice` answers None. Others answer False and are asked no more: the next run goes
        on from their position. Called by the thread that calls `next_slice`."""
        return False

    def close(self) -> None:
        """The run has ended, and nothing is asked any more: end threads, let go of connections."""

    @abstractmethod
    def seek(self, state: Any | None) -> None:
        """Go to a snapshot; None is the initial position."""

    @abstractmethod
    def next_slice(self) -> Slice | None:
        """The next rows after the current position, which moves behind them. None: nothing there now."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Position and memory (files seen, …) as plain data: what `seek` needs to go on behind the last slice."""

    def capture(self) -> Capture:
        """What `snapshot` says, for an epoch: as little work as possible now, between two steps; the rest in `plain()`, by another
        thread, whatever the source does meanwhile. Sources whose snapshot costs nothing need not have their own."""
        return Captured(self.snapshot())

    def snapshot_with(self, piece: Slice) -> Any:
        """The same as `snapshot`, but after `seek` the last slice, `piece`, can be read once more: for a step that may be done again. Sources
        that can read what lies before their position need not say more than `snapshot`."""
        return self.snapshot()

    @abstractmethod
    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        """The slice as a DataFrame, with position columns appended if `stamp` is given."""

    @abstractmethod
    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        """The same rows without Spark: for local runs."""

    def task_reader(self, piece: Slice, stamp: Stamp | None) -> TaskReader | None:
        """A way for tasks to read the slice without Spark's reader, the same rows; None: there is none.
        Keyed operators right behind the source are several times faster with it."""
        return None

    def decline_tasks(self, why: str) -> None:
        """A task came upon rows that only Spark's reader should read: from now on `task_reader` answers None."""

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        """All columns of a slice of some kilobytes, read in the driver: exactly the rows of `read_spark`, positions appended as
        there. None: it is not that small, or not that certain. A small step then needs no job of Spark's."""
        return None

    def malformed_schema(self) -> pa.Schema | None:
        """Columns of a stream of its own with rows that could not be read (`stream.malformed`); None: there is none.
        With one, the two methods that follow are called."""
        return None

    def read_malformed_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        """The slice's rows of that stream."""
        raise NotImplementedError

    def read_malformed_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        """The same without Spark."""
        raise NotImplementedError

    def processed(self, piece: Slice) -> None:
        """The step that read the slice is over, the next snapshot is one behind it. Raises if its rows must not count after all."""

    def counts(self) -> dict[str, int]:
        """What the source counted up to its position, for `status`: rows that were left out. Comes with the snapshot."""
        return {}

    def lag(self) -> Lag:
        """What waits behind the position, for `status` and metrics. Asked about once a second: be quick, look at nothing outside."""
        return Lag()

    def came_since(self) -> Lag:
        """What waits besides and `lag` could not know of, since the source was asked for nothing while a step takes long. Unlike all others this may
        be called by any thread at any time: be quick, and wait for nobody."""
        return Lag()

    def count_rows(self, piece: Slice) -> int | None:
        """How many rows a slice has, found with some work if `piece.rows` does not say; None if nobody knows. For counts of losses."""
        return piece.rows

    def times_beside(self, piece: Slice) -> Sequence[tuple[int, int, int]]:
        """Of a source beside whose rows event time travels: (ordinal, row, microseconds reached there) at places of a slice."""
        return ()

    def explain_failure(self, piece: Slice, error: Exception) -> Exception:
        """Reading failed: a better error if the source knows one (file and line of a malformed row)."""
        return error

    def describe(self) -> str:
        """One phrase for `explain()`."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Who writes: job and sink identity, owner token, and the run's attempt when the sink was (re)opened."""

    job_id: str
    topology: str
    sink: str
    region: str | None
    token: OwnerToken
    check_owner: Callable[[], None] = lambda: None
    """Raises FencedError if a newer owner took the store."""
    run_tasks: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]] = lambda fn, items: list(
        map(fn, items)
    )
    """Run an importable function over items where the data lies (Spark tasks), in background priority."""
    must_end: Callable[[], bool] = lambda: False
    """True when the run ends: a sink that waits for something waits no more."""
    refuse: Callable[[Any, Exception | str], None] = _refuse_nothing
    """Called within `write_*`: this row (a mapping or a Row) was not written and will not be; why. With on_error="stream" it is
    in the stream of errors, with the step; else the error is raised."""


@dataclass(frozen=True, slots=True)
class StepId:
    """Names one step's output. Steps are numbered over the run's life; attempts never reuse a name."""

    attempt: Attempt
    step: int


class Sink(ABC):
    """Where rows go.

    In a region: `open(context)`, `restore(epoch, prepared)`, then steps `write_*`, at an epoch `seal(e)` (fast,
    between steps), `prepare(e, sealed)` (background; returns plain data for the manifest; durable when it returns),
    after publish `commit(e, prepared)` (idempotent). `restore(e, prepared)` rolls e forward and withdraws all that
    came later. Outside a region only `open` and `write_*` are called and every write is final."""

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    """What the sink can promise inside a region."""
    reason: ClassVar[str] = "it cannot take a written row back"
    """Why, for `explain()`."""
    shows_with_epoch: ClassVar[bool] = False
    """Inside a region rows are handed on with their epoch, although perhaps not once; for `explain()`. What is exactly-once always is."""
    alone: ClassVar[str] = ""
    """What is particular to the sink outside of regions, for `explain()`."""
    keeps_notes: ClassVar[bool] = False
    """True if it is a log, in which an operator can keep what it must not forget beside its rows."""
    leads_to: str | None = None
    """The operator of the same topology that reads what is written: this is one end of a persisted stream."""
    only_outages: ClassVar[bool] = False
    """Rows go by memory to that operator, and are written only while nobody takes them."""
    let_spark_count: bool = False
    """True if `write_spark` is one action of Spark SQL over all rows, which may count them on their way."""
    wants_positions: bool = False
    """True if rows should come with their positions, where they have any: it keeps the last row of a key."""

    def check_columns(self, schema: pa.Schema) -> None:
        """Refuse, with a ConfigError, rows that cannot be written. Called when the topology is compiled, before `open`."""

    def open(self, context: SinkContext) -> None:
        """A run begins."""

    @abstractmethod
    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        """Write one step's rows by exactly one action. Returns the number of rows if it is known at no cost."""

    @abstractmethod
    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        """The same without Spark."""

    def row_check(self) -> RowCheck | None:
        """With on_error="stream": which rows cannot be written, asked before each write; they never reach `write_*`. None: all can.
        What only writing can tell is told by `SinkContext.refuse`."""
        return None

    def task_writer(self, step: StepId) -> TaskWriter | None:
        """A way for the tasks that make the rows to write them at once; None: only `write_spark`.
        Either `adopt` follows, or nothing of the step counts."""
        return None

    def tasks_may_write(self) -> bool:
        """Whether `task_writer` gives something, asked before it is."""
        return type(self).task_writer is not Sink.task_writer

    def task_columns(self) -> Sequence[str] | None:
        """The columns that its task writer takes, if tasks may also read the rows by themselves: several times faster where
        they can, right behind a source of files. None: such rows come by `write_spark`."""
        return None

    def adopt(self, step: StepId, written: Sequence[Any]) -> None:
        """The step consists of what these tasks wrote: the answers of the task writers that won."""
        raise ConfigError(
            f"{type(self).__name__} lets tasks write but does not take over what they wrote.",
            cure="Override adopt() together with task_writer().",
        )

    def seal(self, epoch: Epoch) -> Any:
        """Everything written so far and not sealed yet belongs to `epoch`. Called between steps; must be quick."""
        return None

    def prepare(self, epoch: Epoch, sealed: Any) -> Any:
        """Make the sealed rows durable, still invisible. May run while later steps write."""
        return None

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        """Make the epoch's rows visible; doing it again changes nothing."""

    def wants_epoch(self) -> bool:
        """True if an epoch would show something although nothing was written. Asked now and then, between steps: must be quick."""
        return False

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        """Roll `epoch` forward (commit), withdraw everything later. Epoch 0: withdraw everything unpublished.
        A later epoch with nothing prepared: the job begins there (a fork); refuse what another job wrote."""

    def verify(self, epoch: Epoch, prepared: Any | None) -> None:
        """Refuse, before anything is changed, what `restore` would refuse. Called once, when a run starts."""

    def is_withheld(self, epoch: Epoch, prepared: Any) -> bool:
        """True if it is certain that nothing of a published epoch was ever visible: a run may then go back. In doubt False."""
        return False

    def accepts_writes(self) -> bool:
        """Probe after a NoSpaceError of this sink: is there space again?"""
        return True

    def close(self) -> None:
        """The run ends."""

    def redirected(self, place: Path) -> Sink | None:
        """The same sink, writing beneath the directory `place` and nowhere else, for trials (`holdfast chaos`): then its own code is
        tried, and `visible_rows` is asked. None: it cannot; then its rows are recorded in its place."""
        return None

    def visible_rows(self) -> Sequence[Mapping[str, Any]]:
        """Of a redirected sink: the rows that readers see now, in the order in which they came to be seen."""
        raise NotImplementedError

    def describe(self) -> str:
        return type(self).__name__

    def when_visible(self, epoch: str) -> str:
        """For `explain()`, in a region: when rows can be seen, given the phrase for "with their epoch"."""
        return epoch
