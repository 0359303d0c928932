"""From graph to plan: the row of passes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.compiler.analyse import Analyser, analyse
from holdfast.compiler.composites import mark_composites
from holdfast.compiler.contexts import check_contexts
from holdfast.compiler.eventual import check_eventual
from holdfast.compiler.fusion import Element, connect, fuse, independent, plan_region
from holdfast.compiler.loss_budgets import check_budgets, made_consistent
from holdfast.compiler.order import find_origins, find_stamped, origins_at
from holdfast.compiler.paired import keep_pairs
from holdfast.compiler.persisted.in_plan import check_outages
from holdfast.compiler.persisted.put_logs import put_logs
from holdfast.compiler.plan import ConnectionPlan, ElementPlan, Plan
from holdfast.compiler.regions import find_regions
from holdfast.compiler.timing import settle_times
from holdfast.compiler.validate import check_identity, validate
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, Operator, StreamRef
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Planned
from holdfast.operators.kinds import keyed_kind, kind_of
from holdfast.operators.python.hosted_clock import Clock
from holdfast.operators.shared.logic import KeyedLogic


def compile_graph(
    graph: Graph,
    analyser: Analyser,
    consistent: Collection[OperatorName] = frozenset(),
    *,
    has_store: bool = True,
    logs: Path | None = None,
) -> Plan:
    """Compile a graph; raises TopologyError, naming operator and cure, if it cannot run. `consistent`: operators whose streams have
    lost more than they may and are consistent from now on. Without a store nothing can be kept. `logs`: where the logs of persisted
    streams are whose place nobody gave."""
    validate(graph)
    graph = put_logs(mark_composites(graph), logs)
    before = find_regions(graph).of if consistent else {}
    if consistent:
        graph = made_consistent(graph, consistent)
    graph = keep_pairs(graph) if has_store else graph
    settled = settle_times(graph)
    graph = settled.graph
    regions = find_regions(graph)
    check_identity(graph, regions.of)
    check_contexts(graph, regions)
    check_budgets(graph, regions)
    stamped = find_stamped(graph)
    schemas = analyse(graph, analyser)
    regions, elements = independent(regions, fuse(graph, regions))
    connections = connect(graph, regions, elements)
    planned_elements = tuple(_element(graph, element, connections) for element in elements)
    check_eventual(graph, planned_elements, settled.clocked)
    plan = Plan(
        graph=graph,
        elements=planned_elements,
        connections=connections,
        regions=tuple(plan_region(graph, region, elements, connections) for region in regions.regions),
        stamped=stamped,
        schemas=schemas,
        source_index=source_index(graph),
        fingerprint=fingerprints(graph, schemas),
        taking=settled.taking,
        aside=settled.aside,
        offsets_us=settled.offsets_us,
        timed=settled.timed,
        clocked=settled.clocked,
        adopted=frozenset(name for name in regions.of if consistent and name not in before),
    )
    check_outages(plan)
    return plan


def _element(graph: Graph, element: Element, connections: tuple[ConnectionPlan, ...]) -> ElementPlan:
    """An element with its operators and the connections at its ends."""
    return ElementPlan(
        name=element.name,
        operators=tuple(graph.operators[name] for name in element.operators),
        region=element.region,
        inputs=tuple(c for c in connections if c.target == element.name),
        outputs=tuple(c for c in connections if c.source == element.name),
    )


def source_index(graph: Graph) -> Mapping[OperatorName, int]:
    """A number for everyone who may stamp positions, by sorted name. Those whose rows come in no order are last: they had no
    number once, and stored positions carry those of the others."""
    stamping = [op for op in graph.operators.values() if kind_of(op).stamps(op)]
    numbered = sorted(stamping, key=lambda op: (not kind_of(op).orders(op), op.name))
    return {op.name: index for index, op in enumerate(numbered)}


def fingerprints(graph: Graph, schemas: Mapping[StreamRef, pa.Schema]) -> Mapping[OperatorName, Fingerprint]:
    """What must not change between two runs on one store, per source, sink and stateful operator."""
    found = {}
    for name, op in graph.operators.items():
        inputs = [schemas[port.streams[0]] for port in op.inputs]
        outputs = [schemas[StreamRef(name, port)] for port in range(op.outputs)]
        found[name] = kind_of(op).fingerprint(op, inputs, outputs)
    return {name: fingerprint for name, fingerprint in found.items() if fingerprint is not None}


def logic_of(op: Operator, plan: Plan) -> KeyedLogic:
    """The logic of a keyed operator."""
    return keyed_kind(op).logic(planned(op, plan))


def clock_of(op: Operator, plan: Plan) -> Clock | None:
    """Event time in an operator in the driver, if it hands it on to somebody who goes by it."""
    if op.name not in plan.clocked:
        return None
    found = planned(op, plan)
    ports = {}
    for port, timing in plan.clocked[op.name].items():
        delays = [(str(name), us) for name, us in timing.delays_us.items()]
        ports[port] = found.timed_port(port, (), timing.column or "", delays, timing.idle_us)
    return Clock(ports)


def planned(op: Operator, plan: Plan) -> Planned[Any]:
    """What the passes found out about an operator."""
    found = find_origins(plan.graph)
    origins = [origins_at(port, found) or () for port in op.inputs]
    return Planned(
        op,
        inputs=tuple(plan.schemas[port.streams[0]] for port in op.inputs),
        output=plan.schemas.get(StreamRef(op.name), pa.schema([])),
        stamped=StreamRef(op.name) in plan.stamped,
        number=plan.source_index.get(op.name),
        origins=tuple({plan.source_index[name]: name for name in names} for names in origins),
        aside=frozenset(port for name, port in plan.aside if name == op.name),
        stamped_ports=frozenset(s.port for s in plan.stamped if s.operator == op.name),
        offsets_us={port: us for (name, port), us in plan.offsets_us.items() if name == op.name},
    )
