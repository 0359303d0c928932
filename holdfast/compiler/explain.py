"""A plan for people: plain text, or a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.compiler.guarantee import guarantees
from holdfast.compiler.plan import ElementPlan, Plan, RegionPlan
from holdfast.compiler.traverse import Edge, edges
from holdfast.ids import OperatorName
from holdfast.language.graph import (
    AggregateSpec,
    AsofMatch,
    BarrierSpec,
    CountWindow,
    DedupSpec,
    DeltaWindow,
    HostedSpec,
    IntervalMatch,
    JoinSpec,
    KeyedSpec,
    Latest,
    MarkedWindow,
    Operator,
    RowWindow,
    SinkSpec,
    SortSpec,
    SourceSpec,
    SplitSpec,
    TimeWindow,
    TopNSpec,
    Ttl,
    WindowMatch,
    WindowSpec,
)

Names = Mapping[OperatorName, str]


def explain_text(plan: Plan) -> str:
    """Regions with members, elements, operators, and every sink's guarantee, as aligned tables."""
    parts = [_headline(plan)]
    parts += [_region(region) for region in plan.regions]
    parts.append(_titled("elements", ("element", "region", "operators", "reads from"), _element_rows(plan)))
    parts.append(_titled("operators", ("operator", "kind", "what", "order"), _operator_rows(plan)))
    sinks = [(each.sink, each.guarantee, each.visible, each.reason) for each in guarantees(plan)]
    if sinks:
        parts.append(_titled("sinks", ("sink", "guarantee", "visible", "reason"), sinks))
    return "\n\n".join(parts) + "\n"


def _headline(plan: Plan) -> str:
    counts = [
        _count(len(plan.graph.operators), "operator"),
        _count(len(plan.elements), "element"),
        _count(len(plan.regions), "region"),
    ]
    return f"topology {plan.graph.name}: {', '.join(counts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _region(region: RegionPlan) -> str:
    settings = region.settings
    when = (
        f"every {settings.period_s:g} s" if settings.trigger == "periodic" else f"trigger {settings.trigger}"
    )
    return "\n".join(
        [
            f"region {region.name}: mode {settings.mode}, {when}",
            f"  starts   {', '.join(region.starts)}",
            f"  members  {', '.join(region.members)}",
        ]
    )


def _element_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for element in plan.elements:
        reads = [f"{c.stream}{' (control)' if c.control else ''}" for c in element.inputs]
        names = ", ".join(operator.name for operator in element.operators)
        yield element.name, element.region or "-", names, ", ".join(reads) or "-"


def _operator_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    ordered = {stream.operator for stream in plan.stamped}
    for operator in plan.graph.operators.values():
        yield operator.name, operator.kind, what(operator), "positions" if operator.name in ordered else "-"


def what(operator: Operator) -> str:
    """An operator in one phrase."""
    match operator.spec:
        case SourceSpec(source=source):
            return source.describe()
        case SinkSpec(sink=sink):
            return sink.describe()
        case HostedSpec(label=label):
            return label
        case AggregateSpec() as spec:
            computed = ", ".join(f"{name}={fn}({column or ''})" for name, fn, column in spec.aggregates)
            return f"by {', '.join(spec.by)}: {computed}, emit {spec.emit}{_lifetime(spec.ttl)}"
        case DedupSpec(by=by, ttl=ttl):
            return f"first row by {', '.join(by)}{_lifetime(ttl)}"
        case BarrierSpec(by=by):
            return f"{len(operator.inputs)} inputs row by row" + (f", by {', '.join(by)}" if by else "")
        case SortSpec(on=on):
            return f"in the order of {on}{_idle(operator.spec.idle_us)}"
        case TopNSpec(n=n, by=by, order=order, window=window):
            best = ", ".join(f"{'-' if descending else ''}{column}" for column, descending in order)
            panes = (
                f", windows of {window.size_us / 1e6:g} s of {window.on}{_idle(window.idle_us)}"
                if window
                else ""
            )
            return f"first {n} by {', '.join(by) or 'nothing'} in the order of {best}{panes}"
        case JoinSpec() as spec:
            return f"{_join(spec)}{_idle(spec.idle_us)}"
        case KeyedSpec(by=by, label=label, variables=variables):
            state = ", ".join(f"{name} {described}" for name, described in variables)
            return f"{label} by {', '.join(by)}: {state or 'no state'}"
        case WindowSpec(window=window) as spec:
            computed = ", ".join(f"{name}={fn}({column or ''})" for name, fn, column in spec.aggregates)
            return f"by {', '.join(spec.by) or 'nothing'}: {computed}, windows {_window(window)}"
        case SplitSpec() as spec:
            return f"into {', '.join(spec.names) or operator.outputs}"
    return "-"


