"""A plan for people: plain text, or a Mermaid flowchart; and what a failure may cost at each sink, why, and when its rows
become visible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.compiler.eventual import is_eventual
from holdfast.compiler.paired import pairs_kept_by
from holdfast.compiler.persisted.in_plan import Persisted, persisted_in
from holdfast.compiler.plan import ElementPlan, Plan, RegionPlan
from holdfast.compiler.traverse import Edge, edges, sinks_behind
from holdfast.ids import OperatorName
from holdfast.language.graph import Operator, RegionSettings, SinkSpec
from holdfast.language.operators.stateless import ReplayableSpec
from holdfast.operators.kinds import kind_of

_FOLLOWS = {
    "warn": "it is told, and the run goes on",
    "park": "nothing more is delivered until somebody resumes",
    "consistent": "all that its sources reach becomes a region, at once in run(), else from the next run on",
}
"""What follows when more is lost."""

Names = Mapping[OperatorName, str]


def explain_text(plan: Plan) -> str:
    """Regions with members, elements, operators, and every sink's guarantee, as aligned tables."""
    parts = [_headline(plan)]
    parts += [_region(plan, region, _without_store(plan, region)) for region in plan.regions]
    parts.append(_titled("elements", ("element", "region", "operators", "reads from"), _element_rows(plan)))
    parts.append(_titled("operators", ("operator", "kind", "what", "order"), _operator_rows(plan)))
    budgets = list(_budget_rows(plan))
    if budgets:
        parts.append(_titled("loss budgets", ("stream of", "may lose", "then"), budgets))
    logs = list(_log_rows(plan))
    if logs:
        header = ("stream", "written by", "read by", "guarantee", "log", "reason")
        parts.append(_titled("persistent connections", header, logs))
    hidden = {each.into for each in persisted_in(plan)}
    shown = [each for each in guarantees(plan) if each.sink not in hidden]
    sinks = [(each.sink, each.guarantee, each.visible, each.reason) for each in shown]
    if sinks:
        parts.append(_titled("sinks", ("sink", "guarantee", "visible", "reason"), sinks))
    return "\n\n".join(parts) + "\n"


def _headline(plan: Plan) -> str:
    counts = [
        _count(len(plan.graph.operators) - len(persisted_in(plan)), "operator"),
        _count(len(plan.elements), "element"),
        _count(len(plan.regions), "region"),
    ]
    return f"topology {plan.graph.name}: {', '.join(counts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _without_store(plan: Plan, region: RegionPlan) -> list[str]:
    """What becomes of a region that nobody wrote if the program is run without a store, which it may be if nobody wrote any."""
    kept = [(each, pairs_kept_by(each.name, each.members, plan.graph)) for each in plan.regions]
    pairing = next(names for each, names in kept if each is region)
    if not all(names for _, names in kept):
        return []
    return [
        f"  store    needed: in a run without one there is no such region, and a row that is lost before {', '.join(pairing)} leaves"
        " wrong pairs behind it"
    ]


def _names(plan: Plan, names: Iterable[OperatorName]) -> str:
    """Operators for people: a persisted stream is one, whatever stands for it."""
    into = {each.into: f"into {each.name}" for each in persisted_in(plan)}
    return ", ".join(into.get(name, str(name)) for name in names)


def _region(plan: Plan, region: RegionPlan, more: Sequence[str]) -> str:
    settings = region.settings
    every = f"every {settings.period_s:g} s"
    when = {"periodic": every, "aware": f"trigger aware, once {every}"}.get(
        settings.trigger, f"trigger {settings.trigger}"
    )
    alone = "" if region.group is None else f", one element of region {region.group}"
    return "\n".join(
        [
            f"region {region.name}: mode {settings.mode}, {when}{alone}",
            f"  starts   {', '.join(region.starts)}",
            f"  members  {_names(plan, region.members)}",
            *more,
        ]
    )


