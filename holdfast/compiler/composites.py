"""Composites that begin a region: their starts are marked, as if the user had said `.consistent(…)` behind each."""

from __future__ import annotations

from dataclasses import replace

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import CompositeMark, Graph


def mark_composites(graph: Graph) -> Graph:
    """The graph with the starts of its composites marked; what is marked already stays as it is."""
    operators = dict(graph.operators)
    for mark in graph.composites:
        for name in starts_of(graph, mark):
            known = operators[name].annotations
            if known.consistent is None:
                operators[name] = replace(
                    operators[name], annotations=replace(known, consistent=mark.settings)
                )
    return replace(graph, operators=operators)


def starts_of(graph: Graph, mark: CompositeMark) -> list[OperatorName]:
    """Members that read nothing, or only what comes from outside of the composite."""
    inside = set(mark.members)
    if not inside:
        raise TopologyError(
            f"The composite {mark.name!r} is consistent, but adds no operator.", cure="Leave consistent= out."
        )
    return [
        name
        for name in mark.members
        if not any(
            stream.operator in inside
            for port in graph.operators[name].inputs
            if not port.control
            for stream in port.streams
        )
    ]
