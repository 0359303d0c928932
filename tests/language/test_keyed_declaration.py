"""How keyed Python operators are declared, and what is refused then or when the topology is compiled."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.compiler.explain import explain_text
from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.operators.fingerprint import Fingerprint
from tests.language.fakes import FakeSource, compiled

TIMED = pa.schema([("word", pa.string()), ("at", pa.timestamp("us", "UTC")), ("list", pa.list_(pa.int32()))])


class Counts(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    seen = hf.Map(str, int)

    def process(self, row: Any, key: Any) -> Any:
        self.n += 1
        return (key, self.n)


class Timed(Counts):
    def on_timer(self, at: Any, key: Any) -> None: ...


class Lasting(Counts):
    late = hf.Value(int, ttl=5)


class Batched(hf.KeyedOperator):
    def process_batch(self, table: pa.Table, key: Any) -> None: ...


class BatchedTimed(Batched):
    def on_timer(self, at: Any, key: Any) -> None: ...


class Both(Counts):
    def process_batch(self, table: pa.Table, key: Any) -> None: ...


class Empty(hf.KeyedOperator):
    pass


class Asking(Counts):
    def __init__(self, start: int) -> None:
        self.start = start


class Eager(Counts):
    def __init__(self) -> None:
        self.n = 5


class Plain:
    def process(self, row: Any, key: Any) -> None: ...


def source(topology: Topology, name: str = "a") -> Stream:
    return topology.source(FakeSource(TIMED), name)


def keyed(operator: Any = Counts, by: Any = "word", **options: Any) -> Topology:
    topology = Topology("t")
    source(topology).keyed(by, operator, "word string, n long", name="op", **options)
    return topology


@pytest.mark.parametrize(
    ("operator", "options", "says", "cure"),
    [
        (Plain, {}, "is not a keyed operator", "derived from holdfast.KeyedOperator"),
        (Empty, {}, "has neither process", "Define one of them"),
        (Both, {}, "has both process", "Define one of them"),
        (Asking, {}, "cannot be made without arguments", "Pass an instance: Asking"),
        (Eager, {}, "sets the declared variable 'n' when it is made", "default="),
        (BatchedTimed, {"on": "at"}, "and process_batch", r"Use process\(row, key\)"),
        (Counts, {"delay": 5}, "delay= needs event time", "Give on="),
        (Counts, {"on": ""}, "is no column name", "Name the column"),
        (Counts, {"by": []}, "needs the names of its key columns", "keyed"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(
    operator: Any, options: dict[str, Any], says: str, cure: str
) -> None:
    with pytest.raises(TopologyError, match=says) as caught:
        keyed(operator, **options)
    assert re.search(cure, caught.value.cure)


@pytest.mark.parametrize(
    ("by", "options", "says"),
    [
        ("nobody", {}, "'op' .*There is no column 'nobody'"),
        ("list", {}, "cannot be a key"),
        ("word", {"on": "word", "delay": 0}, "The event time is in 'word', which is of type string"),
        ("word", {"on": "when", "delay": 0}, "The event time is in 'when', which is not there"),
    ],
)
def test_columns_are_checked_when_the_topology_is_compiled(
    by: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(TopologyError, match=says):
        compiled(keyed(by=by, **options))


def test_rows_of_a_key_need_an_order() -> None:
    t = Topology("t")
    source(t).sql("select * from this", name="lost").keyed("word", Counts, "word string, n long", name="op")
    wanted = "'op' processes the rows of a key in their order, but its input has no order: sql 'lost'"
    with pytest.raises(TopologyError, match=wanted):
        compiled(t)


def test_rows_of_several_sources_have_no_order() -> None:
    t = Topology("t")
    source(t).union(source(t, "b")).keyed("word", Counts, "word string, n long", name="op")
    with pytest.raises(
        TopologyError, match=r"'op' processes .* comes from several places: 'a', 'b'"
    ) as caught:
        compiled(t)
    assert caught.value.cure.startswith("Use one keyed operator per source")


def test_what_comes_out_keeps_the_order_of_what_came() -> None:
    t = keyed()
    plan = compiled(t)
    assert {str(stream) for stream in plan.stamped} == {"a"}, "nobody orders by it: it carries no positions"
    t = Topology("t")
    out = source(t).keyed("word", Counts, "word string, n long", name="op")
    out.aggregate("word", emit="each", n=hf.count(), name="each")
    assert {str(stream) for stream in compiled(t).stamped} == {"a", "op"}


def test_the_fingerprint_covers_keys_and_variables() -> None:
    plan = compiled(keyed(Lasting, on="at", delay=0))
    assert plan.fingerprint[OperatorName("op")] == Fingerprint(
        "keyed",
        {"key": (("word", "string"),), "on": "at", "groups": 128},
        {
            "variables": {
                "n": {"form": "value", "type": ("int",)},
                "seen": {"form": "map", "type": ("str", "int")},
                "late": {"form": "value", "type": ("int",), "ttl_us": 5000000},
            }
        },
    )
    assert "Lasting by word: n value(int), seen map(str,int)" in explain_text(plan)


def test_an_instance_may_carry_settings() -> None:
    mine = Asking(7)
    topology = keyed(mine)
    mine.start = 8
    spec: Any = topology.graph().operators[OperatorName("op")].spec
    assert spec.make().start == 7


@pytest.mark.parametrize(
    ("fn", "variables", "says"),
    [
        (7, {}, "takes a function"),
        (print, {"last": int}, "are no declarations by name"),
        (print, ["last"], "are no declarations by name"),
        (print, {"process": hf.Value(int)}, "cannot be called 'process'"),
        (print, {"_x": hf.Value(int)}, "begins with '_'"),
    ],
)
def test_map_state_refuses_what_makes_no_sense(fn: Any, variables: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        source(Topology("t")).map_state("word", fn, "word string", variables)


def test_a_declaration_may_serve_two_functions() -> None:
    last = hf.Value(float)
    t = Topology("t")
    stream = source(t)
    for name in ("one", "two"):
        stream.map_state("word", print, "word string", {name: last}, name=name)
    for name in ("one", "two"):
        variables = compiled(t).fingerprint[OperatorName(name)].entries["variables"]
        assert variables == {name: {"form": "value", "type": ("float",)}}


def test_timers_belong_to_a_run() -> None:
    with pytest.raises(RuntimeError, match="only while the topology runs"):
        Timed().set_timer(None)
    counts = Counts()
    assert (counts.process(None, "a"), counts.n) == (("a", 1), 1), "an operator can be tried by hand"


@pytest.mark.parametrize("operator", [Timed, Lasting])
def test_timers_and_lifetimes_need_event_time_here_or_declared_by_the_stream(operator: Any) -> None:
    with pytest.raises(TopologyError, match=r"nobody said where it is.*\.event_time\("):
        compiled(keyed(operator))
    topology = hf.Topology("t")
    declared = source(topology).event_time("at", delay=5)
    declared.keyed("word", operator, "word string, n long", name="op")
    compiled(topology)


def test_a_keyed_operator_without_timers_does_without_event_time() -> None:
    assert compiled(keyed(Counts)).graph.operators["op"].spec.on is None  # type: ignore[index, attr-defined]
