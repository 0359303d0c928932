"""Types, refusals and order of the aggregate functions beyond sums and extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
import holdfast.language.operators.aggregates as agg
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.operators.aggregates import aggregate_schema, aggregate_spec
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.aggregates.function_names import FUNCTIONS
from tests.language.fakes import FakeSource, compiled

AT = pa.timestamp("us", tz="UTC")
DECIMAL = pa.decimal128(12, 2)
NESTED = pa.list_(pa.field("element", pa.int32()))
SCHEMA = pa.schema(
    {"k": pa.string(), "i": pa.int32(), "f": pa.float32(), "dec": DECIMAL, "at": AT, "list": NESTED, "null": pa.null()}
)  # fmt: skip


def list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (agg.count("list"), pa.int64()),
        (agg.variance("i"), pa.float64()),
        (agg.stddev("dec"), pa.float64()),
        (agg.quantile("f", 0.5), pa.float64()),
        (agg.quantile("dec", 1), pa.float64()),
        (agg.first("at"), AT),
        (agg.last("dec"), DECIMAL),
        (agg.last("list"), NESTED),
        (agg.collect("f"), list_of(pa.float32())),
        (agg.collect("list"), list_of(NESTED)),
        (agg.collect_set("k"), list_of(pa.string())),
        (agg.count_distinct("at"), pa.int64()),
    ],
)
def test_the_type_is_known_before_and_is_that_of_the_state(
    aggregate: agg.Aggregate, expected: pa.DataType
) -> None:
    spec = aggregate_spec("k", "changes", {"x": aggregate})
    assert aggregate_schema(SCHEMA, spec).field("x").type == expected
    assert Aggregation.plan(spec.by, spec.aggregates, SCHEMA).output_schema.field("x").type == expected


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (agg.count("nope"), "There is no column 'nope'"),
        (agg.variance("k"), "variance('k') needs numbers, and the column is of type string"),
        (agg.quantile("at", 0.5), "quantile('at') needs numbers"),
        (agg.count_distinct("list"), "count_distinct('list') cannot tell values of type list"),
        (agg.collect_set("null"), "collect_set('null') cannot tell values of type null apart"),
        (agg.first("null"), "first('null') has no values"),
        (agg.Aggregate("median", "i"), "There is no aggregate function 'median'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(aggregate: agg.Aggregate, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        aggregate_schema(SCHEMA, aggregate_spec("k", "changes", {"x": aggregate}))
    assert message in caught.value.message
    assert caught.value.cure


@pytest.mark.parametrize("q", [-0.1, 1.5, "0.5", None, True, float("nan")])
def test_a_quantile_needs_a_share(q: Any) -> None:
    with pytest.raises(TopologyError, match="takes a share from 0 to 1"):
        agg.quantile("i", q)


def test_every_function_is_public() -> None:
    assert set(FUNCTIONS) <= set(hf.__all__)
    assert all(getattr(hf, name) is getattr(agg, name) for name in FUNCTIONS)


# --- order ----------------------------------------------------------------------------------------------------------

Ordered = Callable[[str], agg.Aggregate]
ORDERED = pytest.mark.parametrize("function", [agg.first, agg.last, agg.collect])


def stamped(t: Topology) -> set[str]:
    return {str(stream) for stream in compiled(t).stamped}


def ordered(stream: Stream, function: Ordered, **more: Any) -> Stream:
    return stream.aggregate("k", x=function("i"), n=agg.count(), name="n", **more)


@ORDERED
def test_what_depends_on_order_stamps_its_input(function: Ordered) -> None:
    t = Topology("t")
    ordered(t.source(FakeSource(SCHEMA), "a").filter("true", name="f"), function)
    assert stamped(t) == {"a", "f"}


def test_what_does_not_depend_on_order_needs_no_positions() -> None:
    t = Topology("t")
    both = t.source(FakeSource(SCHEMA), "a").union(t.source(FakeSource(SCHEMA), "b"))
    both.aggregate("k", d=agg.count_distinct("i"), s=agg.collect_set("i"), q=agg.quantile("i", 0.5))
    assert stamped(t) == set()


@ORDERED
def test_an_input_without_order_is_refused(function: Ordered) -> None:
    t = Topology("t")
    ordered(t.source(FakeSource(SCHEMA), "a").sql("select * from this", name="lost"), function)
    with pytest.raises(TopologyError) as caught:
        compiled(t)
    assert caught.value.message == (
        f"Operator 'n' computes {function('i').function}(i), but its input has no order: sql 'lost' does not keep"
        " positions."
    )
    assert caught.value.cure.startswith("Keep positions")


@ORDERED
@pytest.mark.parametrize("window", [None, hf.tumbling(60, on="at", delay=0)])
def test_several_sources_are_refused_in_windows_too(function: Ordered, window: Any) -> None:
    t = Topology("t")
    both = t.source(FakeSource(SCHEMA), "a").union(t.source(FakeSource(SCHEMA), "b"))
    ordered(both, function, **({} if window is None else {"window": window}))
    with pytest.raises(TopologyError) as caught:
        compiled(t)
    assert f"computes {function('i').function}(i), but its input comes from several" in caught.value.message
    assert "aggregate each source by itself" in caught.value.cure


@pytest.mark.parametrize(
    "aggregate", [agg.collect("i"), agg.collect_set("i"), agg.count_distinct("i"), agg.quantile("i", 0.5)]
)
def test_lists_do_not_go_with_a_result_per_row(aggregate: agg.Aggregate) -> None:
    t = Topology("t")
    t.source(FakeSource(SCHEMA), "a").aggregate("k", emit="each", x=aggregate, name="n")
    with pytest.raises(TopologyError, match="which keeps lists") as caught:
        compiled(t)
    assert "emit='changes'" in caught.value.cure


def test_fingerprints_tell_functions_and_shares_apart() -> None:
    t = Topology("t")
    t.source(FakeSource(SCHEMA), "a").aggregate(
        "k", p=agg.quantile("i", 0.99), c=agg.count("i"), f=agg.first("at"), l=agg.collect("i"), name="n"
    )
    plan = compiled(t)
    assert plan.fingerprint[OperatorName("n")].entries["aggregates"] == {
        "p": {"function": "quantile[0.99]", "column": "i", "type": "double"},
        "c": {"function": "count", "column": "i", "type": "int64"},
        "f": {"function": "first", "column": "at", "type": "timestamp[us,tz=UTC]"},
        "l": {"function": "collect", "column": "i", "type": "list<element:int32>"},
    }
