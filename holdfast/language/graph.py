"""The graph a user writes, as immutable values. `Topology` and `Stream` build it; the compiler's passes read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from holdfast.ids import OperatorName
from holdfast.language.checkpoint_form import INCREMENTAL, CheckpointForm
from holdfast.language.connectors import Sink, Source
from holdfast.language.operators.window_values import CountWindow as CountWindow
from holdfast.language.operators.window_values import DeltaWindow as DeltaWindow
from holdfast.language.operators.window_values import MarkedWindow as MarkedWindow
from holdfast.language.operators.window_values import RowWindow as RowWindow
from holdfast.language.operators.window_values import TimeWindow as TimeWindow
from holdfast.state.columns.hashing import KEY_GROUPS as KEY_GROUPS

OrderMark = Literal["kept", "lost"]


@dataclass(frozen=True, slots=True)
class StreamRef:
    """An output port of an operator."""

    operator: OperatorName
    port: int = 0

    def __str__(self) -> str:
        return f"{self.operator}.{self.port}" if self.port else str(self.operator)


# --- what an operator does: one spec per kind -----------------------------------------------------------------------
# Column expressions are typed Any: this layer must not import pyspark.


@dataclass(frozen=True, slots=True)
class SourceSpec:
    source: Source


@dataclass(frozen=True, slots=True)
class FilterSpec:
    condition: Any
    """A Spark Column or a SQL string."""


@dataclass(frozen=True, slots=True)
class SelectSpec:
    columns: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WithColumnsSpec:
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """`fn(df) -> df` on a Spark DataFrame. Keeps order only if it returns the position columns."""

    fn: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """A query over the view `this`."""

    query: str


@dataclass(frozen=True, slots=True)
class MapArrowSpec:
    """`fn(pa.RecordBatch or Table) -> pa.Table`, row-wise and stateless, run beside the data; runs without Spark too."""

    fn: Callable[[pa.Table], pa.Table]
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class UnionSpec:
    pass


@dataclass(frozen=True, slots=True)
class SplitSpec:
    """A row leaves by the port of the first condition that holds; with `otherwise`, the rest by one more port."""

    conditions: tuple[Any, ...]
    otherwise: bool
    names: tuple[str, ...] = ()
    """What the user calls the ports, for `explain()`; empty: they have no names."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """A key is forgotten when the watermark over the column `on` has passed its time by `length_us`. Without `on`: when
    the driver's clock has."""

    length_us: int
    on: str | None = None
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Keyed running aggregate. `aggregates` maps output column → (function, input column or None for count)."""

    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str, str | None], ...]
    emit: Literal["changes", "each"] = "changes"
    ttl: Ttl | None = None


@dataclass(frozen=True, slots=True)
class DedupSpec:
    """The first row of each key passes; with `ttl` the first since the key was forgotten."""

    by: tuple[str, ...]
    ttl: Ttl | None = None


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Aggregates over windows, per key; without keys over all rows. `late`: one more port with the rows that came too
    late, which only event time knows."""

    by: tuple[str, ...]
    aggregates: tuple[tuple[str, str, str | None], ...]
    window: TimeWindow | RowWindow
    late: bool = False


@dataclass(frozen=True, slots=True)
class Latest:
    """What a stream keeps in a join: its last `rows` rows, of all or of each key; or those of the last `size_us`."""

    rows: int | None
    size_us: int | None
    per_key: bool = False


@dataclass(frozen=True, slots=True)
class IntervalMatch:
    """The right row's time is at least the left's minus `before_us`, and at most the left's plus `after_us`."""

    before_us: int
    after_us: int


@dataclass(frozen=True, slots=True)
class WindowMatch:
    """A row meets what the other stream keeps at that moment."""

    left: Latest
    right: Latest


@dataclass(frozen=True, slots=True)
class AsofMatch:
    """A left row meets the latest right row that is not later; `exact`: one of the same time will do."""

    tolerance_us: int | None
    exact: bool


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Rows of two streams with equal keys. `on`: the event times of left and right; None: in the order of arrival.
    `where`: a function of output rows, or an expression of Arrow. `how="left"`: left rows without a match come out."""

    left_by: tuple[str, ...]
    right_by: tuple[str, ...]
    match: IntervalMatch | WindowMatch | AsofMatch
    on: tuple[str, str] | None
    delays_us: tuple[tuple[str, int], ...] = (("", 0),)
    how: Literal["inner", "left"] = "inner"
    where: Any = None
    suffix: str = "_right"
    idle_us: int | None = None
    """As in windows."""


@dataclass(frozen=True, slots=True)
class KeyedSpec:
    """A Python operator with declared state per key, on the executors. `make` builds an instance, in any process. `on`:
    the column with the event time, if there is one."""

    by: tuple[str, ...]
    make: Callable[[], Any]
    schema: pa.Schema
    label: str = "operator"
    """The user's class, for `explain()`."""
    variables: tuple[tuple[str, str], ...] = ()
    """Name and description of each."""
    on: str | None = None
    delay_us: int = 0
    timers: bool = False
    """It has `on_timer`."""


