"""What a topology tells about stored state that a manifest does not: types, functions of the user's, lifetimes, defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.checkpoint.look.fingerprint_reader import Described
from holdfast.checkpoint.look.variables_view import Variables
from holdfast.checkpoint.look.views import Known
from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.compile import compile_graph
from holdfast.errors import ConfigError, MismatchError
from holdfast.language.graph import StreamRef, Ttl
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.build import logic_of
from holdfast.operators.python.keyed_python import KeyedPython
from holdfast.operators.rows.ranked import TopOfWindows
from holdfast.operators.shared.keyed_maps import LivingLogic, MapLogic
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.runtime.engines.spark.stateless import SparkAnalyser
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.variables import Value

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
    logic = logic_of(found[operator], plan)
    output = plan.schemas[StreamRef(found[operator].name)]
    return lambda meta: _known(logic, output, then or "", meta)


def _known(logic: KeyedLogic, output: pa.Schema, fingerprint: str, meta: Any) -> Known:
    match logic:
        case KeyedPython():
            return Known(variables=_variables(logic, fingerprint))
        case WindowedAggregate(windows=windows):
            return Known(windows.aggregation, output.field(0).type)
        case TopOfWindows(windowed=windowed):
            return Known(windowed.windows.aggregation, output.field(0).type)
        case LivingLogic(lifetime=Ttl() as ttl):
            return Known(logic.keyed_map, ends_us=_ended(ttl, meta))
        case MapLogic():
            return Known(logic.keyed_map)
    return Known()


def _ended(ttl: Ttl, meta: Any) -> tuple[int, int] | None:
    """(lifetime, the time up to which keys have ended), see executor/lifetimes.py."""
    meta = meta or {}
    if "reached" in meta:
        return ttl.length_us, meta["reached"] - ttl.delay_us
    return (ttl.length_us, meta["now"]) if "now" in meta else None


def _variables(logic: KeyedPython, fingerprint: str) -> Variables:
    found = declared(type(logic.spec.make()))
    defaults = {name: variable.default for name, variable in found.items() if isinstance(variable, Value)}
    stored = logic.map.state_schema
    names = Described.of(fingerprint).variables
    return Variables(stored, tuple(names.items()), defaults, logic.classes)
