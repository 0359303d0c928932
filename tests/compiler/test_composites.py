"""Composites: names of what they add, calls side by side and inside each other, and regions that begin at them."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python, compiled, members


@hf.composite
def doubled(words: hf.Stream, extra: str = "") -> hf.Stream:
    """Something twice."""
    first = words.filter("true", name="first")
    return first.filter("true").apply(Python, WORDS, name="second" + extra)


@hf.composite(consistent={"period": 3, "mode": "drain"})
def reading(topology: hf.Topology) -> hf.Stream:
    rows = topology.source(FakeSource(), "a").union(topology.source(FakeSource(), "b"), name="both")
    return rows.apply(Python, WORDS, name="seen")


@hf.composite
def outer(topology: hf.Topology, words: hf.Stream) -> hf.Stream:
    return doubled(words, name="left").union(doubled(words, name="right"), name="joined")


def names(topology: hf.Topology) -> list[str]:
    return list(topology.graph().operators)


def test_names_begin_with_the_name_of_the_call_and_so_two_calls_do_not_collide() -> None:
    t = hf.Topology("t")
    words = t.source(FakeSource(), "words")
    doubled(words)
    doubled(words, name="more")
    assert names(t) == [
        "words", "doubled.first", "doubled.filter_1", "doubled.second", "more.first", "more.filter_1", "more.second"
    ]  # fmt: skip
    assert doubled.__doc__ == "Something twice."


def test_composites_in_composites() -> None:
    t = hf.Topology("t")
    outer(t, t.source(FakeSource(), "words"), name="o").sink(EpochSink(), name="out")
    assert [name for name in names(t) if "." in name] == [
        "o.left.first", "o.left.filter_1", "o.left.second",
        "o.right.first", "o.right.filter_1", "o.right.second", "o.joined",
    ]  # fmt: skip
    assert names(t)[-1] == "out", "what follows has its plain name"


def test_a_region_begins_at_the_composites_own_starts() -> None:
    t = hf.Topology("t")
    reading(t).sink(EpochSink(), name="out")
    plan = compiled(t)
    assert members(plan) == [["reading.a", "reading.b", "reading.both", "reading.seen", "out"]]
    region = plan.regions[0]
    assert region.starts == ("reading.a", "reading.b")
    assert (region.settings.period_s, region.settings.mode) == (3.0, "drain")


def test_two_calls_are_two_regions_or_one_if_they_meet() -> None:
    t = hf.Topology("t")
    reading(t, name="x").sink(EpochSink(), name="out1")
    reading(t, name="y").sink(EpochSink(), name="out2")
    assert [region.name for region in compiled(t).regions] == ["x.a", "y.a"]
    t = hf.Topology("t")
    reading(t, name="x").union(reading(t, name="y"), name="u").sink(EpochSink(), name="out")
    assert [region.starts for region in compiled(t).regions] == [("x.a", "x.b", "y.a", "y.b")]


def test_a_composite_that_begins_at_a_stream_from_outside_cannot_replay() -> None:
    @hf.composite(consistent={"period": 1})
    def late(words: hf.Stream) -> hf.Stream:
        return words.filter("true", name="first")

    t = hf.Topology("t")
    late(t.source(FakeSource(), "words")).sink(EpochSink(), name="out")
    with pytest.raises(TopologyError, match=r"starts at filter 'late.first', which cannot replay"):
        compiled(t)
    t = hf.Topology("t")
    late(t.source(FakeSource(), "words").consistent(period=1)).sink(EpochSink(), name="out")
    assert compiled(t).regions[0].starts == ("words",), "in a region already: the same one"


def test_what_is_wrong_is_told() -> None:
    t = hf.Topology("t")
    words = t.source(FakeSource(), "words")
    doubled(words, name="x")
    with pytest.raises(TopologyError, match="two calls of composites called 'x'"):
        doubled(words, name="x")
    with pytest.raises(TopologyError, match="neither a stream nor a topology"):
        doubled("words")
    with pytest.raises(TopologyError, match="no setting 'perod'"):
        hf.composite(consistent={"perod": 1})
    with pytest.raises(TopologyError, match="adds no operator"):
        empty = hf.composite(consistent={"period": 1})(lambda stream: stream)
        empty(words, name="empty")
        compiled(t)


def test_state_in_a_call_without_a_name_of_its_own_is_refused_in_a_region() -> None:
    t = hf.Topology("t")
    words = t.source(FakeSource(), "words").consistent()
    doubled(words).sink(EpochSink(), name="one")
    doubled(words).sink(EpochSink(), name="two")
    with pytest.raises(TopologyError, match=r"'doubled_2.second' in region 'words' has no name of its own"):
        compiled(t)


def test_a_name_goes_on_to_a_function_that_takes_one_and_the_scope_ends_with_an_error() -> None:
    given: list[Any] = []

    @hf.composite
    def named(words: hf.Stream, name: str | None = None) -> hf.Stream:
        given.append(name)
        raise ValueError("in the middle")

    t = hf.Topology("t")
    words = t.source(FakeSource(), "words")
    with pytest.raises(ValueError, match="in the middle"):
        named(words, name="mine")
    assert given == ["mine"]
    words.filter("true", name="plain")
    assert names(t) == ["words", "plain"]


class Sum:
    def __init__(self) -> None:
        self.total = 0

    def process(self, row: Any, port: int) -> Any:
        self.total += row.n
        return {"n": self.total}


@hf.composite(consistent={"period": 0.02})
def sums(topology: hf.Topology, rows: int) -> hf.Stream:
    source = topology.source(Rows([(n,) for n in range(rows)], "n long", rows_per_step=5), name="rows")
    return source.apply(Sum, "n long", name="sum")


def test_two_calls_fail_and_restore_each_with_its_own_state() -> None:
    def run(store: str) -> list[list[int]]:
        t = hf.Topology("t")
        for name, rows in (("x", 300), ("y", 500)):
            sums(t, rows, name=name).sink(MemorySink(f"{store}-{name}"), name=f"out-{name}")
        run_local(t, f"memory:{store}")
        return [[row["n"] for row in MemorySink.rows(f"{store}-{name}")] for name in "xy"]

    golden = run("composite-golden")
    arm("step.end=raise@40")
    try:
        assert run("composite-broken") == golden
    finally:
        disarm()
