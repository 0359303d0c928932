"""`group_by(…).agg(…)` and `aggregate(…)` make the same operator; columns may have any name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from tests.language.fakes import FakeSource

WINDOW = hf.tumbling(60, on="at", delay=0)


def spec(make: Callable[[hf.Stream], hf.Stream]) -> Any:
    topology = hf.Topology("t")
    make(topology.source(FakeSource(), "a"))
    return topology.graph().operators[OperatorName("it")].spec


@pytest.mark.parametrize(
    ("grouped", "direct"),
    [
        (
            lambda a: a.group_by("word").agg(n=hf.count(), name="it"),
            lambda a: a.aggregate("word", n=hf.count(), name="it"),
        ),
        (
            lambda a: a.group_by("word", "amount").agg(emit="each", n=hf.count(), name="it"),
            lambda a: a.aggregate(["word", "amount"], "each", n=hf.count(), name="it"),
        ),
        (
            lambda a: a.group_by(["word", "amount"]).agg(ttl=hf.ttl(60), n=hf.count(), name="it"),
            lambda a: a.aggregate(["word", "amount"], ttl=hf.ttl(60), n=hf.count(), name="it"),
        ),
        (
            lambda a: a.group_by().agg(window=WINDOW, late=True, n=hf.count(), name="it"),
            lambda a: a.aggregate([], window=WINDOW, late=True, n=hf.count(), name="it"),
        ),
    ],
)
def test_both_ways_to_write_it_make_the_same_operator(
    grouped: Callable[[hf.Stream], hf.Stream], direct: Callable[[hf.Stream], hf.Stream]
) -> None:
    assert spec(grouped) == spec(direct)


COLUMNS = ("name", "window", "emit", "by", "late", "ttl", "aggregates", "self")


def test_columns_may_be_called_like_arguments() -> None:
    wanted = {column: hf.count() for column in COLUMNS}
    for made in (
        spec(lambda a: a.aggregate("word", aggregates=wanted, more=hf.sum("amount"), name="it")),
        spec(lambda a: a.group_by("word").agg(wanted, more=hf.sum("amount"), name="it")),
    ):
        assert [name for name, _, _ in made.aggregates] == [*COLUMNS, "more"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda a: a.aggregate("word", aggregates={"n": hf.count()}, n=hf.count()), "'n' is given twice"),
        (lambda a: a.group_by("word").agg(hf.count()), "no mapping of columns"),
        (lambda a: a.group_by("word").agg({"n": "count"}), "is not one of holdfast's"),
        (lambda a: a.group_by(7).agg(n=hf.count()), "needs the names of its key columns"),
        (lambda a: a.group_by().agg(n=hf.count()), "needs the names of its key columns"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(TopologyError, match=why) as caught:
        spec(make)
    assert caught.value.cure


def test_late_rows_are_a_stream_beside_the_results() -> None:
    source = hf.Topology("t").source(FakeSource(), "a")
    result = source.aggregate("word", window=WINDOW, late=True, n=hf.count(), name="it")
    assert (str(result.ref), str(result.late.ref)) == ("it", "it.1")


@pytest.mark.parametrize(
    "stream",
    [
        lambda a: a,
        lambda a: a.aggregate("word", window=WINDOW, n=hf.count()),
        lambda a: a.aggregate("word", window=WINDOW, late=True, n=hf.count()).late,
    ],
)
def test_other_streams_have_no_late_rows(stream: Callable[[hf.Stream], hf.Stream]) -> None:
    source = hf.Topology("t").source(FakeSource(), "a")
    with pytest.raises(TopologyError, match="has no late rows") as caught:
        _ = stream(source).late
    assert "late=True" in (caught.value.cure or "")
