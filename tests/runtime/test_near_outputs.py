"""Which streams leave an element for operators in the driver only."""

from __future__ import annotations

from typing import Any

import holdfast as hf
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.ids import OperatorName
from holdfast.language.topology import Topology
from holdfast.runtime.element.element_streams import near_outputs
from holdfast.sinks import MemorySink
from holdfast.sources import Files


class Nothing(hf.Operator):
    def process(self, row: Any, port: int) -> None:
        return None


def test_a_stream_is_near_if_nobody_else_reads_it() -> None:
    topology = Topology("both")
    alone = topology.source(Files("in", "parquet", "k long"), name="alone")
    both = topology.source(Files("too", "parquet", "k long"), name="both")
    alone.apply(Nothing(), "k long", name="one").sink(MemorySink("near-1"), name="one_out")
    both.apply(Nothing(), "k long", name="two").sink(MemorySink("near-2"), name="two_out")
    both.isolate().aggregate("k", n=hf.count(), name="far").sink(MemorySink("near-3"), name="far_out")
    plan = compile_graph(topology.graph(), ArrowAnalyser())
    near = {stream.operator for element in plan.elements for stream in near_outputs(plan, element)}
    left = {c.stream.operator for element in plan.elements for c in element.outputs}
    assert (near, left) == ({OperatorName("alone")}, {"alone", "both"})
