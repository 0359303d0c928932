"""Streams and topologies build the graph that was written."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.errors import ConfigError, TopologyError
from holdfast.ids import OperatorName
from holdfast.language import graph as g
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology, set_runner
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python


@pytest.fixture
def t() -> Topology:
    return Topology("t")


@pytest.fixture
def a(t: Topology) -> Stream:
    return t.source(FakeSource(), "a")


def op(t: Topology, name: str) -> g.Operator:
    return t.graph().operators[OperatorName(name)]


class Column:
    """Stands for a Spark Column: refuses to be compared or tested, as Spark's does."""

    def __bool__(self) -> bool:
        raise ValueError

    def __eq__(self, other: object) -> Any:
        raise ValueError

    __hash__ = None  # type: ignore[assignment]


def test_each_verb_makes_its_operator(t: Topology, a: Stream) -> None:
    column = Column()
    a.filter(column, name="f")
    a.select("word", column, name="s")
    a.with_columns({"name": "1"}, total=column, name="w")
    a.transform(lambda df: df, name="t")
    a.sql("select * from this", name="q")
    a.map_arrow(lambda table: table, "x int", name="m")
    a.aggregate(["word"], emit="each", n=agg.count(), top=agg.max("amount"), name="n")
    a.apply(Python, "y long", name="p")
    a.sink(EpochSink(), name="x")
    graph = t.graph()
    kinds = {name: operator.kind for name, operator in graph.operators.items()}
    assert kinds == {
        "a": "source",
        "f": "filter",
        "s": "select",
        "w": "with_columns",
        "t": "transform",
        "q": "sql",
        "m": "map_arrow",
        "n": "aggregate",
        "p": "hosted",
        "x": "sink",
    }
    assert all(operator.named for operator in graph.operators.values())
    assert op(t, "w").spec.columns == {"name": "1", "total": column}  # type: ignore[union-attr]
    assert op(t, "n").spec == agg.AggregateSpec(
        ("word",), (("n", "count", None), ("top", "max", "amount")), "each"
    )
    assert op(t, "p").spec.schemas == (pa.schema([("y", pa.int64())]),)  # type: ignore[union-attr]
    assert op(t, "x").outputs == 0
    assert all(
        operator.inputs == (g.InputPort((a.ref,)),)
        for name, operator in graph.operators.items()
        if name != "a"
    )


def test_names_are_generated_by_kind_and_avoid_the_ones_taken(t: Topology, a: Stream) -> None:
    a.filter("x", name="filter_2")
    refs = [a.filter("x").ref.operator, a.filter("x").ref.operator, a.with_columns(b="1").ref.operator]
    assert refs == ["filter_1", "filter_3", "with_columns_1"]
    assert not op(t, "filter_1").named


def test_a_name_can_be_used_once(a: Stream) -> None:
    a.filter("x", name="f")
    with pytest.raises(TopologyError, match=r"two operators called 'f' in topology 't'. Give each"):
        a.filter("y", name="f")


@pytest.mark.parametrize("name", ["", "a/b", ".x", "a" * 101, "x..y", 3])
def test_names_that_cannot_be_files_are_refused(a: Stream, name: Any) -> None:
    with pytest.raises(TopologyError, match=r"cannot be the name of an operator\. Use letters"):
        a.filter("x", name=name)
    with pytest.raises(TopologyError, match="cannot be the name of a topology"):
        Topology(name)


def test_split_gives_a_stream_per_port(t: Topology, a: Stream) -> None:
    streams = a.split("x > 1", "x > 0", otherwise=True, names=["big", "small", "rest"], name="s")
    assert [str(stream.ref) for stream in streams] == ["s", "s.1", "s.2"]
    assert op(t, "s").outputs == 3
    with pytest.raises(TopologyError, match="makes 1 streams and was given 2 names"):
        a.split("x > 1", names=["a", "b"])


def test_union_lets_streams_meet_at_one_port(t: Topology, a: Stream) -> None:
    b = t.source(FakeSource(), "b")
    a.union(b.autonomous(), name="u")
    assert op(t, "u").inputs == (g.InputPort((a.ref, b.ref), autonomous=frozenset({b.ref})),)


def test_marks_belong_to_the_operator_that_made_the_stream(t: Topology, a: Stream) -> None:
    assert a.consistent("r", period=timedelta(seconds=3)) is a
    n = a.aggregate("word", n=agg.count(), name="n").checkpoint(every=timedelta(minutes=1))
    n.sink(EpochSink(), name="x")
    assert op(t, "a").annotations == g.Annotations(consistent=g.RegionSettings("r", 3.0))
    assert op(t, "n").annotations == g.Annotations(checkpoint_every_s=60.0)
    assert op(t, "x").annotations == g.Annotations()


def test_borders_lie_before_what_follows_and_change_no_other_reader(t: Topology, a: Stream) -> None:
    a.autonomous().isolate().filter("x", name="f")
    a.filter("x", name="g")
    assert op(t, "f").annotations == g.Annotations(autonomous=True, isolated=True)
    assert op(t, "g").annotations == g.Annotations()
    assert op(t, "a").annotations == g.Annotations()


def test_marking_twice_is_fine_unless_it_contradicts(a: Stream) -> None:
    a.consistent(period=2).consistent(period=2)
    with pytest.raises(TopologyError, match=r"'a' is marked .consistent\(…\) twice, with different settings"):
        a.consistent(period=3)


