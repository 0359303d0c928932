"""Columns of streams, and mistakes in them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.errors import InputError, TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Operator, StreamRef
from holdfast.language.topology import Topology
from holdfast.operators.fingerprint import Fingerprint
from tests.language.fakes import WORDS, EpochSink, FakeSource, Python, compiled, refused


def test_schemas_are_found_without_spark() -> None:
    t = Topology("t")
    a = t.source(FakeSource(), "a")
    other = pa.schema([("word", pa.string()), ("amount", pa.int64())])
    m = a.map_arrow(lambda table: table, other, name="m")
    u = m.union(a.map_arrow(lambda table: table, other, name="m2"), name="u")
    high, _ = u.split("amount > 1", otherwise=True, name="s")
    high.aggregate("word", total=agg.sum("amount"), name="n").apply(Python, "x int", name="p").sink(
        EpochSink()
    )
    schemas = compile_graph(t.graph(), ArrowAnalyser()).schemas
    assert schemas[StreamRef(OperatorName("s"), 1)] == other
    assert schemas[StreamRef(OperatorName("n"))] == pa.schema([("word", pa.string()), ("total", pa.int64())])
    assert schemas[StreamRef(OperatorName("p"))] == pa.schema([("x", pa.int32())])
    assert StreamRef(OperatorName("sink_1")) not in schemas


def test_expressions_need_spark() -> None:
    t = Topology("t")
    t.source(FakeSource()).filter("amount > 1", name="f")
    with pytest.raises(TopologyError) as caught:
        compile_graph(t.graph(), ArrowAnalyser())
    assert caught.value.message == "Operator 'f' (filter): filter can only be analysed with Spark."
    assert "map_arrow" in caught.value.cure


def test_an_unknown_column_is_named_with_the_ones_there_are() -> None:
    t = Topology("t")
    t.source(FakeSource()).aggregate("wrd", n=agg.count(), name="n")
    error = refused(t)
    assert error.message == "Operator 'n' (aggregate): There is no column 'wrd'."
    assert error.cure == "Available columns: word, amount."


def test_errors_of_the_analyser_name_operator_and_columns() -> None:
    class Catalyst(ArrowAnalyser):
        def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
            if operator.kind == "filter":
                raise ValueError("cannot resolve 'amout'\nlong plan follows")
            return super().output_schemas(operator, input_schemas)

    t = Topology("t")
    t.source(FakeSource()).filter("amout > 1", name="f")
    with pytest.raises(TopologyError) as caught:
        compile_graph(t.graph(), Catalyst())
    assert str(caught.value) == (
        "Operator 'f' (filter): cannot resolve 'amout'. Available columns: word string, amount int32."
    )
    assert isinstance(caught.value.__cause__, ValueError)


def test_other_errors_of_the_tree_pass_unchanged() -> None:
    class Broken(FakeSource):
        def schema(self) -> pa.Schema:
            raise InputError("no such directory", cure="Make it.")

    t = Topology("t")
    t.source(Broken())
    with pytest.raises(InputError):
        compiled(t)


def test_streams_that_meet_have_the_same_columns() -> None:
    t = Topology("t")
    b = t.source(FakeSource(pa.schema([("amount", pa.int32()), ("word", pa.string())])), "b")
    t.source(FakeSource(), "a").union(b, name="u")
    error = refused(t)
    assert "a: word string, amount int32; b: amount int32, word string" in error.message
    assert "select(…)" in error.cure


def test_streams_that_meet_at_a_control_port_have_the_same_columns() -> None:
    t = Topology("t")
    a, b = t.source(FakeSource(), "a"), t.source(FakeSource(pa.schema([("x", pa.int8())])), "b")
    t.operator(Python, inputs=[a], control=[[a, b]], schema=WORDS, name="p")
    assert "'p' (hosted), port 1" in refused(t).message


def test_feedback_has_the_columns_that_were_announced() -> None:
    t = Topology("t")
    back = t.feedback("x int")
    back.complete(t.operator(Python, [t.source(FakeSource())], [back.stream], schema=WORDS, name="p"))
    assert "declared as x int32, but 'p' has word string, amount int32" in refused(t).message


def test_reserved_and_repeated_columns_are_refused() -> None:
    for schema, word in (
        (pa.schema([("__hf_row", pa.int64())]), "__hf_"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "Repeated"),
    ):
        t = Topology("t")
        t.source(FakeSource(schema), "a")
        assert word in refused(t).message


def test_an_analyser_that_miscounts_is_found_out() -> None:
    class Short(ArrowAnalyser):
        def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
            return []

    t = Topology("t")
    t.source(FakeSource(), "a")
    with pytest.raises(TopologyError, match="makes 1 streams, but 0 schemas"):
        compile_graph(t.graph(), Short())


def test_fingerprints_cover_what_is_stored_and_not_expressions() -> None:
    t = Topology("t")
    a = t.source(FakeSource(), "a")
    n = a.filter("amount > 1").aggregate("word", n=agg.count(), total=agg.sum("amount"), name="n")
    p = t.operator(Python, inputs=[n], control=[a], schema=WORDS, name="p")
    p.sink(EpochSink(), name="x")
    assert compiled(t).fingerprint == {
        "a": Fingerprint("source", {"class": "FakeSource"}),
        "n": Fingerprint(
            "aggregate",
            {"key": (("word", "string"),), "groups": 128},
            {
                "aggregates": {
                    "n": {"function": "count", "type": "int64"},
                    "total": {"function": "sum", "column": "amount", "type": "int64"},
                }
            },
        ),
        "p": Fingerprint("hosted", {"inputs": ("data", "control"), "outputs": 1}),
        "x": Fingerprint("sink", {"class": "EpochSink"}),
    }
