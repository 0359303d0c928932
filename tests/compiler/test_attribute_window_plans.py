"""Windows by an attribute and by marks as they are written and planned, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import holdfast as hf
from holdfast.compiler.explain import explain_text
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.operators.values import DeltaWindow, MarkedWindow
from holdfast.language.topology import Topology
from tests.language.fakes import FakeSource, compiled

sliding: Any = hf.sliding
tumbling: Any = hf.tumbling


def planned(window: Any, name: str = "w") -> Any:
    t = Topology("t")
    rows = t.source(
        hf.Rows([], "k string, a long, d decimal(30,2), x double, at timestamp, end boolean"), "a"
    )
    rows.aggregate("k", window=window, n=hf.count(), name=name)
    return compiled(t)


def test_windows_end_by_an_attribute_or_a_mark() -> None:
    assert hf.tumbling(delta=10.0, of="mileage") == DeltaWindow(10.0, "mileage")
    assert hf.sliding(delta=timedelta(minutes=1), of="at", every=5) == DeltaWindow(
        timedelta(minutes=1), "at", 5
    )
    assert hf.tumbling(until="is_end") == MarkedWindow("is_end")


MISTAKES: list[tuple[Any, str]] = [
    (lambda: tumbling(delta=5), "of=None is no column name"),
    (lambda: tumbling(of="a"), "delta=None is no distance"),
    (lambda: tumbling(delta=-1, of="a"), "delta=-1 is no distance"),
    (lambda: tumbling(delta=True, of="a"), "delta=True is no distance"),
    (lambda: tumbling(delta=float("nan"), of="a"), "delta=nan is no distance"),
    (lambda: tumbling(delta=Decimal("inf"), of="a"), "is no distance"),
    (lambda: tumbling(delta="5", of="a"), "delta='5' is no duration"),
    (lambda: tumbling(60, on="at", delta=5, of="a"), "size, on does not go with delta="),
    (lambda: tumbling(rows=5, delta=5, of="a"), "rows does not go with delta="),
    (lambda: tumbling(rows=5, until="e"), "rows does not go with until="),
    (lambda: tumbling(delta=5, of="a", until="e"), "delta, of does not go with until="),
    (lambda: tumbling(until=True), "until=True is no column name"),
    (lambda: sliding(delta=5, of="a"), "every=None is no number of rows"),
    (lambda: sliding(delta=5, of="a", every=0), "every=0 is no number of rows"),
    (lambda: sliding(delta=5, of="a", every=1, rows=3), "rows does not go with delta="),
    (
        lambda: planned(hf.tumbling(delta=5, of="k")),
        "no distance between values of 'k', which is of type string",
    ),
    (lambda: planned(hf.tumbling(delta=5, of="d")), "no distance between values of 'd'"),
    (lambda: planned(hf.tumbling(delta=timedelta(seconds=5), of="a")), "no distance between values of 'a'"),
    (lambda: planned(hf.tumbling(delta=5, of="b")), "There is no column 'b'"),
    (lambda: planned(hf.tumbling(until="a")), "end where 'a' is true, which is of type int64"),
    (lambda: planned(hf.tumbling(until="b")), "There is no column 'b'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mixtures_and_nonsense_are_refused_with_a_cure(mistake: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        mistake()
    assert caught.value.cure


def test_a_window_of_rows_has_no_late_rows() -> None:
    source: Any = Topology("t").source(FakeSource(), "a")
    with pytest.raises(TopologyError, match="late=True does not go with a window of rows"):
        source.aggregate("word", window=hf.tumbling(until="e"), late=True, n=hf.count())


@pytest.mark.parametrize(
    ("window", "text", "frame"),
    [
        (hf.tumbling(delta=5, of="a"), "windows of 5 of a", {"delta": "5", "of": "a"}),
        (
            hf.sliding(delta=5, of="x", every=2),
            "windows of 5 of x every 2 rows",
            {"delta": "5", "of": "x", "every": 2},
        ),
        (hf.tumbling(until="end"), "windows until end", {"until": "end"}),
    ],
)
def test_plans_tell_how_windows_end(window: Any, text: str, frame: dict[str, Any]) -> None:
    plan = planned(window)
    assert text in explain_text(plan)
    fingerprint = plan.fingerprint[OperatorName("w")]
    found = {name: value for name, value in fingerprint.frame.items() if name not in ("key", "groups")}
    assert (fingerprint.kind, found) == ("window", frame)


def test_rows_of_several_sources_have_no_order() -> None:
    t = Topology("t")
    both = t.source(FakeSource(), "a").union(t.source(FakeSource(), "b"))
    both.aggregate("word", window=hf.tumbling(delta=1, of="amount"), n=hf.count(), name="w")
    with pytest.raises(
        TopologyError, match="'w' is over rows in their order, but its input comes from several"
    ):
        compiled(t)


def test_results_have_the_positions_of_the_rows_that_completed_them() -> None:
    t = Topology("t")
    inner = t.source(FakeSource(), "a").aggregate(
        "word", window=hf.tumbling(delta=1, of="amount"), n=hf.count(), name="i"
    )
    inner.aggregate("word", window=hf.tumbling(rows=2), n=hf.count(), name="o")
    assert {str(stream) for stream in compiled(t).stamped} == {"a", "i"}
