"""Persisted streams: in the place of each `persist` come the two ends of a log, a sink and a source.

    before ──▶ persist "clicks" ──▶ behind        becomes        before ──▶ "clicks.log"     "clicks" ──▶ behind

From here on there are two graphs, each with regions of its own. In a region, what is behind becomes a second region with the same
settings; names, marks and readers of the stream stay those of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.compiler.logs.eventual import is_eventual
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.compiler.regions import reach_of_marks
from holdfast.compiler.timing import stream_timings
from holdfast.compiler.traverse import edges
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName, RegionName
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
from holdfast.language.operators.event_time import EventTimeSpec
from holdfast.language.operators.persist import PersistSpec, ends_of_log
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.operators.kind import Timing
from holdfast.operators.kinds import kind_of

INTO = ".log"
"""Behind the name of the stream: the sink."""
TIME = ".time"
"""Behind the name of the stream: event time, if it goes on."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """A persistent connection of a plan."""

    name: OperatorName
    """Of the stream, and of the source that reads it."""
    into: OperatorName
    sink: Sink
    source: Source
    writing: RegionName | None
    reading: RegionName | None
    recovers: bool
    """What writes into it goes on behind the last rows in the log, whatever happens."""

    @property
    def is_exact(self) -> bool:
        """Whether every row is in the log once."""
        return self.writing is not None or self.recovers


def put_logs(graph: Graph, logs: Path | None) -> Graph:
    """The graph with the ends of logs in the place of `persist`. `logs`: where those are whose place nobody gave."""
    found = [op for op in graph.operators.values() if isinstance(op.spec, PersistSpec)]
    if not found:
        return graph
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
        remark = EventTimeSpec(timing.column or "", delays, timing.idle_us)
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


# --- what a plan has of them ---


def persisted_in(plan: Plan) -> tuple[Persisted, ...]:
    """The persistent connections of a plan, in the order they were written."""
    regions = {member: region.name for region in plan.regions for member in region.members}
    element_of = {op.name: element for element in plan.elements for op in element.operators}
    found = []
    for op in plan.graph.operators.values():
        if isinstance(op.spec, SinkSpec) and op.spec.sink.leads_to is not None:
            name = OperatorName(op.spec.sink.leads_to)
            source = plan.graph.operators[name].spec
            assert isinstance(source, SourceSpec)
            element = element_of[op.name]
            recovers = recovers_from_log(element) or any(map(is_eventual, element.operators))
            found.append(
                Persisted(
                    name,
                    op.name,
                    op.spec.sink,
                    source.source,
                    regions.get(op.name),
                    regions.get(name),
                    recovers,
                )
            )
    return tuple(found)


def recovers_from_log(element: ElementPlan) -> bool:
    """Whether an element needs no checkpoint, because the log that it writes tells where to go on: outside of regions, from sources that
    can be read again, through operators without state, into one log and nowhere else."""
    if element.region is not None or element.inputs or element.outputs:
        return False
    sinks = [op.spec.sink for op in element.operators if isinstance(op.spec, SinkSpec)]
    sources = [op.spec.source for op in element.operators if isinstance(op.spec, SourceSpec)]
    others = [op for op in element.operators if not isinstance(op.spec, SinkSpec | SourceSpec)]
    return (
        len(sinks) == 1
        and sinks[0].leads_to is not None
        and bool(sources)
        and all(source.replayable for source in sources)
        and all(kind_of(op).role == "stateless" and not isinstance(op.spec, ReplayableSpec) for op in others)
    )
