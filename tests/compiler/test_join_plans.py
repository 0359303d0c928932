"""Joins as users write them: what comes out, and what is refused with a cure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.errors import TopologyError
from holdfast.language.graph import StreamRef
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology


def two(left: str = "at timestamp, k string, v long", right: str = "at timestamp, k string, v long") -> Any:
    topology = hf.Topology("t")
    return (
        topology,
        topology.source(hf.Rows([], left), name="a"),
        topology.source(hf.Rows([], right), name="b"),
    )


def columns(topology: Topology, stream: Stream) -> list[str]:
    plan = compile_graph(topology.graph(), ArrowAnalyser())
    return list(plan.schemas[StreamRef(stream.ref.operator)].names)


def test_names_that_both_sides_have_get_a_suffix_on_the_right() -> None:
    topology, a, b = two()
    assert columns(topology, a.join(b, "k", within=1, on="at", delay=0)) == [
        "at",
        "k",
        "v",
        "at_right",
        "v_right",
    ]


def test_keys_may_have_other_names_on_the_right() -> None:
    topology, a, b = two(right="time timestamp, user string, w long")
    joined = a.asof_join(b, {"k": "user"}, on=("at", "time"), delay=0)
    assert columns(topology, joined) == ["at", "k", "v", "time", "w"]


def test_windows_may_follow_an_asof_join_and_an_asof_join_windows() -> None:
    topology, a, b = two()
    sums = b.aggregate("k", window=hf.tumbling(1, on="at", delay=0), total=hf.sum("v"))
    joined = a.asof_join(sums, "k", on=("at", "window_end"), delay=0)
    again = joined.aggregate("k", window=hf.tumbling(60, on="at", delay=0), n=hf.count())
    assert columns(topology, again) == ["window_start", "window_end", "k", "n"]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda a, b: a.join(b, "k"), "how long rows wait"),
        (lambda a, b: a.join(b, "k", within=1, on=3, delay=0), "does not name the event time"),
        (
            lambda a, b: a.join(b, "k", within=1, keep=hf.latest(rows=1), on="at", delay=0),
            "does not go with what a join keeps",
        ),
        (lambda a, b: a.join(b, "k", within=(1, 2, 3), on="at", delay=0), "has not two ends"),
        (lambda a, b: a.join(b, "k", within=1, on="at", how="outer", delay=0), "'outer' is not known"),
        (lambda a, b: a.join(b, "k", within=1, on="at", where="v > 1", delay=0), "cannot choose rows"),
        (lambda a, b: a.join(b, "k", within=1, on="at", suffix="", delay=0), "no suffix"),
        (lambda a, b: a.join(b, ["k", "k"], within=1, on="at", delay=0), "does not name key columns"),
        (lambda a, b: a.join(b, "k", keep=hf.latest(10)), "needs on="),
        (lambda a, b: a.join(b, "k", keep=hf.latest(rows=0)), "nothing would meet"),
        (lambda a, b: a.join(b, [], keep=hf.latest(rows=5, per_key=True)), "per_key needs keys"),
        (lambda a, b: a.join(b, "k", keep=hf.latest(rows=5), how="left"), "does not go with keep="),
        (lambda a, b: a.join(b, "k", keep=hf.sliding(rows=5, every=1)), "what a join keeps"),
        (lambda a, b: hf.latest(), "a time or a number of rows"),
        (lambda a, b: hf.latest(rows=-1), "no number of rows"),
        (lambda a, b: hf.latest(5, per_key=True), "time passes for all keys"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(write: Any, message: str) -> None:
    _, a, b = two()
    with pytest.raises(TopologyError, match=message) as refused:
        write(a, b)
    assert refused.value.cure


@pytest.mark.parametrize(
    ("left", "right", "write", "message"),
    [
        ("at timestamp, k string", "at timestamp, k long", lambda a, b: a.join(b, "k", within=1, on="at", delay=0), "The key is of type"),
        ("at timestamp, k string", "at timestamp, u long", lambda a, b: a.join(b, "k", within=1, on="at", delay=0), "no column 'k' on the right"),
        ("at string, k string", "at timestamp, k string", lambda a, b: a.join(b, "k", within=1, on="at", delay=0), "'at' on the left is of type"),
        ("at timestamp, k string, v_right long, v long", "at timestamp, k string, v long", lambda a, b: a.join(b, "k", within=1, on="at", delay=0), "two columns called 'v_right'"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_refused_when_compiled(
    left: str, right: str, write: Any, message: str
) -> None:
    topology, a, b = two(left, right)
    write(a, b)
    with pytest.raises(TopologyError, match=message):
        compile_graph(topology.graph(), ArrowAnalyser())


def test_a_side_without_an_order_is_refused() -> None:
    topology, a, b = two()
    mapped = b.map_arrow(lambda t: t, pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.string())]))
    a.join(mapped, "k", within=1, on="at", name="j", delay=0)
    with pytest.raises(TopologyError, match="'j' joins, but its input has no order"):
        compile_graph(topology.graph(), ArrowAnalyser())


def test_several_sources_on_a_side_need_an_interval() -> None:
    topology, a, b = two()
    both = a.union(b)
    c = topology.source(hf.Rows([], "at timestamp, k string, v long"), name="c")
    both.asof_join(c, "k", on="at", name="j", delay=0)
    with pytest.raises(TopologyError, match="comes from several places"):
        compile_graph(topology.graph(), ArrowAnalyser())


def test_what_a_join_keeps_had_other_names() -> None:
    """The old names still work, warn, and point at the line that uses them."""
    five, four = hf.latest(rows=5), hf.latest(rows=4)
    topology, a, b = two()
    a.join(b, "k", keep=five, other_keep=four, name="new")
    with pytest.warns(DeprecationWarning, match="of a join is called (other_)?keep= now") as warned:
        a.join(b, "k", window=five, other_window=four, name="old")
    assert [str(one.message).split("=")[0] for one in warned] == ["window", "other_window"]
    assert {one.filename for one in warned} == {__file__}
    operators = topology.graph().operators
    assert operators["old"].spec == operators["new"].spec
