"""top_n, sort and zip in plans: what comes out, what they need, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.compiler.explain import explain_text
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Operator
from holdfast.language.operators.rows import BarrierSpec
from holdfast.language.stream import input_port
from holdfast.language.topology import Topology
from holdfast.operators.fingerprint import Fingerprint
from tests.language.fakes import FakeSource, compiled

UTC = pa.timestamp("us", tz="UTC")
EVENTS = pa.schema([("k", pa.string()), ("at", UTC), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])


def events(t: Topology, name: str = "a", schema: pa.Schema = EVENTS) -> Any:
    return t.source(FakeSource(schema), name)


def columns(t: Topology, stream: Any) -> list[str]:
    return list(compiled(t).schemas[stream.ref].names)


def stamped(t: Topology) -> set[str]:
    return {str(stream) for stream in compiled(t).stamped}


def test_ranks_stand_before_the_columns_of_the_rows() -> None:
    t = Topology("t")
    running = events(t).top_n(3, by="k", order="-x")
    windowed = events(t, "b").top_n(3, by=[], order=["x", "-at"], window=hf.tumbling(60, on="at", delay=0))
    assert columns(t, running) == ["rank", *EVENTS.names]
    assert columns(t, windowed) == ["window_start", "window_end", "rank", *EVENTS.names]


def test_sorted_rows_have_positions_of_their_own_if_somebody_needs_them() -> None:
    t = Topology("t")
    rows = events(t).union(events(t, "b"), name="u").sort("at", name="sorted", delay=0)
    assert stamped(t) == {"a", "b", "u"}
    rows.dedup("k", name="once").aggregate("k", emit="each", n=hf.count(), name="n")
    assert stamped(t) == {"a", "b", "u", "sorted", "once"}
    assert columns(t, rows) == EVENTS.names


def test_a_barrier_has_the_columns_of_all_inputs_and_the_keys_once() -> None:
    t = Topology("t")
    a, b, c = (events(t, name) for name in "abc")
    assert columns(t, a.zip(b, c, by=["k"])) == [
        *EVENTS.names, "at_2", "x_2", "tags_2", "at_3", "x_3", "tags_3",
    ]  # fmt: skip


def test_a_barrier_without_keys_carries_the_order_of_its_first_input() -> None:
    t = Topology("t")
    a, b = events(t), events(t, "b")
    a.zip(b, name="rows").dedup("k", name="once")
    a.zip(b, by="k", name="keys")
    assert stamped(t) == {"a", "b", "rows"}


MISTAKES: list[tuple[Any, str]] = [
    (lambda a, b: a.top_n(0, by="k", order="x"), "takes a number of rows, not 0"),
    (lambda a, b: a.top_n(True, by="k", order="x"), "takes a number of rows, not True"),
    (lambda a, b: a.top_n(1, by="k", order=[]), r"order=\[\] names no columns"),
    (lambda a, b: a.top_n(1, by="k", order="-"), "order='-' names no columns"),
    (lambda a, b: a.top_n(1, by="k", order=["x", "-x"]), "names a column twice"),
    (lambda a, b: a.top_n(1, by=[1], order="x"), "needs the names of its key columns"),
    (lambda a, b: a.top_n(1, by="k", order="x", window=hf.tumbling(rows=3)), "does not go with top_n"),
    (lambda a, b: a.top_n(1, by="k", order="y"), "no column 'y' to order by"),
    (lambda a, b: a.top_n(1, by="y", order="x"), "There is no column 'y'"),
    (lambda a, b: a.top_n(1, by="k", order="tags"), "cannot be ordered by 'tags'"),
    (lambda a, b: a.top_n(1, by="k", order="x", window=hf.tumbling(1, on="k", delay=0)), "'k', which is of type string"),
    (lambda a, b: a.top_n(1, by="k", order="x").top_n(1, by="k", order="x"), "ranks rows, but its input has no order"),
    (lambda a, b: a.union(b).top_n(1, by="k", order="x"), "ranks rows, but its input comes from several places"),
    (lambda a, b: a.sort("", delay=0), "on='' is no column name"),
    (lambda a, b: a.sort("x", delay=0), "sorted by 'x', which is of type double"),
    (lambda a, b: a.sort("when", delay=0), "sorted by 'when', which is not there"),
    (lambda a, b: a.sort("at", delay=-1), "delay"),
    (lambda a, b: a.sql("select * from this", name="lost").sort("at", delay=0), "its input has no order: sql 'lost'"),
    (lambda a, b: a.zip(), "needs another stream"),
    (lambda a, b: a.zip(7), "7 is not a Stream"),
    (lambda a, b: a.zip(b, by=["k", 3]), "needs the names of its key columns"),
    (lambda a, b: a.zip(b, by="y"), "There is no column 'y'"),
    (lambda a, b: a.zip(b, by="tags"), "cannot be a key"),
    (lambda a, b: a.zip(a.union(b)), "puts rows side by side, but its input comes from several places"),
    (lambda a, b: a.zip(b.sql("select 1", name="lost")), "its input has no order: sql 'lost'"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_refused_with_a_cure(mistake: Any, message: str) -> None:
    t = Topology("t")
    with pytest.raises(TopologyError, match=message) as caught:
        mistake(events(t), events(t, "b"))
        compiled(t)
    assert caught.value.cure


def test_names_that_are_taken_are_refused() -> None:
    t = Topology("t")
    events(t, schema=pa.schema([("k", pa.string()), ("rank", pa.int64())])).top_n(1, by="k", order="rank")
    with pytest.raises(TopologyError, match="two columns called rank"):
        compiled(t)
    t = Topology("t")
    events(t, schema=pa.schema([("v", pa.int64()), ("v_2", pa.int64())])).zip(
        events(t, "b", pa.schema([("v", pa.int64())]))
    )
    with pytest.raises(TopologyError, match="two columns called 'v_2'"):
        compiled(t)


def test_keys_of_a_barrier_are_of_one_type() -> None:
    t = Topology("t")
    one, other = (pa.schema([("k", kind)]) for kind in (pa.int64(), pa.string()))
    events(t, "a", one).zip(events(t, "b", other), by="k")
    with pytest.raises(TopologyError, match="'k' is of type int64 in the first input and string in number 2"):
        compiled(t)


def test_a_barrier_with_one_input_is_no_barrier() -> None:
    t = Topology("t")
    a = events(t)
    a._builder.add(BarrierSpec(()), [input_port(a._builder, (a,))], name="alone")
    with pytest.raises(TopologyError, match=r"'alone' \(barrier\) has not two data ports"):
        compiled(t)


def test_fingerprints_and_explain_tell_what_is_kept() -> None:
    t = Topology("t")
    small = pa.schema([("k", pa.string()), ("at", UTC)])
    a, b = events(t, "a", small), events(t, "b", small)
    a.top_n(2, by="k", order=["-at", "k"], window=hf.tumbling(60, on="at", delay=0), name="best")
    a.sort("at", name="sorted", delay=0)
    a.zip(b, by="k", name="both")
    plan = compiled(t)
    rows = {"k": {"type": "string"}, "at": {"type": "timestamp[us,tz=UTC]"}}
    best = {
        "n": 2,
        "order": (("at", True), ("k", False)),
        "size_us": 60000000,
        "slide_us": 60000000,
        "on": "at",
    }
    assert [plan.fingerprint[OperatorName(name)] for name in ("best", "sorted", "both")] == [
        Fingerprint("top_n", {**best, "key": (("k", "string"),), "groups": 128}, {"rows": rows}),
        Fingerprint("sort", {"on": "at"}, {"rows": rows}),
        Fingerprint("barrier", {"key": ("k",), "groups": 128}, {"input 1": rows, "input 2": rows}),
    ]
    text = explain_text(plan)
    assert "first 2 by k in the order of -at, k, windows of 60 s of at" in text
    assert "in the order of at" in text
    assert "2 inputs row by row, by k" in text


def test_operators_are_called_what_their_verbs_are_called() -> None:
    t = Topology("t")
    a = events(t)
    made = [
        a.top_n(1, by="k", order="x"),
        a.with_columns(y="x"),
        a.map_arrow(lambda rows: rows, EVENTS),
        a.dedup("k"),
    ]
    operators: dict[Any, Operator] = dict(compiled(t).graph.operators)
    kinds = [operators[stream.ref.operator].kind for stream in made]
    assert kinds == ["top_n", "with_columns", "map_arrow", "dedup"]


def test_zip_was_called_barrier() -> None:
    t = Topology("t")
    a, b = events(t, "a"), events(t, "b")
    a.zip(b, by="k", name="new")
    with pytest.warns(DeprecationWarning, match=r"barrier\(\) is called zip\(\) now") as warned:
        a.barrier(b, by="k", name="old")
    assert [one.filename for one in warned] == [__file__]
    assert t.graph().operators[OperatorName("old")].spec == t.graph().operators[OperatorName("new")].spec
