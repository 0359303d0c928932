"""Where regions begin, end and meet, and what they refuse."""

from __future__ import annotations

from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from tests.language.fakes import (
    WORDS,
    EpochSink,
    FakeSource,
    Python,
    SocketSource,
    assert_refused,
    compiled,
    members,
    refused,
)


def source(t: Topology, name: str) -> Stream:
    return t.source(FakeSource(), name)


def test_a_graph_without_marks_has_no_region() -> None:
    t = Topology("t")
    source(t, "a").filter("true").sink(EpochSink())
    plan = compiled(t)
    assert plan.regions == ()
    assert plan.elements[0].region is None


def test_the_region_ends_where_autonomous_was_said_and_stays_ended() -> None:
    t = Topology("t")
    a = source(t, "a").consistent()
    kept = a.filter("true", name="kept")
    ended = a.autonomous().filter("true", name="ended").filter("true", name="behind")
    kept.sink(EpochSink(), name="out")
    ended.sink(EpochSink())
    assert members(compiled(t)) == [["a", "kept", "out"]]


def test_consistent_wins_where_both_reach_and_the_other_port_is_autonomous() -> None:
    t = Topology("t")
    a = source(t, "a").consistent()
    both = t.operator(Python, inputs=[a, a.autonomous()], schema=WORDS, name="both")
    both.sink(EpochSink(), name="out")
    plan = compiled(t)
    assert members(plan) == [["a", "both", "out"]]
    assert [(c.ports, c.region) for c in plan.connections] == [((("both", 0),), "a"), ((("both", 1),), None)]
    assert len({c.id for c in plan.connections}) == 2


def test_a_region_reaches_an_operator_along_its_control_port() -> None:
    t = Topology("t")
    rules = source(t, "rules").consistent()
    t.operator(Python, inputs=[source(t, "feed")], control=[rules], schema=WORDS, name="match")
    plan = compiled(t)
    assert members(plan) == [["rules", "match"]]
    assert plan.regions[0].starts == ("rules",)


def test_regions_that_do_not_meet_are_separate() -> None:
    t = Topology("t")
    source(t, "a").consistent(period=1).sink(EpochSink(), name="x")
    source(t, "b").consistent(period=9).sink(EpochSink(), name="y")
    plan = compiled(t)
    assert [(r.name, r.settings.period_s) for r in plan.regions] == [("a", 1.0), ("b", 9.0)]
    assert all(r.settings.name == r.name for r in plan.regions)


def test_a_third_mark_joins_two_regions() -> None:
    t = Topology("t")
    a, b, c = (source(t, name).consistent() for name in "abc")
    a.sink(EpochSink(), name="x")
    a.union(c).sink(EpochSink(), name="y")
    b.union(c).sink(EpochSink(), name="z")
    plan = compiled(t)
    assert len(plan.regions) == 1
    assert plan.regions[0].starts == ("a", "b", "c")


def test_one_name_is_enough_for_regions_that_meet() -> None:
    t = Topology("t")
    source(t, "a").consistent().union(source(t, "b").consistent("pay")).sink(EpochSink(), name="x")
    assert compiled(t).regions[0].name == "pay"


def test_a_mark_inside_a_region_is_not_another_start() -> None:
    t = Topology("t")
    source(t, "a").consistent().filter("true", name="f").consistent().sink(EpochSink(), name="x")
    assert compiled(t).regions[0].starts == ("a",)


def test_a_union_may_not_mix_consistent_and_autonomous_streams() -> None:
    t = Topology("t")
    source(t, "a").consistent().union(source(t, "b"), name="all").sink(EpochSink(), name="x")
    message = "Port 0 of union 'all' mixes consistent streams (a) and autonomous ones (b)."
    assert_refused(t, message, ".consistent()", ".autonomous()", "different ports")


def test_a_port_may_not_mix_a_stream_with_one_whose_region_was_ended() -> None:
    t = Topology("t")
    a = source(t, "a").consistent()
    left, right = a.split("amount > 1", otherwise=True, name="s")
    t.operator(Python, inputs=[[left, right.autonomous()]], schema=WORDS, name="p")
    assert "mixes consistent streams (s) and autonomous ones (s.1)" in refused(t).message


def test_regions_that_meet_may_not_have_different_names() -> None:
    t = Topology("t")
    source(t, "a").consistent("one").union(source(t, "b").consistent("two")).sink(EpochSink(), name="x")
    error = refused(t)
    assert (
        error.message == "Regions that meet have different names: 'a' says name='one', 'b' says name='two'."
    )
    assert "one name" in error.cure


def test_regions_that_meet_may_not_have_different_settings() -> None:
    t = Topology("t")
    source(t, "a").consistent(period=1).union(source(t, "b").consistent(period=2, mode="drain")).sink(
        EpochSink(), name="x"
    )
    error = refused(t)
    assert "period_s is 1.0 at 'a' and 2.0 at 'b', mode is async at 'a' and drain at 'b'" in error.message
    assert "same settings" in error.cure


def test_regions_that_never_meet_may_not_share_a_name() -> None:
    t = Topology("t")
    source(t, "a").consistent("r").sink(EpochSink(), name="x")
    source(t, "b").consistent("r").sink(EpochSink(), name="y")
    assert "never meet are called 'r'" in refused(t).message


def test_an_operator_driven_region_has_one_start() -> None:
    t = Topology("t")
    both = [source(t, name).consistent("r", trigger="operator") for name in "ab"]
    both[0].union(both[1]).sink(EpochSink(), name="x")
    error = refused(t)
    assert "trigger='operator' and 2 starts: 'a', 'b'" in error.message
    assert "period=" in error.cure


def test_an_operator_driven_region_with_one_start_is_fine() -> None:
    t = Topology("t")
    source(t, "a").consistent(trigger="operator").sink(EpochSink(), name="x")
    assert compiled(t).regions[0].settings.trigger == "operator"


def test_a_start_must_be_able_to_replay() -> None:
    t = Topology("t")
    t.source(SocketSource(), "udp").consistent().sink(EpochSink(), name="x")
    assert_refused(
        t,
        "Region 'udp' starts at 'udp', and a SocketSource cannot replay rows.",
        "leave this part autonomous",
    )


def test_a_region_starts_at_a_source() -> None:
    t = Topology("t")
    source(t, "a").filter("true", name="f").consistent().sink(EpochSink(), name="x")
    assert_refused(t, "Region 'f' starts at filter 'f', which cannot replay rows.", "topology.source")


def test_a_region_that_only_turns_in_a_circle_has_no_start() -> None:
    t = Topology("t")
    back = t.feedback(WORDS)
    x = t.operator(Python, inputs=[source(t, "a")], control=[back.stream], schema=WORDS, name="x")
    back.complete(x.apply(Python, WORDS, name="h").consistent())
    assert "has no start" in refused(t).message
