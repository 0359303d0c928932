"""Where event time is known: declared once, it travels with the rows.

A stream has event time behind `event_time(…)`, and behind operators that leave the positions of rows alone, or give them new
ones in the order of time. Operators that were not told a column or a delay of their own take the stream's. Where rows
that moved time on may be missing on the way, times travel beside the rows: only such streams pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.compiler.order import Origins, check_ordered, find_origins, origins_at
from holdfast.compiler.traverse import topological
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, InputPort, Operator, SinkSpec, StreamRef
from holdfast.language.operators.event_time import DECLARED, EventTimeSpec, UsesTime
from holdfast.operators.kind import Ordering, Timing
from holdfast.operators.kinds import kind_of

Timings = Mapping[StreamRef, Timing | None]


@dataclass(frozen=True, slots=True)
class Settled:
    """The graph whose operators all know their event time; the ports that take times beside their rows, those whose rows go
    by another column than time does, and those where times are not quite what the column says; the streams beside which
    times travel, with those who read them; and the event time of each data port of operators that hand it on."""

    graph: Graph
    taking: frozenset[tuple[OperatorName, int]]
    aside: frozenset[tuple[OperatorName, int]]
    offsets_us: Mapping[tuple[OperatorName, int], int]
    timed: Mapping[StreamRef, frozenset[OperatorName]]
    clocked: Mapping[OperatorName, Mapping[int, Timing]]


@dataclass
class _Ports:
    """What `Settled` says about ports, as far as it is known."""

    taking: set[tuple[OperatorName, int]] = field(default_factory=set)
    aside: set[tuple[OperatorName, int]] = field(default_factory=set)
    offsets: dict[tuple[OperatorName, int], int] = field(default_factory=dict)

    def follow(self, name: OperatorName, port: int, timing: Timing, column: str | None) -> None:
        """A port goes by the watermark of its stream, and its rows by a column."""
        own = timing.tells and column in (DECLARED, timing.column)
        if not (own and timing.direct):
            self.taking.add((name, port))
        if not own:
            self.aside.add((name, port))
        if column == DECLARED and timing.offset_us:
            self.offsets[name, port] = timing.offset_us


def settle_times(graph: Graph) -> Settled:
    """Tell every operator what it was not told itself; TopologyError if nobody said it."""
    operators, _, ports, handing = _walk(graph)
    settled = replace(graph, operators=operators)
    timed, clocked = _timed(settled, ports, handing)
    return Settled(settled, frozenset(ports.taking), frozenset(ports.aside), ports.offsets, timed, clocked)


def stream_timings(graph: Graph) -> Timings:
    """The event time of every stream."""
    return _walk(graph)[1]


Handing = dict[OperatorName, Mapping[int, Timing]]


def _walk(
    graph: Graph,
) -> tuple[dict[OperatorName, Operator], dict[StreamRef, Timing | None], _Ports, Handing]:
    """(operators that know their event time, that of each stream, of ports, of operators that hand it on)"""
    operators = dict(graph.operators)
    timings: dict[StreamRef, Timing | None] = {}
    ports = _Ports()
    handing: Handing = {}
    origins = find_origins(graph)
    for name in topological(graph):
        op = operators[name]
        given = [at_port(port, timings) for port in op.inputs]
        if isinstance(op.spec, EventTimeSpec):
            made: list[Timing | None] = [_declared(op.spec, _ordered(graph, op, origins))]
        else:
            if isinstance(op.spec, UsesTime):
                op = operators[name] = replace(op, spec=_with_times(op, given, graph, timings))
                for port, timing, column in _followed(graph.operators[name], given):
                    ports.follow(name, port, timing, column)
            made = kind_of(op).timings(op, given)
            if isinstance(op.spec, SinkSpec) or (kind_of(op).role == "hosted" and any(made)):
                data = [(port, timing) for port, timing in enumerate(given) if not op.inputs[port].control]
                handing[name] = {port: timing for port, timing in data if timing is not None}
        timings.update({StreamRef(name, port): each for port, each in enumerate(made)})
    return operators, timings, ports, handing


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
    if spec.beside:
        return Timing(spec.on or None, delays, spec.idle_us, tells=False, offset_us=spec.offset_us)
    return Timing(spec.on, delays, spec.idle_us, direct=True)


def _with_times(op: Operator, given: Sequence[Timing | None], graph: Graph, timings: Timings) -> Any:
    """The spec with what the streams know."""
    spec = op.spec
    assert isinstance(spec, UsesTime)
    columns = list(spec.times())
    nowhere = given[0] is None or given[0].column is None
    if columns and DECLARED in columns and nowhere and (timeless := spec.without()) is not None:
        return timeless
    for port, column in enumerate(columns):
        timing = given[port] if port < len(given) else None
        if column == DECLARED and timing is None:
            where = _where_lost(graph, op.inputs[port], timings)
            if where is not None:
                why = kind_of(where).untimed(where) or "makes rows of its own"
                raise TopologyError(
                    f"Operator {op.name!r} ({op.kind}) goes by event time, which was declared, but {where.kind}"
                    f" {where.name!r} {why}.",
                    cure=f"Declare it again behind {where.name!r}: .event_time('at', delay='30 seconds').",
                )
            raise TopologyError(
                f"Operator {op.name!r} ({op.kind}) goes by event time, but nobody said where it is.",
                cure="Say it once, behind the source: .event_time('at', delay='30 seconds'); or here: on='at', delay=30.",
            )
        if column == DECLARED and timing is not None and timing.column is None:
            raise TopologyError(
                f"Operator {op.name!r} ({op.kind}) goes by event time, but the column in which it was declared is not"
                " among those of its rows.",
                cure="Let the operator that makes the rows give that column, with its type; or name another one: on='ended'.",
            )
        if timing is None and spec.follows():
            raise TopologyError(
                f"Operator {op.name!r} ({op.kind}) goes by event time, but nobody said how far rows may be out of"
                " order.",
                cure="Say it once, behind the source: .event_time('at', delay='30 seconds'); or here: delay=30."
                " delay=0: whatever is not in the order of time is late.",
            )
        if column == DECLARED and timing is not None and timing.column is not None:
            columns[port] = timing.column
    if not spec.follows():
        return spec.with_times(tuple(columns), None, None)
    delays = {
        str(name): us for timing in given if timing is not None for name, us in timing.delays_us.items()
    }
    idle = [timing.idle_us for timing in given if timing is not None and timing.idle_us is not None]
    return spec.with_times(tuple(columns), tuple(sorted(delays.items())), min(idle, default=None))


def _where_lost(graph: Graph, port: InputPort, timings: Timings) -> Operator | None:
    """The operator behind which a declared event time is not known any more, if it was declared at all."""
    seen: set[StreamRef] = set()
    todo = [stream for stream in port.streams if timings.get(stream) is None]
    while todo:
        stream = todo.pop()
        op = graph.operators[stream.operator]
        before = [each for input_port in op.inputs for each in input_port.streams]
        if any(timings.get(each) is not None for each in before):
            return op
        seen.add(stream)
        todo += [each for each in before if each not in seen]
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
    graph: Graph, ports: _Ports, handing: Mapping[OperatorName, Mapping[int, Timing]]
) -> tuple[Mapping[StreamRef, frozenset[OperatorName]], Mapping[OperatorName, Mapping[int, Timing]]]:
    """(the ports' streams and all they come from, back to where time is known, with those who read their times; those of
    the operators that hand time on which somebody needs). The ports of the latter are added to the others."""
    timed: dict[StreamRef, frozenset[OperatorName]] = {}
    clocked: dict[OperatorName, Mapping[int, Timing]] = {}
    todo = [(s, name) for name, port in ports.taking for s in graph.operators[name].inputs[port].streams]
    while todo:
        stream, reader = todo.pop()
        known = timed.get(stream, frozenset())
        timed[stream] = known | {reader}
        producer = graph.operators[stream.operator]
        if not known and not knows_time(producer):
            todo += [(before, producer.name) for before in producer.inputs[0].streams]
            continue
        teller = graph.operators[_whose_clock(graph, producer)]
        if teller.name in handing and teller.name not in clocked:
            clocked[teller.name] = handing[teller.name]
            for port, timing in handing[teller.name].items():
                ports.follow(teller.name, port, timing, None if timing.column is None else DECLARED)
                if (teller.name, port) in ports.taking:
                    todo += [(before, teller.name) for before in teller.inputs[port].streams]
    return timed, clocked


def _whose_clock(graph: Graph, producer: Operator) -> OperatorName:
    """Whose clock tells the times where they begin: the operator's itself, or, behind a log, that of the end where rows enter it."""
    if isinstance(producer.spec, EventTimeSpec) and producer.spec.beside:
        source = producer.inputs[0].streams[0].operator
        sinks = {op.name: op.spec for op in graph.operators.values() if isinstance(op.spec, SinkSpec)}
        return next(name for name, spec in sinks.items() if spec.sink.leads_to == source)
    return producer.name


def knows_time(op: Operator) -> bool:
    """Whether times of its output begin with it."""
    return isinstance(op.spec, EventTimeSpec) or kind_of(op).stamps(op)