def _element_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for element in plan.elements:
        reads = [f"{c.stream}{' (control)' if c.control else ''}" for c in element.inputs]
        reads += [f"{each.name} (log)" for each in persisted_in(plan) if each.name in _members(element)]
        names = _names(plan, _members(element))
        yield element.name, element.region or "-", names, ", ".join(reads) or "-"


def _members(element: ElementPlan) -> list[OperatorName]:
    return [operator.name for operator in element.operators]


def _log_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    home = {op.name: element for element in plan.elements for op in element.operators}
    promised = {each.sink: each for each in guarantees(plan)}
    for each in persisted_in(plan):
        writer, reader = (
            f"element {home[name].name}" if region is None else f"region {region}"
            for name, region in ((each.into, each.writing), (each.name, each.reading))
        )
        own = promised[each.into]
        guarantee = own.guarantee if each.writing is not None or not each.recovers else "exactly-once"
        reason = own.reason if each.writing is not None else _why(each, writer)
        yield str(each.name), writer, reader, guarantee, each.sink.describe(), reason


def _why(each: Persisted, writer: str) -> str:
    if each.recovers:
        return f"{writer} needs no checkpoint: after any failure it goes on behind the last rows in the log"
    return "rows come at most once, those lost are counted"


def _operator_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    ordered = {stream.operator for stream in plan.stamped}
    logs = persisted_in(plan)
    into, read = {each.into for each in logs}, {each.name for each in logs}
    for operator in plan.graph.operators.values():
        if operator.name not in into:
            order = "positions" if operator.name in ordered else "-"
            kind = "persist" if operator.name in read else operator.kind
            yield operator.name, kind, kind_of(operator).what(operator), order


def _budget_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    for operator in plan.graph.operators.values():
        budget = operator.annotations.may_lose
        if budget is not None:
            yield operator.name, budget.words(), _FOLLOWS[budget.then]


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
    for log in persisted_in(plan):
        labels[log.into] = _quoted(f"into {log.name}")
        labels[log.name] = f"{_quoted(log.name)}<br/>persist"
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
    lines += [f"  {ids[each.into]} == log ==> {ids[each.name]}" for each in persisted_in(plan)]
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


Guarantee = Literal["exactly-once", "exactly-once for single failures", "at-least-once", "best effort"]


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """One sink's promise, in words for people."""

    sink: OperatorName
    guarantee: Guarantee
    reason: str
    visible: str


def guarantees(plan: Plan) -> tuple[SinkGuarantee, ...]:
    """The guarantee of every sink, in the order they were written."""
    region_of = {member: region for region in plan.regions for member in region.members}
    behind = sinks_behind(plan.graph, logs=False)
    found = [
        _guarantee(plan, operator, operator.spec, region_of.get(operator.name), behind)
        for operator in plan.graph.operators.values()
        if isinstance(operator.spec, SinkSpec)
    ]
    return tuple(_through_logs(plan, each, {of.sink: of for of in found}) for each in found)


def _through_logs(
    plan: Plan, found: SinkGuarantee, alone: Mapping[OperatorName, SinkGuarantee]
) -> SinkGuarantee:
    """The promise with what the logs before the sink make of it. `alone`: that of each sink without."""
    behind = sinks_behind(plan.graph)
    before = [log for log in persisted_in(plan) if found.sink in behind[log.name] and log.into != found.sink]
    if not before:
        return found
    said = []
    for log in before:
        into = alone[log.into]
        if not log.is_exact:
            said.append(f"but into the log of {log.name} rows come at most once, those lost are counted")
        elif log.writing is not None and (into.guarantee != "exactly-once" or "; but " in into.reason):
            said.append(f"but what is in the log of {log.name} is as its own line says")
    names = ", ".join(log.name for log in before)
    return replace(
        found, reason="; ".join([found.reason, *(said or [f"every row is in the log of {names} once"])])
    )


Behind = Mapping[OperatorName, tuple[OperatorName, ...]]
"""The sinks behind each operator."""


