"""Persisted streams: in the place of each `persist` come the two ends of a log, a sink and a source.

    before ──▶ persist "clicks" ──▶ behind        becomes        before ──▶ "clicks.log"     "clicks" ──▶ behind

From here on there are two graphs, each with regions of its own. In a region, what is behind becomes a second region with the same
settings; names, marks and readers of the stream stay those of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.compiler.regions import reach_of_marks
from holdfast.compiler.timing import stream_timings
from holdfast.compiler.traverse import edges, edges_from, reachable
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
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
from holdfast.language.operators.event_time import EventTimeSpec
from holdfast.language.operators.persist import PersistSpec, ends_of_log
from holdfast.operators.kind import Timing

INTO = ".log"
"""Behind the name of the stream: the sink."""
TIME = ".time"
"""Behind the name of the stream: event time, if it goes on."""


def put_logs(graph: Graph, logs: Path | None) -> Graph:
    """The graph with the ends of logs in the place of `persist`. `logs`: where those are whose place nobody gave."""
    found = [op for op in graph.operators.values() if isinstance(op.spec, PersistSpec)]
    if not found:
        return graph
    _check_apart(graph, found)
    timings = stream_timings(graph)
    inherited = _inherited(graph)
    made: dict[OperatorName, Operator] = {}
    renamed: dict[StreamRef, StreamRef] = {}
    for op in graph.operators.values():
        if not isinstance(op.spec, PersistSpec):
            made[op.name] = op
            continue
        for each in _ends(graph, op, op.spec, logs, inherited.get(op.name), timings[StreamRef(op.name)]):
            made[each.name] = each
            if isinstance(each.spec, EventTimeSpec):
                renamed[StreamRef(op.name)] = StreamRef(each.name)
    operators = {name: _reading(op, renamed) for name, op in made.items()}
    marks = tuple(
        replace(mark, stream=renamed.get(mark.stream, mark.stream)) if mark.stream else mark
        for mark in graph.feedback
    )
    return replace(graph, operators=operators, feedback=marks)


def _check_apart(graph: Graph, found: Sequence[Operator]) -> None:
    """Each has a log of its own, and none waits for what it feeds."""
    paths: dict[str, OperatorName] = {}
    leaving = edges_from(edges(graph))
    for op in found:
        path = op.spec.path if isinstance(op.spec, PersistSpec) else None
        if path is not None and (other := paths.setdefault(path, op.name)) != op.name:
            raise TopologyError(
                f"The streams {other!r} and {op.name!r} are persisted in one log, {path}.",
                cure="Give each a log of its own, or union them before.",
            )
        behind = (reachable(edge.target, leaving, lambda _: True) for edge in leaving.get(op.name, ()))
        if any(op.name in each for each in behind):
            raise TopologyError(
                f"A cycle passes through the log of {op.name!r}: a run that reads to the end would never find it.",
                cure="Persist a stream that does not flow back.",
            )


def _ends(
    graph: Graph,
    op: Operator,
    spec: PersistSpec,
    logs: Path | None,
    inherited: RegionSettings | None,
    timing: Timing | None,
) -> list[Operator]:
    for suffix in (INTO, TIME):
        if OperatorName(f"{op.name}{suffix}") in graph.operators:
            raise TopologyError(
                f"The stream {op.name!r} is persisted, and there is an operator {op.name + suffix!r}.",
                cure="Call that one otherwise.",
            )
    if not op.named:
        raise TopologyError(
            f"The persisted stream {op.name!r} is in a composite without a name of its own.",
            cure="Give the call of the composite a name=…: by it the log is found again.",
        )
    if not any(edge.source == op.name for edge in edges(graph)):
        raise TopologyError(
            f"Nobody reads the persisted stream {op.name!r}.",
            cure="Write it with .sink(hf.LogSink(…), name='…'), if a log is all you want.",
        )
    sink, source = ends_of_log(str(op.name), spec, logs)
    into = OperatorName(f"{op.name}{INTO}")
    marks = op.annotations
    ends = [
        Operator(into, SinkSpec(sink), op.inputs, 0, True, Annotations(isolated=marks.isolated, autonomous=marks.autonomous)),
        Operator(
            op.name,
            SourceSpec(source),
            named=True,
            annotations=replace(marks, consistent=marks.consistent or inherited, isolated=False, autonomous=False),
        ),
    ]  # fmt: skip
    if timing is not None:
        delays = tuple((str(name), us) for name, us in timing.delays_us.items())
        remark = EventTimeSpec(
            timing.column or "", delays, timing.idle_us, not timing.direct, timing.offset_us
        )
        port = InputPort((StreamRef(op.name),))
        ends.append(Operator(OperatorName(f"{op.name}{TIME}"), remark, (port,)))
    return ends


def _inherited(graph: Graph) -> Mapping[OperatorName, RegionSettings]:
    """Settings of the regions in which streams are persisted whose readers say nothing else."""
    found = edges(graph)
    settings: dict[OperatorName, RegionSettings] = {}
    for mark, members in reach_of_marks(graph, found):
        given = graph.operators[mark].annotations.consistent or RegionSettings()
        trigger = "periodic" if given.trigger == "operator" else given.trigger
        settings |= dict.fromkeys(members, replace(given, name=None, trigger=trigger))
    readers = {edge.source for edge in found if not edge.autonomous}
    return {name: each for name, each in settings.items() if name in readers}


def _reading(op: Operator, renamed: Mapping[StreamRef, StreamRef]) -> Operator:
    """The operator with the streams that it reads under their new names."""
    if not renamed or (isinstance(op.spec, EventTimeSpec) and StreamRef(op.name) in renamed.values()):
        return op
    ports = tuple(
        replace(
            port,
            streams=tuple(renamed.get(stream, stream) for stream in port.streams),
            autonomous=frozenset(renamed.get(stream, stream) for stream in port.autonomous),
        )
        for port in op.inputs
    )
    return replace(op, inputs=ports)
