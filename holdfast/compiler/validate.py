"""First pass: the graph is well formed. Each check is a function that raises a TopologyError with a cure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compiler.traverse import data_cycle
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName, RegionName, is_safe_name
from holdfast.language.annotations import NAME_RULE
from holdfast.language.graph import (
    AGGREGATING,
    STATEFUL,
    AggregateSpec,
    BarrierSpec,
    Graph,
    HostedSpec,
    InputPort,
    JoinSpec,
    Operator,
    SinkSpec,
    SourceSpec,
    StreamRef,
    TimeWindow,
    WindowMatch,
    WindowSpec,
)
from holdfast.language.operators.aggregates import EMITS
from holdfast.state.aggregates.function_names import FUNCTIONS, is_function, is_growing
from holdfast.state.windows.count_windows import ROWS
from holdfast.state.windows.time_windows import END, START


def validate(graph: Graph) -> None:
    """Refuse graphs that are not well formed."""
    check_not_empty(graph)
    check_feedback(graph)
    for name, operator in graph.operators.items():
        check_name(name, operator)
        check_arity(operator)
        for index, port in enumerate(operator.inputs):
            check_port(graph, operator, index, port)
        check_aggregate(operator)
        check_checkpoint(operator)
    check_cycles(graph)


def check_not_empty(graph: Graph) -> None:
    """A topology has at least one source."""
    if not any(isinstance(operator.spec, SourceSpec) for operator in graph.operators.values()):
        raise TopologyError(
            f"Topology {graph.name!r} has no source.", cure="Begin with topology.source(…, name='…')."
        )


def check_feedback(graph: Graph) -> None:
    """Every feedback stream was completed."""
    for mark in graph.feedback:
        if mark.stream is None:
            users = [
                name for name, op in graph.operators.items() if any(_uses(p, mark.name) for p in op.inputs)
            ]
            where = f", used by {', '.join(map(repr, users))}," if users else ""
            raise TopologyError(
                f"The feedback {mark.name!r}{where} was never completed.",
                cure="Call .complete(stream) with the stream that flows back.",
            )


def _uses(port: InputPort, operator: OperatorName) -> bool:
    return any(stream.operator == operator for stream in port.streams)


def check_name(key: OperatorName, operator: Operator) -> None:
    """Names are usable as parts of file names, and are those the graph knows the operators by."""
    if key != operator.name:
        raise TopologyError(
            f"Operator {operator.name!r} is listed as {key!r}.",
            cure="List every operator under its own name.",
        )
    if not is_safe_name(operator.name):
        raise TopologyError(f"{operator.name!r} cannot be the name of an operator.", cure=NAME_RULE)


def check_arity(operator: Operator) -> None:
    """Sources read nothing; everything else has data ports, one unless it is a Python operator."""
    data = [port for port in operator.inputs if not port.control]
    if isinstance(operator.spec, SourceSpec):
        if operator.inputs:
            raise TopologyError(f"Source {operator.name!r} has inputs.", cure="Sources begin a graph.")
    elif not data or not all(port.streams for port in operator.inputs):
        raise TopologyError(
            f"Operator {operator.name!r} ({operator.kind}) has a port without a stream, or no data port.",
            cure="Connect a stream to each port; rows that arrive at data ports are what makes it work.",
        )
    elif isinstance(operator.spec, BarrierSpec):
        if len(data) < 2 or len(operator.inputs) > len(data):
            raise TopologyError(
                f"Operator {operator.name!r} (barrier) has not two data ports or more.",
                cure="Write a.barrier(b).",
            )
    elif isinstance(operator.spec, JoinSpec):
        if len(data) != 2 or len(operator.inputs) != 2:
            raise TopologyError(
                f"Operator {operator.name!r} (join) has not two data ports.", cure="Write a.join(b, …)."
            )
    elif not isinstance(operator.spec, HostedSpec) and len(operator.inputs) > 1:
        raise TopologyError(
            f"Operator {operator.name!r} ({operator.kind}) has several ports or a control port.",
            cure="Only Python operators (topology.operator) can; union the streams before.",
        )


def check_port(graph: Graph, operator: Operator, index: int, port: InputPort) -> None:
    """A port names streams that exist, each once."""
    for stream in port.streams:
        producer = graph.operators.get(stream.operator)
        if producer is None or not 0 <= stream.port < producer.outputs:
            raise TopologyError(
                f"Port {index} of {operator.name!r} reads {str(stream)!r}, which no operator makes.",
                cure="Connect it to a stream of this topology.",
            )
    repeated = _repeated(port.streams)
    if repeated:
        raise TopologyError(
            f"Port {index} of {operator.name!r} reads {str(repeated)!r} twice.",
            cure="Connect each stream once; to double rows, use a select('*') of it as the second.",
        )


def _repeated(streams: tuple[StreamRef, ...]) -> StreamRef | None:
    return next((stream for index, stream in enumerate(streams) if stream in streams[:index]), None)


def check_aggregate(operator: Operator) -> None:
    """An aggregate has keys, known functions, and columns that do not collide."""
    spec = operator.spec
    if not isinstance(spec, AGGREGATING):
        return
    where = f"Operator {operator.name!r} ({operator.kind})"
    if (not spec.by and isinstance(spec, AggregateSpec)) or not spec.aggregates:
        raise TopologyError(
            f"{where} has no {'key columns' if spec.aggregates else 'aggregates'}.",
            cure="Write aggregate('key', n=holdfast.count()).",
        )
    for _, function, column in spec.aggregates:
        if not is_function(function) or (column is None and function != "count"):
            raise TopologyError(
                f"{where} uses {function}({column or ''}), which is not known.",
                cure=f"Use {', '.join(FUNCTIONS)}.",
            )
        if isinstance(spec, AggregateSpec) and spec.emit == "each" and is_growing(function):
            raise TopologyError(
                f"{where} has emit='each' and computes {function}({column}), which keeps lists: one for every row"
                " would cost the square of the rows.",
                cure="Use emit='changes', or compute it in an aggregate of its own.",
            )
    if isinstance(spec, AggregateSpec) and spec.emit not in EMITS:
        raise TopologyError(f"{where} has emit={spec.emit!r}.", cure="Use 'changes' or 'each'.")
    names = [*_window_columns(spec), *spec.by, *(name for name, _, _ in spec.aggregates)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TopologyError(
            f"{where} would make two columns called {', '.join(twice)}.",
            cure="Give the aggregates other names.",
        )


def _window_columns(spec: AggregateSpec | WindowSpec) -> list[str]:
    """The columns by which results of windows are told apart."""
    if not isinstance(spec, WindowSpec):
        return []
    return [START, END] if isinstance(spec.window, TimeWindow) else [ROWS]


def check_checkpoint(operator: Operator) -> None:
    """`.checkpoint(…)` makes sense only where there is state."""
    marks = operator.annotations
    if marks.checkpoint_form is not None and not isinstance(operator.spec, STATEFUL):
        raise TopologyError(
            f"Operator {operator.name!r} ({operator.kind}) has no state that could be stored in one form or another.",
            cure="Put .checkpoint(form=…) right behind an aggregate, a join or a Python operator.",
        )
    form, spec = marks.checkpoint_form, operator.spec
    is_window = isinstance(spec, JoinSpec) and isinstance(spec.match, WindowMatch) and spec.on is None
    if form is not None and form.kind == "groups" and not is_window:
        raise TopologyError(
            f"Operator {operator.name!r} ({operator.kind}) keeps no window of rows as they come.",
            cure="Use hf.groups(…) behind join(…, window=hf.latest(…)) only; elsewhere hf.incremental(…).",
        )
    if marks.checkpoint_every_s is not None and not isinstance(operator.spec, (*STATEFUL, SourceSpec)):
        raise TopologyError(
            f"Operator {operator.name!r} ({operator.kind}) has no state to checkpoint.",
            cure="Put .checkpoint(every=…) right behind an aggregate, a Python operator or a source.",
        )


def check_cycles(graph: Graph) -> None:
    """A cycle passes through a control port."""
    cycle = data_cycle(graph)
    if cycle:
        raise TopologyError(
            f"A cycle passes through data ports only: {' → '.join([*cycle, cycle[0]])}.",
            cure="Connect the feedback stream to a control port: topology.operator(…, control=[feedback.stream]).",
        )


def check_identity(graph: Graph, region_of: Mapping[OperatorName, RegionName]) -> None:
    """What is stored under a name has one that the user chose, so that it is found again after the graph changed."""
    for name, operator in graph.operators.items():
        region = region_of.get(name)
        alone = operator.annotations.checkpoint_every_s is not None
        if region is not None and alone:
            raise TopologyError(
                f"Operator {name!r} belongs to region {region!r}, which decides when its state is saved.",
                cure="Remove .checkpoint(every=…), or end the region before it with .autonomous().",
            )
        stored = region is not None and isinstance(operator.spec, (*STATEFUL, SourceSpec, SinkSpec))
        if (stored or alone) and not operator.named:
            where = f"in region {region!r}" if region is not None else "with .checkpoint(every=…)"
            raise TopologyError(
                f"The {operator.kind} {name!r} {where} has no name of its own.",
                cure="Give it name='…': its state and position are found again by that name after a restart.",
            )