def _lifetime(ttl: Ttl | None) -> str:
    if ttl is None:
        return ""
    return f", forgotten after {ttl.length_us / 1e6:g} s of {ttl.on or 'processing time'}"


def _window(window: TimeWindow | RowWindow) -> str:
    match window:
        case CountWindow(size=size, every=every):
            return f"of {size} rows every {every}"
        case DeltaWindow(delta=delta, of=of, every=every):
            return f"of {delta} of {of}" + ("" if every is None else f" every {every} rows")
        case MarkedWindow(until=until):
            return f"until {until}"
    length = f"of {window.size_us / 1e6:g} s every {window.slide_us / 1e6:g} s of {window.on}"
    return length + _idle(window.idle_us)


def _idle(idle_us: int | None) -> str:
    return "" if idle_us is None else f", sources idle after {idle_us / 1e6:g} s"


def _join(spec: JoinSpec) -> str:
    keys = ", ".join(a if a == b else f"{a}={b}" for a, b in zip(spec.left_by, spec.right_by, strict=True))
    by = f"{spec.how}, by {keys}" if keys else spec.how
    match spec.match:
        case IntervalMatch(before_us=before, after_us=after):
            return f"{by}, from {before / 1e6:g} s before to {after / 1e6:g} s after"
        case AsofMatch(tolerance_us=reach):
            return f"{by}, latest not later" + ("" if reach is None else f", at most {reach / 1e6:g} s older")
        case WindowMatch(left=left, right=right):
            return f"{by}, left keeps {_latest(left)}, right keeps {_latest(right)}"


def _latest(window: Latest) -> str:
    if window.size_us is not None:
        return f"{window.size_us / 1e6:g} s"
    return f"{window.rows} rows{' per key' if window.per_key else ''}"


def _titled(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the last column runs free."""
    table = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *(f"  {line}".rstrip() for line in lines)])


# --- Mermaid --------------------------------------------------------------------------------------------------------


def explain_mermaid(plan: Plan) -> str:
    """A flowchart: a box per region and element, thick arrows for connections, dotted ones for control ports."""
    ids = {name: f"o{index}" for index, name in enumerate(plan.graph.operators)}
    notes = {each.sink: each.guarantee for each in guarantees(plan)}
    labels = {
        name: "<br/>".join(_quoted(text) for text in (name, operator.kind, notes.get(name, "")) if text)
        for name, operator in plan.graph.operators.items()
    }
    lines = ["flowchart LR"]
    for index, region in enumerate(plan.regions):
        inside = [element for element in plan.elements if element.region == region.name]
        boxes = [line for element in inside for line in _box(plan, element, ids, labels)]
        lines += [
            f'  subgraph r{index}["region {_quoted(region.name)}"]',
            *(f"  {line}" for line in boxes),
            "  end",
        ]
    for element in plan.elements:
        if element.region is None:
            lines += _box(plan, element, ids, labels)
    lines += [f"  {ids[edge.source]} {_arrow(plan, edge)} {ids[edge.target]}" for edge in edges(plan.graph)]
    return "\n".join(lines) + "\n"


def _box(plan: Plan, element: ElementPlan, ids: Names, labels: Names) -> list[str]:
    number = [each.name for each in plan.elements].index(element.name)
    nodes = [f'    {ids[operator.name]}["{labels[operator.name]}"]' for operator in element.operators]
    return [f'  subgraph e{number}["element {_quoted(element.name)}"]', *nodes, "  end"]


def _arrow(plan: Plan, edge: Edge) -> str:
    if edge.control:
        return "-. control .->"
    crossing = any(
        c.stream == edge.stream and (edge.target, edge.port) in c.ports and not c.control
        for c in plan.connections
    )
    return "==>" if crossing else "-->"


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
