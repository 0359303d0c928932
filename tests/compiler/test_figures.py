"""The documents' figures, edge by edge."""

from __future__ import annotations

from holdfast.language.topology import Topology
from tests.language.fakes import WORDS, EpochSink, FakeSink, FakeSource, Python, compiled, members


def test_figure_1a_one_start_reaches_everything() -> None:
    """1→2, 1→3, 2→4, 3→4, 4→5, 4→6."""
    t = Topology("figure1a")
    op1 = t.source(FakeSource(), "op1").consistent(period=10.0)
    op2 = op1.filter("amount > 1", name="op2")
    op3 = op1.filter("amount < 1", name="op3")
    op4 = op2.union(op3, name="op4")
    op4.sink(EpochSink(), name="op5")
    op4.sink(FakeSink(), name="op6")
    plan = compiled(t)
    assert members(plan) == [["op1", "op2", "op3", "op4", "op5", "op6"]]
    assert plan.regions[0].starts == ("op1",)
    assert plan.regions[0].settings.period_s == 10.0
    assert plan.regions[0].shape.elements == ("op1",)


def test_figure_1b_two_starts_that_meet_are_one_region() -> None:
    """1→2→5→6, 3→4→5, starts 1 and 3."""
    t = Topology("figure1b")
    op2 = t.source(FakeSource(), "op1").consistent("both").filter("true", name="op2")
    op4 = t.source(FakeSource(), "op3").consistent("both").filter("true", name="op4")
    op5 = op2.union(op4, name="op5")
    op5.sink(EpochSink(), name="op6")
    plan = compiled(t)
    assert members(plan) == [["op1", "op2", "op3", "op4", "op5", "op6"]]
    assert plan.regions[0].starts == ("op1", "op3")
    assert plan.regions[0].name == "both"


def test_figure_1c_an_operator_has_a_consistent_and_an_autonomous_port() -> None:
    """1→2→5.in0, 3→4→5.in1, 5→6, 5→7, 7 autonomous: region {1,2,5,6}, in1 autonomous."""
    t = Topology("figure1c")
    op2 = t.source(FakeSource(), "op1").consistent().filter("true", name="op2")
    op4 = t.source(FakeSource(), "op3").filter("true", name="op4")
    op5 = t.operator(Python, inputs=[op2, op4], schema=WORDS, name="op5")
    op5.sink(EpochSink(), name="op6")
    op5.autonomous().sink(EpochSink(), name="op7")
    plan = compiled(t)
    assert members(plan) == [["op1", "op2", "op5", "op6"]]
    assert plan.graph.operators["op7"].annotations.autonomous
    regions = {c.id: c.region for c in plan.connections}
    assert regions == {"op2.0--op5": "op1", "op4.0--op5": None, "op5.0--op7": None}
    assert [link.id for link in plan.regions[0].shape.links] == ["op2.0--op5"]
    assert {e.name: e.region for e in plan.elements} == {"op1": "op1", "op3": None, "op5": "op1", "op7": None}


def test_figure_3_a_cycle_closes_through_a_control_port() -> None:
    """1→3.data, 2→3.data, 6→3.autonomous, 4→3.control, 3→4→5."""
    t = Topology("figure3")
    op1 = t.source(FakeSource(), "op1").consistent("r")
    op2 = t.source(FakeSource(), "op2").consistent("r")
    op6 = t.source(FakeSource(), "op6")
    back = t.feedback(WORDS)
    op3 = t.operator(Python, inputs=[[op1, op2], op6], control=[back.stream], schema=WORDS, name="op3")
    op4 = op3.apply(Python, WORDS, name="op4")
    back.complete(op4)
    op4.sink(EpochSink(), name="op5")
    plan = compiled(t)
    assert members(plan) == [["op1", "op2", "op3", "op4", "op5"]]
    shape = plan.regions[0].shape
    assert shape.elements == ("op1", "op2", "op3", "op4")
    assert [(link.source, link.target, link.control) for link in shape.links] == [
        ("op1", "op3", False),
        ("op2", "op3", False),
        ("op4", "op3", True),
        ("op3", "op4", False),
    ]
    assert shape.starts() == ("op1", "op2")
    assert {c.stream.operator: c.ports for c in plan.connections if c.target == "op3"} == {
        "op1": (("op3", 0),),
        "op2": (("op3", 0),),
        "op6": (("op3", 1),),
        "op4": (("op3", 2),),
    }
    assert next(c for c in plan.connections if c.source == "op6").region is None
