"""Graphs that are not well formed are refused with a cure."""

from __future__ import annotations

from dataclasses import replace

import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.compiler.validate import validate
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, InputPort, Operator, StreamRef
from holdfast.language.operators.aggregates import AggregateSpec
from holdfast.language.topology import Topology
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python, assert_refused, compiled, refused


def changed(graph: Graph, name: str, **changes: object) -> Graph:
    key = OperatorName(name)
    return replace(graph, operators={**graph.operators, key: replace(graph.operators[key], **changes)})


def small() -> Graph:
    t = Topology("t")
    t.source(FakeSource(), "a").aggregate("word", n=agg.count(), name="n").sink(EpochSink(), name="x")
    return t.graph()


def test_a_topology_needs_a_source() -> None:
    assert refused(Topology("empty")).message == "Topology 'empty' has no source."


def test_a_topology_needs_no_sink() -> None:
    t = Topology("t")
    t.source(FakeSource(), "a").consistent()
    assert len(compiled(t).elements) == 1


@pytest.mark.parametrize("kind", ["source", "sink", "aggregate", "hosted"])
def test_what_is_stored_by_a_region_needs_a_name(kind: str) -> None:
    def name(of: str) -> str | None:
        return None if of == kind else of

    t = Topology("t")
    a = t.source(FakeSource(), name("source")).consistent("r")
    b = a.aggregate("word", n=agg.count(), name=name("aggregate"))
    b.apply(Python, WORDS, name=name("hosted")).sink(EpochSink(), name=name("sink"))
    assert_refused(t, f"The {kind} '{kind}_1' in region 'r' has no name of its own.", "name='…'")


def test_outside_of_regions_names_are_generated() -> None:
    t = Topology("t")
    t.source(FakeSource()).aggregate("word", n=agg.count()).sink(EpochSink())
    assert list(compiled(t).graph.operators) == ["source_1", "aggregate_1", "sink_1"]


def test_an_independent_checkpoint_needs_a_name_too() -> None:
    t = Topology("t")
    t.source(FakeSource()).aggregate("word", n=agg.count()).checkpoint(every=5)
    assert "with .checkpoint(every=…) has no name" in refused(t).message


def test_an_independent_checkpoint_needs_state() -> None:
    t = Topology("t")
    t.source(FakeSource()).filter("true", name="f").checkpoint(every=5)
    assert refused(t).message == "Operator 'f' (filter) has no state to checkpoint."


def test_a_region_decides_when_its_members_are_saved() -> None:
    t = Topology("t")
    t.source(FakeSource(), "a").consistent().aggregate("word", n=agg.count(), name="n").checkpoint(every=5)
    error = refused(t)
    assert "belongs to region 'a'" in error.message
    assert ".autonomous()" in error.cure


def test_feedback_must_be_completed() -> None:
    t = Topology("t")
    back = t.feedback(WORDS)
    t.operator(Python, inputs=[t.source(FakeSource())], control=[back.stream], schema=WORDS, name="p")
    assert_refused(t, "The feedback 'feedback_1', used by 'p', was never completed.", ".complete(stream)")


def test_a_cycle_through_a_data_port_is_refused() -> None:
    t = Topology("t")
    back = t.feedback(WORDS)
    p = t.operator(Python, inputs=[t.source(FakeSource()), back.stream], schema=WORDS, name="p")
    back.complete(p.filter("true", name="f"))
    assert_refused(t, "A cycle passes through data ports only: p → f → p.", "control=[feedback.stream]")


def test_a_cycle_that_passes_a_control_port_may_filter_on_the_way() -> None:
    t = Topology("t")
    back = t.feedback(WORDS)
    calm = back.stream.filter("amount > 1", name="calm")
    p = t.operator(Python, inputs=[t.source(FakeSource())], control=[calm], schema=WORDS, name="p")
    back.complete(p)
    plan = compiled(t)
    assert [(c.source, c.target, c.control) for c in plan.connections][-1] == ("p", "p", True)


def test_one_stream_may_not_enter_a_port_twice() -> None:
    t = Topology("t")
    a = t.source(FakeSource(), "a")
    a.union(a, name="u")
    assert refused(t).message == "Port 0 of 'u' reads 'a' twice."


def test_a_python_operator_needs_a_data_port() -> None:
    t = Topology("t")
    t.operator(Python, inputs=[], control=[t.source(FakeSource())], schema=WORDS, name="p")
    assert "no data port" in refused(t).message


def test_only_python_operators_have_control_ports() -> None:
    graph = small()
    port = InputPort((StreamRef(OperatorName("a")),))
    broken = changed(graph, "n", inputs=(port, replace(port, control=True)))
    with pytest.raises(TopologyError, match="several ports or a control port"):
        validate(broken)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            AggregateSpec(("word",), (("n", "median", "amount"),)),
            r"uses median\(amount\), which is not known",
        ),
        (AggregateSpec(("word",), (("n", "sum", None),)), r"uses sum\(\), which is not known"),
        (AggregateSpec(("word",), ()), "has no aggregates"),
        (AggregateSpec((), (("n", "count", None),)), "has no key columns"),
        (AggregateSpec(("word",), (("word", "count", None),)), "two columns called word"),
        (AggregateSpec(("word",), (("n", "count", None),), "never"), "has emit='never'"),  # type: ignore[arg-type]
    ],
)
def test_an_aggregate_is_made_of_known_parts(spec: AggregateSpec, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        validate(changed(small(), "n", spec=spec))


def test_ports_name_streams_that_exist() -> None:
    stray = InputPort((StreamRef(OperatorName("a"), 3),))
    with pytest.raises(TopologyError, match=r"reads 'a.3', which no operator makes"):
        validate(changed(small(), "n", inputs=(stray,)))


def test_names_become_parts_of_file_names() -> None:
    graph = small()
    bad = OperatorName("../x")
    operators = {**graph.operators, bad: replace(graph.operators[OperatorName("a")], name=bad)}
    with pytest.raises(TopologyError, match="cannot be the name of an operator"):
        validate(replace(graph, operators=operators))


def test_operators_are_listed_under_their_own_names() -> None:
    graph = small()
    operators: dict[OperatorName, Operator] = {
        OperatorName("z") if name == "a" else name: operator for name, operator in graph.operators.items()
    }
    with pytest.raises(TopologyError, match="is listed as 'z'"):
        validate(replace(graph, operators=operators))
