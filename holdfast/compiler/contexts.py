"""Python operators look at their place before anything runs: `check(context)` may refuse it."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.compiler.regions import Regions
from holdfast.errors import HoldfastError, TopologyError
from holdfast.ids import OperatorName
from holdfast.language.annotations import TIMED
from holdfast.language.context import Context
from holdfast.language.graph import Graph


def contexts(graph: Graph, regions: Regions) -> Mapping[OperatorName, Context]:
    """The place of every operator."""
    by_name = {region.name: region for region in regions.regions}
    found = {}
    for name in graph.operators:
        region = by_name.get(regions.of[name]) if name in regions.of else None
        if region is None:
            found[name] = Context(name)
        else:
            settings = region.settings
            found[name] = Context(name, region.name, settings.mode, settings.trigger, name in region.starts)
    return found


def check_points(graph: Graph, regions: Regions) -> None:
    """An operator that can be checkpointed at certain points only needs a region in which it can let input wait."""
    for name, context in contexts(graph, regions).items():
        operator = graph.operators[name]
        if not getattr(operator.spec, "conditional", False) or not context.in_region:
            continue
        where = f"Operator {name!r} of region {context.region!r} has may_checkpoint()"
        if any(port.control for port in operator.inputs):
            raise TopologyError(
                f"{where} and a control port.",
                cure="It would wait for rows of operators that wait for it: use a data port, or leave may_checkpoint out.",
            )
        if operator.inputs and context.mode != "async" and context.trigger in TIMED:
            raise TopologyError(
                f"{where} and inputs, and the region has mode={context.mode!r}, in which nothing may wait before an operator at an"
                f" epoch, and trigger={context.trigger!r}: its epochs would lie anywhere in the input, seldom at a point.",
                cure='Use mode="async", where what waits is stored with the epoch, or trigger="operator", if the input comes to a'
                " point at each of its boundaries (the end of a file).",
            )


def check_contexts(graph: Graph, regions: Regions) -> None:
    """Ask each Python operator that has `check` about its place."""
    check_points(graph, regions)
    for name, context in contexts(graph, regions).items():
        check = getattr(graph.operators[name].spec, "check", None)
        if check is None:
            continue
        try:
            refusal = check(context)
        except HoldfastError as error:
            raise TopologyError(
                f"Operator {name!r} refuses its place: {error.message}", cure=error.cure
            ) from error
        except Exception as error:
            raise TopologyError(f"Operator {name!r} refuses its place: {error}") from error
        if refusal is not None and not isinstance(refusal, str):
            raise TopologyError(
                f"check() of operator {name!r} answered {refusal!r}.",
                cure="It returns None if the place is fine, else a sentence; or it raises.",
            )
        if refusal:
            raise TopologyError(f"Operator {name!r} refuses its place: {refusal}")