def _guarantee(
    plan: Plan, operator: Operator, spec: SinkSpec, region: RegionPlan | None, behind: Behind
) -> SinkGuarantee:
    if region is None and any(is_eventual(op) for op in _before(plan, operator)):
        reason = (
            "records of windows stand in the log beside the results, and a failure goes back to what they tell; no store is"
            " needed for it"
        )
        return SinkGuarantee(operator.name, "exactly-once", reason, "at once")
    if region is None:
        reason = "; ".join(filter(None, [_alone(plan, operator, behind), spec.sink.alone]))
        return SinkGuarantee(operator.name, "best effort", reason, "at once")
    reason = f"in region {region.name}; {spec.sink.reason}"
    ports = _best_effort_ports(plan, operator.name, region, behind)
    promised: Guarantee = "exactly-once"
    if _is_fed_alone(plan, operator.name, behind):
        promised = "exactly-once for single failures"
        reason = (
            f"in region {region.group}, whose elements fail and restart alone; {spec.sink.reason}; a death of the driver may"
            " cost or repeat what went between elements since their own epochs, those lost are counted; an end in order costs nothing"
        )
    kept = [name for name in region.starts if isinstance(plan.graph.operators[name].spec, ReplayableSpec)]
    kept = [name for name in kept if operator.name in behind[name]]
    ports = [port for port in ports if not any(port.endswith(f" of {name}") for name in kept)]
    if kept:
        reason += (
            f"; rows that enter by {', '.join(kept)} are in the store before they are worked on, until an epoch has them: a reset"
            " and the death of the driver cost none of them; those on their way there are lost with the driver, and counted"
        )
    if ports:
        reason += f"; but rows that enter by {', '.join(ports)} are best effort"
    with_epoch = spec.sink.when_visible(epoch_delay(region.settings))
    if spec.sink.guarantee == "exactly-once":
        return SinkGuarantee(operator.name, promised, reason, with_epoch)
    visible = with_epoch if spec.sink.shows_with_epoch else "at once"
    return SinkGuarantee(operator.name, "at-least-once", reason, visible)


def _before(plan: Plan, operator: Operator) -> list[Operator]:
    """Who makes what an operator reads."""
    return [plan.graph.operators[s.operator] for port in operator.inputs for s in port.streams]


def _alone(plan: Plan, sink: Operator, behind: Behind) -> str:
    """Why a sink outside of regions has what it has."""
    before = [r.name for r in plan.regions if any(sink.name in behind[member] for member in r.members)]
    if not before:
        return "autonomous: no region reaches it; rows come at most once, those lost are counted"
    names = " and ".join(f"region {name}" for name in before)
    return (
        f"autonomous: {names} ends before it; rows of it may come again after a reset, those lost are counted"
    )


def _best_effort_ports(plan: Plan, sink: OperatorName, region: RegionPlan, behind: Behind) -> list[str]:
    """Ports before a sink at which rows enter its region from outside."""
    regions = {element.name: element.region for element in plan.elements}
    return [
        f"port {port} of {name}"
        for c in plan.connections
        if regions[c.target] == region.name and regions[c.source] != region.name
        if regions[c.source] is None or not c.preserved
        for name, port in c.ports
        if sink in behind[name]
    ]


def _is_fed_alone(plan: Plan, sink: OperatorName, behind: Behind) -> bool:
    """True if rows reach a sink between elements that have epochs of their own."""
    return any(sink in behind[name] for c in plan.connections if c.preserved for name, _ in c.ports)


def epoch_delay(settings: RegionSettings) -> str:
    """When rows that wait for an epoch can be seen."""
    match settings.trigger:
        case "periodic":
            return f"after each epoch, ≈ {settings.period_s:g} s"
        case "aware":
            return f"after each epoch, when the state is small, at most ≈ {2 * settings.period_s:g} s"
        case "operator":
            return "after each epoch, when the source asks for one"
        case "manual":
            return "after each epoch, on demand"
