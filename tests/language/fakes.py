"""Tiny sources, sinks and operators for graphs that are compiled but never run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.plan import Plan
from holdfast.errors import TopologyError
from holdfast.language.connectors import Sink, Slice, Source, Stamp, StepId
from holdfast.language.graph import Operator
from holdfast.language.operators.stateless import (
    FilterSpec,
    SelectSpec,
    SqlSpec,
    TransformSpec,
    WithColumnsSpec,
)
from holdfast.language.topology import Topology

WORDS = pa.schema([("word", pa.string()), ("amount", pa.int32())])


class FakeSource(Source):
    def __init__(self, schema: pa.Schema = WORDS) -> None:
        self._schema = schema

    def schema(self) -> pa.Schema:
        return self._schema

    def seek(self, state: Any | None) -> None: ...

    def next_slice(self) -> Slice | None:
        return None

    def snapshot(self) -> Any:
        return None

    def read_spark(self, session: Any, piece: Slice, stamp: Stamp | None) -> Any: ...

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table: ...


class SocketSource(FakeSource):
    replayable = False


class FakeSink(Sink):
    def write_spark(self, frame: Any, step: StepId) -> int | None:
        return None

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        return None


class EpochSink(FakeSink):
    guarantee = "exactly-once"
    reason = "files appear when their epoch is published"


class Python:
    """A Python operator that does nothing."""

    def process(self, row: dict[str, Any], port: int) -> None: ...


class Loose(ArrowAnalyser):
    """Takes expressions on trust: what comes out of them has the columns that went in."""

    def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
        if isinstance(operator.spec, FilterSpec | SelectSpec | WithColumnsSpec | SqlSpec | TransformSpec):
            return [input_schemas[0]]
        return super().output_schemas(operator, input_schemas)


def compiled(topology: Topology) -> Plan:
    return compile_graph(topology.graph(), Loose())


def refused(topology: Topology) -> TopologyError:
    """The error that the compiler refuses it with; it must have a cure."""
    with pytest.raises(TopologyError) as caught:
        compiled(topology)
    assert caught.value.cure
    return caught.value


def assert_refused(topology: Topology, message: str, *cure: str) -> None:
    """`cure`: parts of it."""
    error = refused(topology)
    assert error.message == message
    assert [part for part in cure if part not in error.cure] == []


def members(plan: Plan) -> list[list[str]]:
    return [list(region.members) for region in plan.regions]


def elements(plan: Plan) -> list[list[str]]:
    return [[operator.name for operator in element.operators] for element in plan.elements]


def links(plan: Plan) -> set[tuple[str, str]]:
    return {(c.source + (" control" if c.control else ""), c.target) for c in plan.connections}