def test_an_operator_has_data_and_control_ports(t: Topology, a: Stream) -> None:
    b = t.source(FakeSource(), "b")
    out = t.operator(Python, inputs=[[a, b], b.isolate()], control=[a], schemas=[WORDS, "z int"], name="p")
    assert [str(stream.ref) for stream in out] == ["p", "p.1"]
    made = op(t, "p")
    assert made.inputs == (
        g.InputPort((a.ref, b.ref)),
        g.InputPort((b.ref,)),
        g.InputPort((a.ref,), control=True),
    )
    assert (made.outputs, made.annotations.isolated) == (2, True)
    assert t.operator(Python, inputs=[a]) == []
    assert t.operator(Python, inputs=[a], schema=WORDS).ref.port == 0


def test_feedback_takes_the_place_of_a_stream_to_come(t: Topology, a: Stream) -> None:
    back = t.feedback(WORDS)
    p = t.operator(Python, inputs=[a], control=[back.stream], schema=WORDS, name="p")
    assert t.graph().feedback == (g.FeedbackMark(OperatorName("feedback_1"), WORDS, None),)
    back.complete(p.autonomous())
    assert op(t, "p").inputs[1] == g.InputPort((p.ref,), control=True, autonomous=frozenset({p.ref}))
    assert t.graph().feedback[0].stream == p.ref
    with pytest.raises(TopologyError, match="completed twice"):
        back.complete(p)


def test_feedback_is_completed_with_a_stream_that_exists(t: Topology, a: Stream) -> None:
    one, two = t.feedback(WORDS), t.feedback(WORDS)
    with pytest.raises(TopologyError, match="completed with a feedback stream"):
        one.complete(two.stream)
    with pytest.raises(TopologyError, match="not made by an operator yet"):
        one.stream.consistent()


def test_a_graph_is_a_picture_that_later_calls_do_not_change(t: Topology, a: Stream) -> None:
    before = t.graph()
    a.filter("x", name="f")
    a.consistent()
    assert list(before.operators) == ["a"]
    assert before.operators[OperatorName("a")].annotations.consistent is None


MISTAKES: list[tuple[Any, str]] = [
    (lambda t, a: a.filter(True), r"filter\(\) cannot use True"),
    (lambda t, a: a.filter(lambda row: True), r"filter\(\) cannot use <function"),
    (lambda t, a: a.filter("  "), r"filter\(\) cannot use"),
    (lambda t, a: a.select(), "at least one column"),
    (lambda t, a: a.select(["a"]), r"select\(\) cannot use"),
    (lambda t, a: a.with_columns(), "at least one column"),
    (lambda t, a: a.transform("x"), "takes a function"),
    (lambda t, a: a.map_arrow(3, WORDS), "takes a function"),
    (lambda t, a: a.sql(""), "takes a query"),
    (lambda t, a: a.union(), "needs another stream"),
    (lambda t, a: a.union("b"), "'b' is not a Stream"),
    (lambda t, a: a.union(Topology("other").source(FakeSource(), "b")), "'b' belongs to topology 'other'"),
    (lambda t, a: a.split(), "at least one condition"),
    (lambda t, a: a.checkpoint(every=0), "every must be more than 0 s"),
    (lambda t, a: a.sink(FakeSource()), "is not a Sink"),
    (lambda t, a: t.source(EpochSink()), "is not a Source"),
    (lambda t, a: t.operator(Python, inputs=a, schema=WORDS), "ports come as a list"),
    (lambda t, a: t.operator(Python, inputs=[a], schema=WORDS, schemas=[WORDS]), "schema and schemas"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_found_where_they_are_written(
    t: Topology, a: Stream, mistake: Any, message: str
) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        mistake(t, a)
    assert caught.value.cure
    assert list(t.graph().operators) == ["a"], "nothing was added"


def test_a_source_or_sink_object_serves_one_place(t: Topology) -> None:
    source, sink = FakeSource(), EpochSink()
    a = t.source(source, "a")
    a.sink(sink, name="x")
    with pytest.raises(TopologyError, match=r"already read by 'a'\. Use the stream twice"):
        t.source(source)
    with pytest.raises(TopologyError, match="already used by 'x'"):
        a.sink(sink)


class FakeRunner:
    def run(self, *args: Any, **options: Any) -> Any:
        return ("run", args[1:], options)

    def submit(self, *args: Any, **options: Any) -> Any:
        return ("submit", args[1:], options)

    def explain(self, topology: Topology, format: str, spark: Any) -> str:
        return f"{topology.name} as {format}"


def test_running_is_left_to_the_runtime(t: Topology) -> None:
    before = set_runner(FakeRunner())
    try:
        assert t.run(store="dir", until="available", poll=1) == (
            "run",
            (None, "dir", "available"),
            {"poll": 1},
        )
        assert t.submit("session") == ("submit", ("session", None), {})
        assert t.explain(format="mermaid") == "t as mermaid"
        with pytest.raises(ConfigError, match="until='never' is not known"):
            t.run(until="never")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="format='pdf' is not known"):
            t.explain(format="pdf")  # type: ignore[arg-type]
    finally:
        set_runner(before)


def test_the_runtime_is_imported_when_it_is_first_needed() -> None:
    program = (
        "import sys, holdfast; holdfast.Topology('t'); assert 'holdfast.runtime.api' not in sys.modules; "
    )
    program += "from holdfast.language.topology import _installed; print(type(_installed()).__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "SparkRunner", done.stderr