@dataclass(frozen=True, slots=True)
class TopNSpec:
    """The first `n` rows of each key in the order of some columns (True: descending), of each window if there is one."""

    n: int
    by: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    window: TimeWindow | None = None


@dataclass(frozen=True, slots=True)
class SortSpec:
    """Rows leave in the order of the event time `on`, as far as the watermark has passed. `delays_us`, `idle_us`: as in
    windows."""

    on: str
    delays_us: tuple[tuple[str, int], ...] = (("", 0),)
    idle_us: int | None = None


@dataclass(frozen=True, slots=True)
class BarrierSpec:
    """The k-th rows of all inputs, of each key if there are keys, leave together as one row."""

    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostedSpec:
    """A Python operator hosted in the driver. `make` builds a fresh instance in its initial state."""

    make: Callable[[], Any]
    schemas: tuple[pa.Schema, ...]
    label: str = "operator"
    """The user's class, for `explain()`."""
    checkpoint: CheckpointForm = INCREMENTAL


@dataclass(frozen=True, slots=True)
class SinkSpec:
    sink: Sink


Spec = (
    SourceSpec
    | FilterSpec
    | SelectSpec
    | WithColumnsSpec
    | TransformSpec
    | SqlSpec
    | MapArrowSpec
    | UnionSpec
    | SplitSpec
    | AggregateSpec
    | DedupSpec
    | TopNSpec
    | SortSpec
    | BarrierSpec
    | WindowSpec
    | JoinSpec
    | KeyedSpec
    | HostedSpec
    | SinkSpec
)

AGGREGATING = (AggregateSpec, WindowSpec)
KEYED = (*AGGREGATING, JoinSpec, DedupSpec, TopNSpec, SortSpec, BarrierSpec, KeyedSpec)
"""Operators whose state lies with the executors, by key."""
STATEFUL = (*KEYED, HostedSpec)


# --- what the user asked of it --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """What `.consistent(…)` was told. Seconds throughout. `trigger` is "periodic", "operator" or "manual"."""

    name: str | None = None
    period_s: float = 2.0
    trigger: Literal["periodic", "operator", "manual"] = "periodic"
    mode: Literal["async", "drain"] = "async"
    drain_timeout_s: float = 180.0
    reset_timeout_s: float = 180.0
    max_consecutive_resets: int = 5
    retry_for_s: float = 600.0
    """For so long a cause that may pass by itself is waited for, whatever the number of resets."""
    keep: int = 3
    """Epochs that are always kept: the newest ones."""
    keep_for_s: float | None = None
    """Younger epochs are kept too."""
    restore_within_s: float | None = None
    """Checkpoints are formed so that restoring one takes at most so long."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """Marks on one operator."""

    consistent: RegionSettings | None = None
    autonomous: bool = False
    checkpoint_every_s: float | None = None
    checkpoint_form: CheckpointForm | None = None
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class InputPort:
    """Streams that meet at one port. A control port changes state only: its rows never cause output."""

    streams: tuple[StreamRef, ...]
    control: bool = False
    autonomous: frozenset[StreamRef] = frozenset()
    """Those of `streams` that come through `.autonomous()`: no region reaches the operator along them."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A node of the graph."""

    name: OperatorName
    spec: Spec
    inputs: tuple[InputPort, ...] = ()
    outputs: int = 1
    named: bool = False
    """True if the user chose the name. Sources, sinks and stateful operators in a region must be named."""
    annotations: Annotations = field(default_factory=Annotations)

    @property
    def kind(self) -> str:
        """ "source", "filter", "select", "with_columns", "aggregate", "hosted", "sink", …"""
        name = type(self.spec).__name__.removesuffix("Spec")
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


@dataclass(frozen=True, slots=True)
class FeedbackMark:
    """A stream that was used before it existed. The ports already name `stream`; None: it was never completed."""

    name: OperatorName
    schema: pa.Schema
    stream: StreamRef | None


@dataclass(frozen=True, slots=True)
class Graph:
    """An immutable graph: operators by name, in the order they were written."""

    name: str
    operators: Mapping[OperatorName, Operator]
    feedback: tuple[FeedbackMark, ...] = ()

    def consumers(self, operator: OperatorName) -> tuple[tuple[Operator, int, StreamRef], ...]:
        """Who reads the operator's outputs: (consumer, its input port, the stream)."""
        return tuple(
            (consumer, index, stream)
            for consumer in self.operators.values()
            for index, port in enumerate(consumer.inputs)
            for stream in port.streams
            if stream.operator == operator
        )
