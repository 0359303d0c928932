"""The graph a user writes, as immutable values. `Topology` and `Stream` build it; the compiler's passes read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from holdfast.ids import OperatorName
from holdfast.language.checkpoint_form import INCREMENTAL, CheckpointForm
from holdfast.language.connectors import Sink, Source
from holdfast.language.context import Context
from holdfast.language.hosted import ERRORS, Missing, OnError, Poison
from holdfast.protocol.bounds.loss_budget import LossBudget
from holdfast.protocol.shape import Mode


@dataclass(frozen=True, slots=True)
class StreamRef:
    """An output port of an operator."""

    operator: OperatorName
    port: int = 0

    def __str__(self) -> str:
        return f"{self.operator}.{self.port}" if self.port else str(self.operator)


# --- what an operator does ------------------------------------------------------------------------------------------


class Spec:
    """What the user said about an operator: a frozen value, one class per kind of operator, called after it (`TopNSpec`: top_n).

    What the kind does with it is found from the class, in `operators/kinds.py`. Here are those that the runtime knows
    by itself; all others are in `language/operators/`. Column expressions are typed Any: this layer must not import
    pyspark."""

    __slots__ = ()
    is_remark: ClassVar[bool] = False
    """It only says something about the rows of a stream."""

    @classmethod
    def kind_name(cls) -> str:
        """ "source", "with_columns", "top_n", …"""
        name = cls.__name__.removesuffix("Spec")
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class PythonSpec(Spec):
    """Of a Python operator with output ports, whose rows may fail one by one."""

    __slots__ = ()
    schemas: tuple[pa.Schema, ...]
    on_error: OnError
    poison: Poison | None

    @property
    def letters(self) -> bool:
        """It has a stream of errors."""
        return self.on_error == "stream" or (self.poison is not None and self.poison.then == "quarantine")

    @property
    def ports(self) -> tuple[pa.Schema, ...]:
        """Columns of each output port; errors come last."""
        return (*self.schemas, ERRORS) if self.letters else self.schemas


@dataclass(frozen=True, slots=True)
class SourceSpec(Spec):
    source: Source


@dataclass(frozen=True, slots=True)
class SinkSpec(Spec):
    sink: Sink
    on_error: OnError = "fail"


@dataclass(frozen=True, slots=True)
class HostedSpec(PythonSpec):
    """A Python operator hosted in the driver. `make` builds a fresh instance in its initial state."""

    make: Callable[[], Any]
    schemas: tuple[pa.Schema, ...]
    label: str = "operator"
    """The user's class, for `explain()`."""
    checkpoint: CheckpointForm = INCREMENTAL
    missing: Missing = "refuse"
    on_error: OnError = "fail"
    names: tuple[str, ...] = ()
    """Of the output ports, if they have some."""
    untimed: str = ""
    """Why the event time of its input does not go on behind it, after "but it …"; "": it does."""
    check: Callable[[Context], Any] | None = field(default=None, compare=False)
    """Looks at the operator's place: answers a sentence, or raises, if it refuses it."""
    processes: bool = True
    """It has `process` or `process_batch`."""
    conditional: bool = False
    """It has `may_checkpoint`: it can be checkpointed at certain points only."""
    threads: int = 0
    """How many threads of its own run its `run(context)`."""
    replayable: bool = False
    """From any state it had, it makes the same rows again by itself: a region may begin at it."""
    poison: Poison | None = None


# --- what the user asked of it --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """The arguments of `.consistent(…)`. Seconds throughout. `trigger` is "periodic", "operator", "manual" or "aware"."""

    name: str | None = None
    period_s: float = 2.0
    trigger: Literal["periodic", "operator", "manual", "aware"] = "periodic"
    mode: Mode = "async"
    drain_timeout_s: float = 180.0
    reset_timeout_s: float = 180.0
    max_consecutive_resets: int = 5
    retry_for_s: float = 600.0
    """How long a cause that may pass by itself is waited for, whatever the number of resets."""
    keep: int = 3
    """Epochs that are always kept: the newest ones."""
    keep_for_s: float | None = None
    """Younger epochs are kept too."""
    restore_within_s: float | None = None
    """Checkpoints are formed so that restoring one takes no longer."""
    retries_own: bool = False
    """A failure of the user's code is tried as often as others, though it comes again in the same way at the same rows."""


@dataclass(frozen=True, slots=True)
class Annotations:
    """Marks on one operator."""

    consistent: RegionSettings | None = None
    autonomous: bool = False
    checkpoint_every_s: float | None = None
    checkpoint_form: CheckpointForm | None = None
    isolated: bool = False
    may_lose: LossBudget | None = None


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
        """The name of its kind."""
        return self.spec.kind_name()


@dataclass(frozen=True, slots=True)
class FeedbackMark:
    """A stream that was used before it existed. The ports already name `stream`; None: it was never completed."""

    name: OperatorName
    schema: pa.Schema
    stream: StreamRef | None


@dataclass(frozen=True, slots=True)
class CompositeMark:
    """A call of a composite that begins a region: all operators that it added."""

    name: str
    members: tuple[OperatorName, ...]
    settings: RegionSettings


@dataclass(frozen=True, slots=True)
class Graph:
    """An immutable graph: operators by name, in the order they were written."""

    name: str
    operators: Mapping[OperatorName, Operator]
    feedback: tuple[FeedbackMark, ...] = ()
    composites: tuple[CompositeMark, ...] = ()

    def check_sources(self) -> None:
        """Asks every source whether it can begin at all: a directory that is missing, say, is refused here."""
        for operator in self.operators.values():
            if isinstance(operator.spec, SourceSpec):
                operator.spec.source.check()
