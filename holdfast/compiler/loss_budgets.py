"""Loss budgets (`.may_lose(…)`): where they make sense, and a graph in which streams have become consistent because of one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.compiler.regions import Regions, find_regions
from holdfast.compiler.traverse import edges, edges_from, reachable
from holdfast.compiler.validate import check_identity
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, RegionSettings
from holdfast.operators.kinds import kind_of


def check_budgets(graph: Graph, regions: Regions) -> None:
    """A budget stands where rows can be lost; one that makes its stream consistent, where that can be done."""
    for name, operator in graph.operators.items():
        budget = operator.annotations.may_lose
        if budget is None:
            continue
        if name in regions.of:
            raise TopologyError(
                f"Operator {name!r} belongs to region {regions.of[name]!r}, in which nothing is lost that could be counted against"
                " may_lose().",
                cure="Leave it out, or put it behind .autonomous(), or before the region.",
            )
        if budget.then == "consistent":
            try:
                made_consistent(graph, {name})
            except TopologyError as error:
                said = f"Operator {name!r} is to become consistent when too much is lost, which is not possible: "
                raise TopologyError(said + error.message, cure=error.cure) from error


def made_consistent(graph: Graph, names: Collection[OperatorName]) -> Graph:
    """The graph in which regions begin at the sources of these operators, as if the user had said `.consistent()` there."""
    for name in names:
        if name in graph.operators:
            graph = _with_marks(graph, name)
    regions = find_regions(graph)
    operators = {}
    for name, operator in graph.operators.items():
        marks = operator.annotations
        if name in regions.of:  # it decides when state is saved, and loses nothing
            marks = replace(marks, checkpoint_every_s=None, may_lose=None)
        elif name in names:
            raise TopologyError(
                f"an .autonomous() lies between {name!r} and its sources.",
                cure="Leave that out, or use then='park'.",
            )
        operators[name] = replace(operator, annotations=marks)
    made = replace(graph, operators=operators)
    check_identity(made, regions.of)
    return made


def _with_marks(graph: Graph, name: OperatorName) -> Graph:
    leaving = edges_from(edges(graph))
    known = find_regions(graph).of
    starts = [
        start
        for start, operator in graph.operators.items()
        if kind_of(operator).begins(operator)
        and start not in known
        and name in reachable(start, leaving, lambda _: True)
    ]
    if not starts:
        raise TopologyError(
            f"all rows of {name!r} come out of regions.",
            cure="Leave the .autonomous() out that ends them before it.",
        )
    behind = {reached for start in starts for reached in reachable(start, leaving, lambda _: True)}
    met = [graph.operators[each].annotations.consistent for each in graph.operators if each in behind]
    settings = next((mark for mark in met if mark is not None), RegionSettings())
    operators = dict(graph.operators)
    for start in starts:
        marks = replace(operators[start].annotations, consistent=settings)
        operators[start] = replace(operators[start], annotations=marks)
    return replace(graph, operators=operators)
