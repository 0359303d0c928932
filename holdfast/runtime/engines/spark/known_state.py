"""What a topology tells about stored state that a manifest does not: types, functions of the user's, lifetimes, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.compile import compile_graph, logic_of
from holdfast.errors import ConfigError, MismatchError
from holdfast.operators.stored.parts import Known
from holdfast.runtime.engines.spark.stateless import SparkAnalyser

if TYPE_CHECKING:
    from holdfast.language.topology import Topology


Telling = Callable[[Any], Known]
"""From what an operator stored beside its rows to what the topology tells about them."""


def telling(spark: SparkSession, topology: Topology, manifest: Manifest, operator: str) -> Telling:
    """What the topology tells about an operator. It must be the one whose state was stored: MismatchError otherwise."""
    plan = compile_graph(topology.graph(), SparkAnalyser(spark))
    found = {str(name): op for name, op in plan.graph.operators.items()}
    if operator not in found:
        raise ConfigError(
            f"topology {topology.name!r} has no operator {operator!r}.",
            cure="Give the topology that wrote the store.",
        )
    now, then = plan.fingerprint.get(found[operator].name), manifest.fingerprint.get(operator)
    if now != then:
        raise MismatchError(
            f"operator {operator!r} was {then} in epoch {manifest.epoch}, in this topology it is {now}.",
            cure="Give the topology that wrote the epoch, or none.",
        )
    return logic_of(found[operator], plan).known
