"""Which streams carry positions, and who may ask for order."""

from __future__ import annotations

import pyarrow as pa
import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.errors import TopologyError
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python, compiled


def stamped(t: Topology) -> set[str]:
    return {str(stream) for stream in compiled(t).stamped}


def each(stream: Stream, name: str = "n") -> Stream:
    return stream.aggregate("word", emit="each", n=agg.count(), amount=agg.sum("amount"), name=name)


def same(table: pa.Table) -> pa.Table:
    return table


def test_streams_nobody_orders_by_are_not_stamped() -> None:
    t = Topology("t")
    t.source(FakeSource()).filter("true").aggregate("word", n=agg.count()).sink(EpochSink())
    assert stamped(t) == set()


def test_everything_between_a_source_and_who_orders_is_stamped() -> None:
    t = Topology("t")
    a = t.source(FakeSource(), "a")
    each(a.filter("true", name="f").select("*", name="s").with_columns(b="1", name="w"))
    a.filter("false", name="other")
    assert stamped(t) == {"a", "f", "s", "w"}


def test_only_the_branch_of_a_split_that_is_ordered_is_stamped() -> None:
    t = Topology("t")
    _, second = t.source(FakeSource(), "a").split("true", "false", name="s")
    each(second)
    assert stamped(t) == {"a", "s.1"}


def test_each_keeps_positions_for_who_comes_next() -> None:
    t = Topology("t")
    each(each(t.source(FakeSource(), "a"), "n1"), "n2")
    assert stamped(t) == {"a", "n1"}


def test_branches_of_one_source_may_meet_again() -> None:
    t = Topology("t")
    high, low = t.source(FakeSource(), "a").split("amount > 1", otherwise=True, name="s")
    each(high.union(low, name="u"))
    assert stamped(t) == {"a", "s", "s.1", "u"}


def test_a_python_operator_stamps_anew() -> None:
    t = Topology("t")
    each(t.source(FakeSource(), "a").map_arrow(same, WORDS, name="m").apply(Python, WORDS, name="p"))
    assert stamped(t) == {"p"}


def test_a_python_operator_uses_order_where_there_is_some() -> None:
    t = Topology("t")
    a, b = t.source(FakeSource(), "a"), t.source(FakeSource(), "b")
    lost = b.sql("select * from this", name="q")
    rules = t.source(FakeSource(), "rules")
    t.operator(Python, inputs=[a.union(b, name="u"), [a, lost]], control=[rules], schema=WORDS, name="p")
    assert stamped(t) == {"a", "b", "u", "rules"}


def test_source_index_counts_everyone_who_stamps_by_sorted_name() -> None:
    t = Topology("t")
    t.source(FakeSource(), "z").apply(Python, WORDS, name="m")
    t.source(FakeSource(), "a")
    assert compiled(t).source_index == {"a": 0, "m": 1, "z": 2}


@pytest.mark.parametrize(
    ("lose", "kind"),
    [
        (lambda s: s.sql("select * from this", name="lost"), "sql"),
        (lambda s: s.transform(lambda df: df, name="lost"), "transform"),
        (lambda s: s.map_arrow(same, WORDS, name="lost"), "map_arrow"),
        (lambda s: s.aggregate("word", amount=agg.sum("amount"), name="lost"), "aggregate"),
    ],
)
def test_each_is_refused_behind_what_loses_positions(lose, kind: str) -> None:  # type: ignore[no-untyped-def]
    t = Topology("t")
    each(lose(t.source(FakeSource(), "a")).filter("true"), "n")
    with pytest.raises(TopologyError) as caught:
        compiled(t)
    assert caught.value.message == (
        f"Operator 'n' has emit='each', but its input has no order: {kind} 'lost' does not keep positions."
    )
    assert caught.value.cure.startswith("Use emit='changes', or keep positions")


def test_each_is_refused_where_several_sources_meet() -> None:
    t = Topology("t")
    each(t.source(FakeSource(), "a").union(t.source(FakeSource(), "b")), "n")
    with pytest.raises(TopologyError) as caught:
        compiled(t)
    assert "comes from several places: 'a', 'b'" in caught.value.message
    assert ".sort(on=" in caught.value.cure
