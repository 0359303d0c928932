"""Where event time is known: declared once, it travels with the rows.

A stream has event time behind `event_time(…)`, and behind operators that leave the positions of rows alone, or give them new
ones in the order of time. Operators that were not told a column or a delay of their own take the stream's. Where rows
that moved time on may be missing on the way, times travel beside the rows: only such streams pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.compiler.order import Origins, check_ordered, find_origins, origins_at
from holdfast.compiler.traverse import topological
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, InputPort, Operator, StreamRef
from holdfast.language.operators.event_time import DECLARED, EventTimeSpec, UsesTime
from holdfast.operators.kind import Ordering, Timing
from holdfast.operators.kinds import kind_of

Timings = Mapping[StreamRef, Timing | None]


@dataclass(frozen=True, slots=True)
class Settled:
    """The graph whose operators all know their event time; the ports that take times beside their rows, those whose rows go
    by another column than time does, and those where times are not quite what the column says; the streams beside which
    times travel, with those who read them."""

    graph: Graph
    taking: frozenset[tuple[OperatorName, int]]
    aside: frozenset[tuple[OperatorName, int]]
    offsets_us: Mapping[tuple[OperatorName, int], int]
    timed: Mapping[StreamRef, frozenset[OperatorName]]


def settle_times(graph: Graph) -> Settled:
    """Tell every operator what it was not told itself; TopologyError if nobody said it."""
    operators = dict(graph.operators)
    timings: dict[StreamRef, Timing | None] = {}
    taking: set[tuple[OperatorName, int]] = set()
    aside: set[tuple[OperatorName, int]] = set()
    offsets: dict[tuple[OperatorName, int], int] = {}
    origins = find_origins(graph)
    for name in topological(graph):
        op = operators[name]
        given = [at_port(port, timings) for port in op.inputs]
        if isinstance(op.spec, EventTimeSpec):
            made: Timing | None = _declared(op.spec, _ordered(graph, op, origins))
        else:
            if isinstance(op.spec, UsesTime):
                op = operators[name] = replace(op, spec=_told(op, given, graph))
                for port, timing, column in _followed(graph.operators[name], given):
                    own = timing.tells and column in (DECLARED, timing.column)
                    if not (own and timing.direct):
                        taking.add((name, port))
                    if not own:
                        aside.add((name, port))
                    if column == DECLARED and timing.offset_us:
                        offsets[name, port] = timing.offset_us
            made = kind_of(op).timing(op, given)
        timings.update({StreamRef(name, port): made for port in range(op.outputs)})
    settled = replace(graph, operators=operators)
    return Settled(settled, frozenset(taking), frozenset(aside), offsets, _timed(settled, taking))


def at_port(port: InputPort, timings: Timings) -> Timing | None:
    """Event time where streams meet: of all or of none. What is behind takes the earliest watermark."""
    found = [timings.get(stream) for stream in port.streams]
    known = [timing for timing in found if timing is not None]
    if not known or len(known) < len(found):
        return None
    delays = {name: us for timing in known for name, us in timing.delays_us.items()}
    idle = [timing.idle_us for timing in known if timing.idle_us is not None]
    same = len({timing.column for timing in known}) == 1
    offsets = {timing.offset_us for timing in known}
    if len(offsets) > 1:
        return None
    direct = same and all(timing.direct for timing in known)
    tells = same and all(timing.tells for timing in known)
    return Timing(known[0].column, delays, min(idle, default=None), direct, tells, offsets.pop())


def _ordered(graph: Graph, op: Operator, origins: Mapping[OperatorName, Origins]) -> frozenset[OperatorName]:
    """Where the rows come from for which event time is declared: without positions there is no watermark."""
    why = Ordering(
        "declares event time", several=None, lost="Declare it before that operator, or leave that out."
    )
    check_ordered(graph, op, why, op.inputs[0], origins)
    return origins_at(op.inputs[0], origins) or frozenset()


def _declared(spec: EventTimeSpec, origins: frozenset[OperatorName]) -> Timing:
    given = dict(spec.delays_us)
    unknown = sorted(set(given) - origins - {""})
    if unknown:
        raise TopologyError(
            f"event_time() has a delay for {', '.join(map(repr, unknown))}, which no row of the stream comes from.",
            cure=f"Name {', '.join(map(repr, sorted(origins)))}.",
        )
    delays = {}
    for name in origins:
        if name not in given and "" not in given:
            raise TopologyError(
                f"event_time() has no delay for the source {name!r}.", cure="Give one for each source."
            )
        delays[name] = given.get(name, given.get("", 0))
    return Timing(spec.on, delays, spec.idle_us, direct=True)


def _told(op: Operator, given: Sequence[Timing | None], graph: Graph) -> Any:
    """The spec with what the streams know."""
    spec = op.spec
    assert isinstance(spec, UsesTime)
    columns = list(spec.times())
    if columns and DECLARED in columns and given[0] is None and (timeless := spec.without()) is not None:
        return timeless
    for port, column in enumerate(columns):
        timing = given[port] if port < len(given) else None
        if column == DECLARED and timing is None:
            where = _where_lost(graph, op.inputs[port])
            if where is not None:
                raise TopologyError(
                    f"Operator {op.name!r} ({op.kind}) goes by event time, which was declared, but {where.kind}"
                    f" {where.name!r} makes rows of its own.",
                    cure=f"Declare it again behind {where.name!r}: .event_time('at', delay='30 seconds').",
                )
            raise TopologyError(
                f"Operator {op.name!r} ({op.kind}) goes by event time, but nobody said where it is.",
                cure="Say it once, behind the source: .event_time('at', delay='30 seconds'); or here: on='at', delay=30.",
            )
        if timing is None and spec.follows():
            raise TopologyError(
                f"Operator {op.name!r} ({op.kind}) goes by event time, but nobody said how far rows may be out of"
                " order.",
                cure="Say it once, behind the source: .event_time('at', delay='30 seconds'); or here: delay=30."
                " delay=0: whatever is not in the order of time is late.",
            )
        columns[port] = timing.column if column == DECLARED and timing is not None else column
    if not spec.follows():
        return spec.told(tuple(columns), None, None)
    delays = {
        str(name): us for timing in given if timing is not None for name, us in timing.delays_us.items()
    }
    idle = [timing.idle_us for timing in given if timing is not None and timing.idle_us is not None]
    return spec.told(tuple(columns), tuple(sorted(delays.items())), min(idle, default=None))


def _where_lost(graph: Graph, port: InputPort) -> Operator | None:
    """The operator behind which a declared event time is not known any more, if it was declared at all."""
    seen: set[OperatorName] = set()
    todo = [(stream.operator, graph.operators[stream.operator]) for stream in port.streams]
    while todo:
        name, last = todo.pop()
        op = graph.operators[name]
        if isinstance(op.spec, EventTimeSpec):
            return last
        if name not in seen:
            seen.add(name)
            keeps = kind_of(op).carries(op) and not kind_of(op).stamps(op)
            todo += [(s.operator, last if keeps else op) for before in op.inputs for s in before.streams]
    return None


def _followed(op: Operator, given: Sequence[Timing | None]) -> list[tuple[int, Timing, str]]:
    """The ports that take the stream's watermark, and the columns that they name."""
    spec = op.spec
    assert isinstance(spec, UsesTime)
    if not spec.follows():
        return []
    return [
        (port, timing, column)
        for port, (column, timing) in enumerate(zip(spec.times(), given, strict=False))
        if timing is not None
    ]


def _timed(
    graph: Graph, taking: set[tuple[OperatorName, int]]
) -> Mapping[StreamRef, frozenset[OperatorName]]:
    """The ports' streams and all they come from, back to where time is known; with those who read their times."""
    timed: dict[StreamRef, frozenset[OperatorName]] = {}
    todo = [(s, name) for name, port in taking for s in graph.operators[name].inputs[port].streams]
    while todo:
        stream, reader = todo.pop()
        known = timed.get(stream, frozenset())
        timed[stream] = known | {reader}
        producer = graph.operators[stream.operator]
        if not known and not knows_time(producer):
            todo += [(before, producer.name) for before in producer.inputs[0].streams]
    return timed


def knows_time(op: Operator) -> bool:
    """Whether times of its output begin with it."""
    return isinstance(op.spec, EventTimeSpec) or kind_of(op).stamps(op)
