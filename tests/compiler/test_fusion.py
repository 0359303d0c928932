"""How operators are fused into elements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import holdfast.language.operators.aggregates as agg
from holdfast.compiler.plan import Plan
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python, compiled, elements, links


def source(t: Topology, name: str) -> Stream:
    return t.source(FakeSource(), name)


def test_a_chain_is_one_element() -> None:
    t = Topology("t")
    source(t, "a").filter("true", name="f").aggregate("word", n=agg.count(), name="n").sink(
        EpochSink(), name="x"
    )
    plan = compiled(t)
    assert elements(plan) == [["a", "f", "n", "x"]]
    assert plan.elements[0].name == "a"
    assert plan.connections == ()


def test_isolate_begins_a_new_element() -> None:
    t = Topology("t")
    a = source(t, "a")
    a.isolate().filter("true", name="f").sink(EpochSink(), name="x")
    a.sink(EpochSink(), name="y")
    assert elements(compiled(t)) == [["a", "y"], ["f", "x"]]


def test_a_python_operator_begins_an_element_and_what_follows_joins_it() -> None:
    t = Topology("t")
    source(t, "a").apply(Python, WORDS, name="p").filter("true", name="f").sink(EpochSink(), name="x")
    plan = compiled(t)
    assert elements(plan) == [["a"], ["p", "f", "x"]]
    assert plan.elements[0].outputs == plan.elements[1].inputs == plan.connections


def test_a_border_of_a_region_cuts() -> None:
    t = Topology("t")
    a = source(t, "a").consistent()
    a.filter("true", name="f").autonomous().filter("true", name="g").sink(EpochSink(), name="x")
    plan = compiled(t)
    assert elements(plan) == [["a", "f"], ["g", "x"]]
    assert [c.region for c in plan.connections] == [None]


def test_a_diamond_with_a_python_operator_in_one_branch_stays_acyclic() -> None:
    t = Topology("t")
    a = source(t, "a")
    p = a.filter("true", name="f").apply(Python, WORDS, name="p")
    a.filter("false", name="g").union(p, name="u").sink(EpochSink(), name="x")
    plan = compiled(t)
    assert elements(plan) == [["a", "f", "g"], ["p", "u", "x"]]
    assert links(plan) == {("a", "p")}
    assert [(c.stream.operator, c.ports) for c in plan.connections] == [
        ("f", (("p", 0),)),
        ("g", (("u", 0),)),
    ]


def test_one_connection_serves_all_ports_of_an_element_that_read_the_stream() -> None:
    t = Topology("t")
    a = source(t, "a")
    p = t.operator(Python, inputs=[a, a], schema=WORDS, name="p")
    p.sink(EpochSink(), name="x")
    plan = compiled(t)
    assert [c.ports for c in plan.connections] == [(("p", 0), ("p", 1))]


def test_control_ports_have_their_own_connection() -> None:
    t = Topology("t")
    a = source(t, "a")
    t.operator(Python, inputs=[a], control=[a], schema=WORDS, name="p")
    plan = compiled(t)
    assert [(c.id, c.control, c.ports) for c in plan.connections] == [
        ("a.0--p", False, (("p", 0),)),
        ("a.0--p--control", True, (("p", 1),)),
    ]


def test_connections_have_distinct_ids_even_if_names_conspire() -> None:
    t = Topology("t")
    one = source(t, "a")
    two = source(t, "a.0--b")
    one.isolate().filter("true", name="b.0--c")
    two.isolate().filter("true", name="c")
    ids = [c.id for c in compiled(t).connections]
    assert len(set(ids)) == 2


VERBS = st.sampled_from(
    ["filter", "isolate", "autonomous", "python", "union", "split", "two ports", "control", "sink"]
)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Graphs of all shapes. Either all sources are marked or none, so that no port mixes consistent and autonomous."""
    t = Topology("random")
    streams = [source(t, f"s{index}") for index in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        for stream in streams:
            stream.consistent()
    for index, verb in enumerate(draw(st.lists(VERBS, max_size=14))):
        one, two = draw(st.sampled_from(streams)), draw(st.sampled_from(streams))
        name = f"o{index}"
        if verb == "filter":
            streams.append(one.filter("true", name=name))
        elif verb == "isolate":
            streams.append(one.isolate().filter("true", name=name))
        elif verb == "autonomous":
            one.autonomous().filter("true", name=name)
        elif verb == "python":
            streams.append(one.apply(Python, WORDS, name=name))
        elif verb == "union" and one != two:
            streams.append(one.union(two, name=name))
        elif verb == "split":
            streams += one.split("true", otherwise=True, name=name)
        elif verb == "two ports":
            streams.append(t.operator(Python, inputs=[one, two.autonomous()], schema=WORDS, name=name))
        elif verb == "control":
            back = t.feedback(WORDS)
            streams.append(t.operator(Python, inputs=[one], control=[back.stream], schema=WORDS, name=name))
            back.complete(draw(st.sampled_from(streams)))
        elif verb == "sink":
            one.sink(EpochSink(), name=name)
    return t


def position(plan: Plan) -> dict[str, int]:
    return {element.name: index for index, element in enumerate(plan.elements)}


@examples(150)
@given(topologies())
def test_every_graph_fuses_into_an_acyclic_graph_of_elements(t: Topology) -> None:
    plan = compiled(t)
    everyone = sorted(name for element in elements(plan) for name in element)
    assert everyone == sorted(plan.graph.operators), "every operator is in exactly one element"
    at = position(plan)
    assert len(at) == len(plan.elements)
    assert all(at[c.source] < at[c.target] for c in plan.connections if not c.control)
    assert len({c.id for c in plan.connections}) == len(plan.connections)


@examples(150)
@given(topologies())
def test_every_edge_is_fused_or_connected(t: Topology) -> None:
    plan = compiled(t)
    home = {op.name: element for element in plan.elements for op in element.operators}
    carried = [(c.stream, port) for c in plan.connections for port in c.ports]
    for operator in plan.graph.operators.values():
        for index, port in enumerate(operator.inputs):
            for stream in port.streams:
                fused = home[stream.operator] is home[operator.name] and not port.control
                assert carried.count((stream, (operator.name, index))) == (0 if fused else 1)
                if fused:
                    names = [op.name for op in home[operator.name].operators]
                    assert names.index(stream.operator) < names.index(operator.name)
    for region in plan.regions:
        inside = set(region.shape.elements)
        assert {
            name for element in plan.elements if element.region == region.name for name in [element.name]
        } == inside
        assert all({link.source, link.target} <= inside for link in region.shape.links)
