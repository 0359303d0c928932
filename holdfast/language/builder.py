"""The one mutable thing behind a topology: operators as they are declared. `Topology` and `Stream` write into it; the
verbs of `Stream`, spread over several files, derive from `Verbs`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.annotations import safe_name
from holdfast.language.connectors import Source
from holdfast.language.graph import (
    Annotations,
    CompositeMark,
    FeedbackMark,
    Graph,
    InputPort,
    Operator,
    RegionSettings,
    SourceSpec,
    Spec,
    StreamRef,
)

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


class Builder:
    """Collects operators and marks. Not thread-safe: a topology is written by one thread.

    A feedback stream is known under a name of its own until it is completed; `graph()` puts the real one in its place.
    """

    def __init__(self, topology: str) -> None:
        self.topology = topology
        self._operators: dict[OperatorName, Operator] = {}
        self._feedback: dict[OperatorName, pa.Schema] = {}
        self._completed: dict[OperatorName, tuple[StreamRef, bool]] = {}
        self._counts: dict[str, int] = {}
        self._scope: tuple[str, ...] = ()
        """Names of the composites that are being called, the outermost first."""
        self._is_stable = True
        """False while a name of them is only one more of its kind: it may be another's in the next run."""
        self._calls: dict[str, int] = {}
        self._composites: list[CompositeMark] = []

    def add(
        self,
        spec: Spec,
        inputs: Sequence[InputPort] = (),
        *,
        name: str | None = None,
        outputs: int = 1,
        isolated: bool = False,
    ) -> OperatorName:
        """Declare an operator; returns its name, generated if the user gave none."""
        marks = Annotations(isolated=isolated)
        is_named = name is not None and self._is_stable
        operator = Operator(OperatorName(""), spec, tuple(inputs), outputs, is_named, marks)
        chosen = self._new_name(operator.kind) if name is None else self._take_name(name)
        self._operators[chosen] = replace(operator, name=chosen)
        return chosen

    @contextmanager
    def within(self, name: str | None, called: str, settings: RegionSettings | None) -> Iterator[None]:
        """What is added inside belongs to a call of a composite: names begin with that of the call."""
        before = self._scope, self._is_stable, set(self._operators)
        self._scope, self._is_stable = self._enter(name, called)
        try:
            yield
        finally:
            scope = ".".join(self._scope)
            self._scope, self._is_stable = before[:2]
        if settings is not None:
            members = tuple(name for name in self._operators if name not in before[2])
            self._composites.append(CompositeMark(scope, members, settings))

    def _enter(self, name: str | None, called: str) -> tuple[tuple[str, ...], bool]:
        scope = (*self._scope, called if name is None else safe_name(name, "a composite"))
        whole = ".".join(scope)
        count = self._calls[whole] = self._calls.get(whole, 0) + 1
        if count == 1:
            return scope, self._is_stable
        if name is not None:
            raise TopologyError(
                f"There are two calls of composites called {whole!r} in topology {self.topology!r}.",
                cure="Give each call its own name=….",
            )
        return (*self._scope, f"{called}_{count}"), False

    def mark(self, operator: OperatorName, **marks: Any) -> None:
        """Annotate the operator; saying the same twice is fine, saying something else is not."""
        if operator in self._feedback:
            raise TopologyError(
                f"The feedback stream {operator!r} is not made by an operator yet.",
                cure="Mark the stream that you pass to complete(…) instead.",
            )
        known = self._operators[operator]
        for key, value in marks.items():
            before = getattr(known.annotations, key)
            if before is not None and before != value:
                raise TopologyError(
                    f"Operator {operator!r} is marked .{key.removesuffix('_every_s')}(…) twice, with different settings.",
                    cure="Mark it once.",
                )
        self._operators[operator] = replace(known, annotations=replace(known.annotations, **marks))

    def change_source(self, operator: OperatorName, change: Callable[[Source], Source]) -> None:
        """Let the operator read another source, made of its own."""
        known = self._operators.get(operator)
        if known is None or not isinstance(known.spec, SourceSpec):
            raise TopologyError(
                f"{operator!r} is no source, and only sources are preserved: what it makes is made again from its input.",
                cure="Put .preserve(…) right behind topology.source(…); rows of other streams are kept by .sink(hf.LogSink(…)).",
            )
        self._operators[operator] = replace(known, spec=SourceSpec(change(known.spec.source)))

    def made_by(self, operator: OperatorName) -> OperatorName:
        """The operator that made the rows: those that only say something about them are passed over."""
        while operator in self._operators and self._operators[operator].spec.is_remark:
            (stream,) = self._operators[operator].inputs[0].streams
            operator = stream.operator
        return operator

    def holds(self, connector: object) -> OperatorName | None:
        """The operator that already uses this source or sink object."""
        for operator in self._operators.values():
            source, sink = getattr(operator.spec, "source", None), getattr(operator.spec, "sink", None)
            if any(connector is one for one in (source, sink, getattr(source, "preserves", None))):
                return operator.name
        return None

    def malformed_of(self, stream: StreamRef) -> StreamRef:
        """The stream of rows that a source could not read."""
        known = self._operators.get(stream.operator)
        if known is None or not isinstance(known.spec, SourceSpec) or known.outputs < 2 or stream.port:
            raise TopologyError(
                f"The stream {str(stream)!r} has no malformed rows of its own.",
                cure='Ask the stream of a source that was told malformed="stream".',
            )
        return StreamRef(stream.operator, 1)

    def late_of(self, stream: StreamRef) -> StreamRef:
        """The stream of rows that were too late for an operator."""
        known = self._operators.get(stream.operator)
        if known is None or not getattr(known.spec, "late", False) or stream.port:
            raise TopologyError(
                f"The stream {str(stream)!r} has no late rows of its own.",
                cure="Ask what an aggregate over event time gives that was told late=True.",
            )
        return StreamRef(stream.operator, 1)

    def errors_of(self, stream: StreamRef) -> StreamRef:
        """The stream of rows at which a Python operator or a sink failed."""
        known = self._operators.get(stream.operator)
        if known is None or not has_letters(known.spec):
            raise TopologyError(
                f"The stream {str(stream)!r} has no errors of its own.",
                cure='Ask the stream of a Python operator, or what a sink returns, that was told on_error="stream", or poison="quarantine".',
            )
        return StreamRef(stream.operator, known.outputs - 1)

    def new_feedback(self, schema: pa.Schema) -> OperatorName:
        name = self._new_name("feedback")
        self._feedback[name] = schema
        return name

    def complete_feedback(self, name: OperatorName, stream: StreamRef, autonomous: bool) -> None:
        if name in self._completed:
            raise TopologyError(
                f"The feedback {name!r} is completed twice.",
                cure="Complete it once; union the streams before.",
            )
        if stream.operator in self._feedback:
            raise TopologyError(
                f"The feedback {name!r} is completed with a feedback stream.",
                cure="Complete it with a stream that an operator makes.",
            )
        self._completed[name] = (stream, autonomous)

    def graph(self) -> Graph:
        """The graph as declared so far, feedback put in its place."""
        operators = {name: self._finished(operator) for name, operator in self._operators.items()}
        feedback = tuple(
            FeedbackMark(name, schema, self._completed[name][0] if name in self._completed else None)
            for name, schema in self._feedback.items()
        )
        return Graph(self.topology, operators, feedback, tuple(self._composites))

    def _finished(self, operator: Operator) -> Operator:
        inputs = tuple(self._resolved(port) for port in operator.inputs)
        autonomous = bool(inputs) and all(port.autonomous.issuperset(port.streams) for port in inputs)
        return replace(
            operator, inputs=inputs, annotations=replace(operator.annotations, autonomous=autonomous)
        )

    def _resolved(self, port: InputPort) -> InputPort:
        streams, autonomous = [], set(port.autonomous)
        for stream in port.streams:
            real, ends_region = self._completed.get(stream.operator, (stream, False))
            streams.append(real)
            if ends_region or stream in port.autonomous:
                autonomous.add(real)
        return replace(port, streams=tuple(streams), autonomous=frozenset(autonomous & set(streams)))

    def _taken(self, name: str) -> bool:
        return name in self._operators or name in self._feedback

    def _take_name(self, name: str) -> OperatorName:
        safe_name(name, "an operator")
        name = safe_name(".".join((*self._scope, name)), "an operator")
        if self._taken(name):
            raise TopologyError(
                f"There are two operators called {name!r} in topology {self.topology!r}.",
                cure="Give each operator its own name=….",
            )
        return OperatorName(name)

    def _new_name(self, kind: str) -> OperatorName:
        kind = ".".join((*self._scope, kind))
        while True:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}_{self._counts[kind]}"
            if not self._taken(name):
                return OperatorName(name)


def has_letters(spec: Spec) -> bool:
    """Whether an operator has a stream of errors, its last."""
    return getattr(spec, "on_error", "fail") == "stream" or bool(getattr(spec, "letters", False))


class Verbs(ABC):
    """A part of `Stream`, which says how operators are added."""

    __slots__ = ()

    @abstractmethod
    def _then(self, spec: Spec, name: str | None, outputs: int = 1, beside: Sequence[Stream] = ()) -> Stream:
        """Add an operator that reads this stream, and those `beside` it, each at a port of its own."""
