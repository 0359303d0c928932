"""`Topology`: where a stream graph begins, and how it is run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack, overload

from holdfast.errors import ConfigError, TopologyError
from holdfast.ids import OperatorName
from holdfast.language import hints
from holdfast.language.annotations import safe_name
from holdfast.language.builder import Builder
from holdfast.language.checkpoint_form import CheckpointForm
from holdfast.language.connectors import Source
from holdfast.language.graph import Graph, SourceSpec, StreamRef
from holdfast.language.hints import no_such_name
from holdfast.language.hosted import Missing, OnError, Poison, PoisonThen
from holdfast.language.operators.hosted_python import Schemas, Streams, hosted_spec
from holdfast.language.run import Run, RunOptions, RunStatus, Until
from holdfast.language.schema import to_arrow
from holdfast.language.stream import Stream, any_isolated, input_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNTIME = "holdfast.runtime.api"

Format = Literal["text", "mermaid"]


class Runner(Protocol):
    """What can run a topology. The runtime lies above this layer, so it registers itself: see `set_runner`."""

    def run(
        self, topology: Topology, spark: SparkSession | None, store: Any, until: Until | None, **options: Any
    ) -> RunStatus: ...

    def submit(self, topology: Topology, spark: SparkSession | None, store: Any, **options: Any) -> Run: ...

    def explain(self, topology: Topology, format: Format, spark: SparkSession | None) -> str: ...


_runner: Runner | None = None


def set_runner(runner: Runner | None) -> Runner | None:
    """Say who runs topologies from now on; returns who did before. The Spark runtime does so when first needed."""
    global _runner
    before, _runner = _runner, runner
    return before


class Topology:
    """A stream graph under construction. Written by one thread; `graph()` takes an immutable picture of it."""

    def __init__(self, name: str) -> None:
        self.name = safe_name(name, "a topology")
        self._builder = Builder(self.name)

    def __repr__(self) -> str:
        return f"Topology({self.name!r})"

    def source(self, source: Source, name: str | None = None) -> Stream:
        """Read rows from the outside world. Rows that a source cannot read may be a stream of their own: `.malformed`."""
        if not isinstance(source, Source):
            raise TopologyError(
                f"{source!r} is not a Source.", cure="Pass an object whose class derives from Source."
            )
        if user := self._builder.holds(source):
            raise TopologyError(
                f"The {type(source).__name__} is already read by {user!r}.",
                cure="Use the stream twice instead: every stream may have many readers.",
            )
        outputs = 1 if source.malformed_schema() is None else 2
        return Stream(
            self._builder, StreamRef(self._builder.add(SourceSpec(source), name=name, outputs=outputs))
        )

    @overload
    def operator(
        self,
        operator: Any,
        inputs: Sequence[Stream | Sequence[Stream]],
        control: Sequence[Stream | Sequence[Stream]] = (),
        *,
        schema: Any,
        name: str | None = None,
        checkpoint: CheckpointForm | None = None,
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Stream: ...

    @overload
    def operator(
        self,
        operator: Any,
        inputs: Sequence[Stream | Sequence[Stream]],
        control: Sequence[Stream | Sequence[Stream]] = (),
        *,
        schemas: Schemas = (),
        name: str | None = None,
        checkpoint: CheckpointForm | None = None,
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Streams: ...

    def operator(
        self,
        operator: Any,
        inputs: Sequence[Stream | Sequence[Stream]],
        control: Sequence[Stream | Sequence[Stream]] = (),
        *,
        schema: Any = None,
        schemas: Schemas = (),
        name: str | None = None,
        checkpoint: CheckpointForm | None = None,
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Stream | Streams:
        """A Python operator hosted in the driver, with as many ports as needed.

        `inputs` are its data ports, `control` its control ports; each is a stream, or a list of streams that meet
        there. Ports are numbered in that order, data first. With `schema` it has one output and its stream is
        returned; with `schemas` one per schema, in their order and, from a dict, by name; with neither it has none. `checkpoint`: how declared variables
        are stored, `holdfast.incremental(…)` (the default) or `holdfast.full()`. A row must have the columns of its port's
        schema; with `missing="null"` those that it does not name are null. With
        `on_error="stream"` a row of a data port whose processing raised is in `.errors` of its streams; with `poison=` one that raises
        or hangs several times in the same way is, or parks the region (`hf.Poison`)."""
        spec = hosted_spec(operator, schema, schemas, checkpoint, missing, on_error, poison)
        data, extra = _per_port(inputs, spec.label), _per_port(control, spec.label)
        ports = [input_port(self._builder, streams) for streams in data]
        ports += [input_port(self._builder, streams, control=True) for streams in extra]
        isolated = any(any_isolated(streams) for streams in data)
        made = self._builder.add(spec, ports, name=name, outputs=len(spec.ports), isolated=isolated)
        first = Stream(self._builder, StreamRef(made))
        return first if schema is not None else Streams.made_by(first, spec.schemas, spec.names)

    def feedback(self, schema: Any) -> Feedback:
        """A stream that does not exist yet, for a cycle: use `.stream` now, `.complete(stream)` later.

        A cycle must pass through a control port; that is checked when the topology is compiled."""
        return Feedback(self._builder, self._builder.new_feedback(to_arrow(schema, "the schema of feedback")))

    def graph(self) -> Graph:
        """An immutable picture of what was declared so far."""
        return self._builder.graph()

    def run(
        self,
        spark: SparkSession | None = None,
        store: Any = None,
        until: Until | None = None,
        **options: Unpack[RunOptions],
    ) -> RunStatus:
        """Run until stopped; with `until="available"`, until everything that is there now is processed. `close=True`:
        then event time comes to its end: windows close, rows that wait for time leave, timers are called. Rows of a
        later run on the same store would all be late."""
        _check_until(until)
        return _installed().run(self, spark, store, until, **options)

    def submit(
        self,
        spark: SparkSession | None = None,
        store: Any = None,
        until: Until | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Start running and return a handle with `status()`, `stop()` and `await_termination()`. Arguments as of `run`."""
        _check_until(until)
        if until is None:
            return _installed().submit(self, spark, store, **options)
        return _installed().submit(self, spark, store, until=until, **options)

    def explain(self, format: Format = "text", spark: SparkSession | None = None) -> str:
        """Regions, elements and every sink's guarantee with its reason, as text or as a Mermaid flowchart."""
        if format not in ("text", "mermaid"):
            raise ConfigError(f"format={format!r} is not known.", cure="Use 'text' or 'mermaid'.")
        return _installed().explain(self, format, spark)

    if not TYPE_CHECKING:  # a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> Any:
            raise no_such_name("A Topology", name, hints.TOPOLOGY, dir(Topology))


class Feedback:
    """A pending stream. `stream` may be used at once; `complete` says where its rows come from."""

    def __init__(self, builder: Builder, name: OperatorName) -> None:
        self._builder = builder
        self._name = name
        self.stream = Stream(builder, StreamRef(name))

    def complete(self, stream: Stream) -> None:
        """Close the cycle."""
        input_port(self._builder, (stream,))
        self._builder.complete_feedback(self._name, stream.ref, stream._autonomous)


def _check_until(until: Any) -> None:
    if until not in (None, "available"):
        raise ConfigError(f"until={until!r} is not known.", cure="Use until='available', or leave it out.")


def _installed() -> Runner:
    if _runner is None:
        # The runtime lies above this layer and registers itself when it is imported; nobody needs it before.
        importlib.import_module(RUNTIME)
    assert _runner is not None
    return _runner


def _per_port(ports: Sequence[Stream | Sequence[Stream]], label: str) -> list[tuple[Stream, ...]]:
    if isinstance(ports, Stream):
        raise TopologyError(
            f"{label}: ports come as a list.", cure="Write inputs=[stream], control=[stream]."
        )
    return [(port,) if isinstance(port, Stream) else tuple(port) for port in ports]
