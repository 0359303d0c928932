"""First pass: the graph is well formed. Each check is a function that raises a TopologyError with a cure."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compiler.traverse import data_cycle
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName, RegionName, is_safe_name
from holdfast.language.annotations import NAME_RULE
from holdfast.language.builder import has_letters
from holdfast.language.graph import Graph, InputPort, Operator, StreamRef
from holdfast.operators.kind import KeyedKind, refuse
from holdfast.operators.kinds import kind_of


def validate(graph: Graph) -> None:
    """Refuse graphs that are not well formed."""
    check_not_empty(graph)
    check_feedback(graph)
    for name, operator in graph.operators.items():
        check_name(name, operator)
        check_arity(operator)
        for index, port in enumerate(operator.inputs):
            check_port(graph, operator, index, port)
        kind_of(operator).check(operator)
        check_checkpoint(operator)
    check_errors_read(graph)
    check_cycles(graph)


def check_not_empty(graph: Graph) -> None:
    """A topology has at least one source."""
    if not any(kind_of(operator).begins(operator) for operator in graph.operators.values()):
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
    """Sources read nothing; everything else has data ports, as many as its kind says."""
    if kind_of(operator).begins(operator):
        return
    ports, data = kind_of(operator).ports, sum(not port.control for port in operator.inputs)
    if ports.least and (not data or not all(port.streams for port in operator.inputs)):
        raise refuse(
            operator,
            "has a port without a stream, or no data port",
            "Connect a stream to each port; rows that arrive at data ports are what makes it work.",
        )
    too_many = ports.most is not None and data > ports.most
    if data < ports.least or too_many or (data < len(operator.inputs) and not ports.control):
        raise refuse(operator, ports.wrong, ports.cure)


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


def check_checkpoint(operator: Operator) -> None:
    """`.checkpoint(…)` makes sense only where there is state."""
    marks, kind = operator.annotations, kind_of(operator)
    if marks.checkpoint_form is not None and not kind.stateful:
        raise refuse(
            operator,
            "has no state that could be stored in one form or another",
            "Put .checkpoint(form=…) right behind an aggregate, a join or a Python operator.",
        )
    in_groups = marks.checkpoint_form is not None and marks.checkpoint_form.kind == "groups"
    if in_groups and not (isinstance(kind, KeyedKind) and kind.keeps_groups(operator)):
        raise refuse(
            operator,
            "keeps no window of rows as they come",
            "Use hf.groups(…) behind join(…, keep=hf.latest(…)) only; elsewhere hf.incremental(…).",
        )
    if marks.checkpoint_every_s is not None and not kind.stateful and kind.role != "source":
        raise refuse(
            operator,
            "has no state to checkpoint",
            "Put .checkpoint(every=…) right behind an aggregate, a Python operator or a source.",
        )


def check_errors_read(graph: Graph) -> None:
    """Rows at which an operator or a sink failed go somewhere: left out without a reader, nobody would hear of them."""
    read = {
        stream for operator in graph.operators.values() for port in operator.inputs for stream in port.streams
    }
    for name, operator in graph.operators.items():
        if not has_letters(operator.spec):
            continue
        if StreamRef(name, operator.outputs - 1) not in read:
            has_errors = getattr(operator.spec, "on_error", "fail") == "stream"
            asked = 'on_error="stream"' if has_errors else 'poison="quarantine"'
            raise TopologyError(
                f"{name!r} was told {asked}, and nobody reads its errors.",
                cure=f"Give them a sink, as .errors.sink(…, name='…'), or leave {asked.partition('=')[0]}= out.",
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
        stored = region is not None and kind_of(operator).role != "stateless"
        if (stored or alone) and not operator.named:
            where = f"in region {region!r}" if region is not None else "with .checkpoint(every=…)"
            raise TopologyError(
                f"The {operator.kind} {name!r} {where} has no name of its own.",
                cure="Give it name='…': its state and position are found again by that name after a restart.",
            )
