"""Windows over rows in plans: they need an order, hand it on, and are told apart from windows over time."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.compiler.explain import explain_text
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.operators.fingerprint import Fingerprint
from tests.language.fakes import FakeSource, compiled


def counted(stream: Stream, name: str = "w") -> Stream:
    return stream.aggregate("word", window=hf.sliding(rows=10, every=4), amount=hf.sum("amount"), name=name)


def stamped(t: Topology) -> set[str]:
    return {str(stream) for stream in compiled(t).stamped}


def test_positions_reach_the_window_and_end_there_if_nobody_needs_them() -> None:
    t = Topology("t")
    counted(t.source(FakeSource(), "a").filter("true", name="f")).select("*", name="s")
    assert stamped(t) == {"a", "f"}


def test_results_have_the_positions_of_the_rows_that_completed_them() -> None:
    t = Topology("t")
    counted(counted(t.source(FakeSource(), "a"), "inner").filter("true", name="f"), "outer")
    assert stamped(t) == {"a", "inner", "f"}


def test_rows_without_an_order_cannot_be_counted() -> None:
    t = Topology("t")
    counted(t.source(FakeSource(), "a").sql("select * from this", name="lost"))
    with pytest.raises(TopologyError, match="'w' counts rows, but its input has no order: sql 'lost'"):
        compiled(t)


def test_rows_of_several_sources_have_no_order() -> None:
    t = Topology("t")
    counted(t.source(FakeSource(), "a").union(t.source(FakeSource(), "b")))
    with pytest.raises(TopologyError, match="'w' counts rows, but its input comes from several") as caught:
        compiled(t)
    assert caught.value.cure.startswith("Use windows over event time")


@pytest.mark.parametrize("by", ["window_rows", "word"])
def test_the_column_that_tells_windows_apart_is_taken(by: str) -> None:
    t = Topology("t")
    a = t.source(FakeSource(), "a")
    a.aggregate([by], window=hf.tumbling(rows=2), window_rows=hf.count(), name="w")
    with pytest.raises(TopologyError, match="two columns called window_rows"):
        compiled(t)


def test_the_fingerprint_covers_the_shape_of_the_windows() -> None:
    t = Topology("t")
    counted(t.source(FakeSource(), "a"))
    assert compiled(t).fingerprint[OperatorName("w")] == Fingerprint(
        "window",
        {"key": (("word", "string"),), "groups": 128, "rows": 10, "every": 4},
        {"aggregates": {"amount": {"function": "sum", "column": "amount", "type": "int64"}}},
    )


def test_explain_says_how_many_rows() -> None:
    t = Topology("t")
    counted(t.source(FakeSource(), "a"))
    assert "by word: amount=sum(amount), windows of 10 rows every 4" in explain_text(compiled(t))
