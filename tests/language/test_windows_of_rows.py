"""Windows over rows as they are written, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.language.operators.aggregates import AggregateSpec, WindowSpec, aggregate_schema
from holdfast.language.operators.values import CountWindow, TimeWindow
from holdfast.language.operators.windows import window_schema
from holdfast.language.topology import Topology
from tests.language.fakes import WORDS, FakeSource

sliding: Any = hf.sliding
tumbling: Any = hf.tumbling


def test_windows_are_over_time_or_over_rows() -> None:
    assert hf.tumbling(rows=100) == CountWindow(100, 100)
    assert hf.sliding(rows=100, every=10) == CountWindow(100, 10)
    assert hf.tumbling(60, on="at", delay=0) == TimeWindow(60_000_000, 60_000_000, "at")
    assert tumbling(size=60, on="at", delay=0) == hf.tumbling(60, on="at", delay=0)
    assert sliding(size=60, slide=5, on="at", delay=0) == hf.sliding(60, 5, on="at", delay=0)


MISTAKES: list[tuple[Any, str]] = [
    (lambda: tumbling(), "needs its length"),
    (lambda: sliding(60, on="at", delay=0), "needs its length"),
    (lambda: tumbling(60, on="", delay=0), "on='' is no column name"),
    (lambda: tumbling(60, rows=5), "size does not go with rows="),
    (lambda: tumbling(on="at", rows=5), "on does not go with rows="),
    (lambda: tumbling(rows=5, delay=1, lateness=2), "delay, lateness does not go with rows="),
    (lambda: sliding(60, 5, rows=5, every=1), "size, slide does not go with rows="),
    (lambda: sliding(60, 5, on="at", every=1, delay=0), "every=1 goes with rows="),
    (lambda: sliding(rows=5), "every=None is no number of rows"),
    (lambda: tumbling(rows=0), "rows=0 is no number of rows"),
    (lambda: tumbling(rows=True), "rows=True is no number of rows"),
    (lambda: tumbling(rows=2.5), "rows=2.5 is no number of rows"),
    (lambda: sliding(rows=5, every=0), "every=0 is no number of rows"),
    (lambda: sliding(rows=5, every=6), "windows of 5 rows every 6 rows would leave rows out"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mixtures_and_nonsense_are_refused_with_a_cure(mistake: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        mistake()
    assert caught.value.cure


def test_no_row_is_late_for_a_window_of_rows() -> None:
    source: Any = Topology("t").source(FakeSource(), "a")
    with pytest.raises(TopologyError, match="late=True does not go with a window of rows"):
        source.aggregate("word", window=hf.tumbling(rows=2), late=True, n=hf.count())


def test_results_are_told_apart_by_how_many_rows_the_key_had() -> None:
    aggregates = (("n", "count", None), ("total", "sum", "amount"))
    made = window_schema(WORDS, WindowSpec(("word",), aggregates, CountWindow(5, 1)))
    rest = aggregate_schema(WORDS, AggregateSpec(("word",), aggregates))
    assert made == [pa.schema([rest.field("word"), ("window_rows", pa.int64()), *list(rest)[1:]])]
    assert window_schema(WORDS, WindowSpec((), aggregates, CountWindow(5, 1)))[0].names[0] == "window_rows"
