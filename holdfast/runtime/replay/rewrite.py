"""The graph of a replay: other sources and sinks, and one region from the sources to the sinks. Pure: graph in, graph out.

All of it is in a region, whatever the program says: what a death costs outside of regions would make two replays differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.checkpoint_form import CheckpointForm
from holdfast.language.connectors import Sink, Source
from holdfast.language.graph import (
    Annotations,
    Graph,
    InputPort,
    Operator,
    RegionSettings,
    SinkSpec,
    SourceSpec,
    StreamRef,
)
from holdfast.language.operators.persist import PersistSpec
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.operators.kinds import kind_of


def chosen_source(graph: Graph, name: str | None) -> OperatorName:
    """The source whose place the log takes. ConfigError: there is none, or it must be told which."""
    there = [key for key, operator in graph.operators.items() if isinstance(operator.spec, SourceSpec)]
    if name is None and len(there) == 1:
        return there[0]
    found = next((key for key in there if key == name), None)
    if found is None:
        several = ", ".join(there) or "none"
        what = (
            f"topology {graph.name!r} has several sources" if name is None else f"there is no source {name!r}"
        )
        raise ConfigError(f"{what}.", cure=f"Name the one whose rows the log has; there are: {several}.")
    return found


def replayed(
    graph: Graph,
    source: OperatorName,
    instead: Source,
    sink_for: Callable[[OperatorName], Sink],
    settings: RegionSettings,
) -> Graph:
    """The graph with `instead` for its source, and `sink_for(name)` for each of its sinks."""
    passed = {
        name: operator.inputs[0].streams[0]
        for name, operator in graph.operators.items()
        if isinstance(operator.spec, ReplayableSpec | PersistSpec)
    }
    operators = {
        name: _rewritten(operator, source, instead, sink_for, settings, passed)
        for name, operator in graph.operators.items()
        if name not in passed
    }
    return Graph(graph.name, operators, graph.feedback)


def _rewritten(
    operator: Operator,
    source: OperatorName,
    instead: Source,
    sink_for: Callable[[OperatorName], Sink],
    settings: RegionSettings,
    passed: Mapping[OperatorName, StreamRef],
) -> Operator:
    spec, marks = operator.spec, operator.annotations
    begins = kind_of(operator).begins(operator)
    if operator.name == source:
        spec = SourceSpec(instead)
    elif begins:
        _refuse_unrepeatable(operator)
    elif isinstance(spec, SinkSpec):
        spec = SinkSpec(sink_for(operator.name), spec.on_error)
    return replace(
        operator,
        spec=spec,
        inputs=tuple(_rewired(port, passed) for port in operator.inputs),
        named=True,
        annotations=Annotations(
            consistent=settings if begins else None,
            checkpoint_form=_form(marks.checkpoint_form),
            isolated=marks.isolated,
        ),
    )


def _form(form: CheckpointForm | None) -> CheckpointForm | None:
    """Eventual checkpoints lie in the log of a sink, and here there is none."""
    return None if form is not None and form.kind == "eventual" else form


def _rewired(port: InputPort, passed: Mapping[OperatorName, StreamRef]) -> InputPort:
    """`.replayable()` has nothing to do where all can be read again, and the log of `.persist()` is the real run's: who reads them reads
    what they read."""

    def real(stream: StreamRef) -> StreamRef:
        while stream.operator in passed:
            stream = passed[stream.operator]
        return stream

    return InputPort(tuple(map(real, port.streams)), port.control)


def _refuse_unrepeatable(operator: Operator) -> None:
    """Other sources are read as they are, which must be possible."""
    spec = operator.spec
    can_replay = (
        spec.source.replayable if isinstance(spec, SourceSpec) else getattr(spec, "replayable", False)
    )
    if not can_replay:
        raise ConfigError(
            f"{operator.name!r} takes in rows by itself, and a replay would take them from the real run.",
            cure=f"Replay a topology without it, or the log of {operator.name!r}.",
        )
    if isinstance(spec, SourceSpec) and getattr(spec.source, "preserves", None) is not None:
        raise ConfigError(
            f"{operator.name!r} would take in rows of the real run.",
            cure=f"Replay a topology without it, or the log of {operator.name!r}.",
        )
