"""Aggregates and joins whose checkpoints stand in their output log (`hf.eventual(…)`): where that can be done."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.compiler.plan import ElementPlan
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, InputPort, Operator, SinkSpec, SourceSpec, StreamRef
from holdfast.language.operators.aggregates import WindowSpec
from holdfast.language.operators.joins import JoinSpec, WindowMatch
from holdfast.operators.kinds import kind_of
from holdfast.state.eventual.records import RECORD_COLUMNS

EXAMPLE = "source.aggregate(…, window=…).checkpoint(form=hf.eventual(…)).sink(hf.LogSink(path))"


def is_eventual(operator: Operator) -> bool:
    form = operator.annotations.checkpoint_form
    return form is not None and form.kind == "eventual"


def check_eventual(graph: Graph, elements: Sequence[ElementPlan], clocked: Collection[OperatorName]) -> None:
    """What is replayed must be there again, reach nobody else, and its results a log. `clocked`: those that hand event time on."""
    for element in elements:
        for operator in element.operators:
            if is_eventual(operator):
                check_windows(operator)
                check_sink(graph, operator, clocked)
                check_element(element, operator)


def check_windows(operator: Operator) -> None:
    spec = operator.spec
    if isinstance(spec, JoinSpec):
        check_join(operator, spec)
    elif isinstance(spec, WindowSpec):
        check_aggregate(operator, spec)
    else:
        raise _refused(
            operator,
            "is neither an aggregate over windows nor a join of them",
            "Use aggregate(…, window=…) or join(…, keep=hf.latest(rows=…)); elsewhere hf.incremental(…).",
        )
    if operator.annotations.checkpoint_every_s is not None:
        raise _refused(
            operator, "has checkpoints of its own beside those in its log", "Write hf.eventual(every=…) only."
        )
    if operator.annotations.may_lose is not None:
        raise _refused(operator, "loses nothing that may_lose() could be about", "Leave may_lose() out.")


def check_join(operator: Operator, spec: JoinSpec) -> None:
    if not isinstance(spec.match, WindowMatch) or spec.on is not None:
        raise _refused(
            operator,
            "joins by time, where what a row meets depends on both streams",
            "Use join(…, keep=hf.latest(rows=…)) without on=; elsewhere hf.incremental(…).",
        )
    if any(window.per_key for window in (spec.match.left, spec.match.right)):
        raise _refused(
            operator,
            "keeps rows of each key, of which the oldest may lie anywhere in the input",
            "Use hf.latest(rows=…) without per_key=True; elsewhere hf.groups(…).",
        )


def check_aggregate(operator: Operator, spec: WindowSpec) -> None:
    if taken := sorted(set(spec.by) & RECORD_COLUMNS):
        raise _refused(
            operator,
            f"its key {taken[0]!r} has the name of a column of the records of windows",
            f"Call it otherwise before: .rename({taken[0]}='…').",
        )
    if spec.late:
        raise _refused(
            operator, "sends late rows to a stream of their own", "Leave late=True out: they are counted."
        )


def check_sink(graph: Graph, operator: Operator, clocked: Collection[OperatorName]) -> None:
    """One reader: a log."""
    streams = {StreamRef(operator.name, port) for port in range(operator.outputs)}
    readers = [op for op in graph.operators.values() for port in op.inputs if streams & set(port.streams)]
    logs = [op for op in readers if isinstance(op.spec, SinkSpec) and op.spec.sink.keeps_notes]
    if len(readers) != 1 or len(logs) != 1:
        found = ", ".join(repr(str(op.name)) for op in readers) or "nobody"
        raise _refused(
            operator,
            f"is read by {found}, and records of windows stand in the one log that has the results",
            f"Write {EXAMPLE}; others read that log by hf.LogSource(path), or behind .persist(name) in its place.",
        )
    spec = logs[0].spec
    if isinstance(spec, SinkSpec) and (spec.on_error != "fail" or len(logs[0].inputs[0].streams) != 1):
        raise _refused(
            operator,
            f"shares the log of {logs[0].name!r} with other rows",
            "Give it a log of its own, without on_error=.",
        )
    if logs[0].name in clocked and not kind_of(operator).stamps(operator):
        raise _refused(
            operator,
            f"its windows are not over time, and behind the log of {logs[0].name!r} somebody goes by that of its input",
            "Declare it behind the log: .event_time('at', delay=…).",
        )


def check_element(element: ElementPlan, operator: Operator) -> None:
    if element.region is not None:
        raise _refused(
            operator,
            f"belongs to region {element.region!r}, whose epochs hold its state",
            "Leave form=hf.eventual(…) out, or take it out of the region: it is exactly-once by itself.",
        )
    if not any(isinstance(op.spec, SinkSpec) and op.spec.sink.keeps_notes for op in element.operators):
        raise _refused(operator, "does not work in one element with its log", "Leave isolate() out.")
    sources = [op for op in element.operators if isinstance(op.spec, SourceSpec)]
    behind = [sources_behind(element, port) for port in operator.inputs]
    if element.inputs or any(len(names) != 1 for names in behind) or len(sources) != len(operator.inputs):
        count = "one source" if len(sources) == 1 else f"{len(sources)} sources"
        came = "from another element" if element.inputs else f"from {count}"
        each = "each side of it" if len(operator.inputs) > 1 else "it"
        raise _refused(
            operator,
            f"gets rows that come {came}, and would have to get them again after a failure",
            f"Let one source feed {each}, by way of filter, select and the like only; put other rows into a log first, and read that by"
            " hf.LogSource(path).",
        )
    for source in sources:
        if isinstance(source.spec, SourceSpec) and not source.spec.source.replayable:
            raise _refused(
                operator,
                f"reads {source.name!r}, which cannot give a row again",
                "Wrap the source: hf.Preserved(source, path).",
            )
    others = [
        op.name
        for op in element.operators
        if op is not operator and kind_of(op).role not in ("source", "stateless", "sink")
    ]
    others += [op.name for op in element.operators if _is_beside(element, op, operator)]
    if others:
        raise _refused(
            operator,
            f"shares its source with {', '.join(repr(str(name)) for name in others)}, to whom a replay would bring rows twice",
            "Give it a source of its own.",
        )


def sources_behind(element: ElementPlan, port: InputPort) -> list[OperatorName]:
    """The sources of an element from which rows come to a port, by whatever way."""
    operators = {op.name: op for op in element.operators}
    found: set[OperatorName] = set()
    waiting = [stream.operator for stream in port.streams]
    while waiting:
        if (op := operators.get(waiting.pop())) is None:
            continue
        if isinstance(op.spec, SourceSpec):
            found.add(op.name)
        waiting += [stream.operator for each in op.inputs for stream in each.streams]
    return sorted(found)


def _is_beside(element: ElementPlan, op: Operator, operator: Operator) -> bool:
    """True if a stateless operator or a source has readers that do not lead to the operator, or a sink is not its log."""
    if op is operator:
        return False
    if isinstance(op.spec, SinkSpec):
        return all(stream.operator != operator.name for port in op.inputs for stream in port.streams)
    readers = [
        other
        for other in element.operators
        for port in other.inputs
        for s in port.streams
        if s.operator == op.name
    ]
    return not readers or bool([c for c in element.outputs if c.stream.operator == op.name])


def _refused(operator: Operator, why: str, cure: str) -> TopologyError:
    return TopologyError(f"Operator {operator.name!r} has form=hf.eventual(…), but {why}.", cure=cure)
