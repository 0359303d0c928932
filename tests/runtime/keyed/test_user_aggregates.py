"""Aggregates that the user writes: given the very rows that `collect` tells of, for windows of every kind."""

from __future__ import annotations

import itertools
import pickle
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from driven import Driven
from pyspark import cloudpickle

import holdfast as hf
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph, logic_of
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.ids import OperatorName
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.testing import compare_rows, run_local

SCHEMA = "k string, at timestamp, a long, end boolean, v long, w double"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOWS: dict[str, Any] = {
    "time": hf.tumbling(10, on="at", delay=3),
    "sliding time": hf.sliding(10, 4, on="at", delay=3, lateness=2),
    "rows": hf.tumbling(rows=4),
    "sliding rows": hf.sliding(rows=6, every=2),
    "delta": hf.tumbling(delta=6, of="a"),
    "sliding delta": hf.sliding(delta=6, of="a", every=2),
    "marks": hf.tumbling(until="end"),
    "none": None,
}


def told(v: pa.Array, w: pa.Array) -> str:
    """All that a function is given, as text."""
    return repr(list(zip(v.to_pylist(), w.to_pylist(), strict=True)))


def half(value: int) -> float | None:
    return None if value % 3 == 0 else value / 2


def planned(window: Any) -> KeyedLogic:
    topology = hf.Topology("t")
    rows = topology.source(hf.Rows([], SCHEMA), name="input")  # number 0, by its name
    options = {} if window is None else {"window": window}
    made = rows.aggregate(
        "k", **options, all=hf.collect("v"), mine=hf.udaf(told, "v", "w", type="string"), name="made"
    )
    made.sink(hf.MemorySink("never"), name="out")
    plan = compile_graph(topology.graph(), ArrowAnalyser())
    return logic_of(plan.graph.operators[OperatorName("made")], plan)


def table_of(chance: random.Random, values: range) -> pa.Table:
    count = len(values)
    times = [BEGIN + timedelta(seconds=v / 3 - chance.choice([0, 0, 1, 6])) for v in values]
    columns = {
        "k": pa.array([chance.choice(["a", "b", None]) for _ in values], pa.string()),
        "at": pa.array(times, pa.timestamp("us", tz="UTC")),
        "a": pa.array([v // 2 - chance.choice([0, 0, 4]) for v in values], pa.int64()),
        "end": pa.array([chance.random() < 0.2 for _ in values]),
        "v": pa.array(values, pa.int64()),
        "w": pa.array([half(v) for v in values], pa.float64()),
        "__hf_source": pa.array(np.zeros(count, dtype=np.int32)),
        "__hf_ordinal": pa.array(np.zeros(count, dtype=np.int64)),
        "__hf_row": pa.array(values, pa.int64()),
    }
    return pa.table(columns)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("window", list(WINDOWS))
def test_a_function_is_given_all_rows_of_a_window_in_their_order(
    window: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(f"{window} {seed}")
    logic = pickle.loads(cloudpickle.dumps(planned(WINDOWS[window])))  # as it comes to a task
    driven = Driven(logic, chance.randint(1, 4), tmp_path)
    cuts = sorted({0, 120, *(chance.randrange(120) for _ in range(12))})
    for begin, end in itertools.pairwise(cuts):
        driven.step(table_of(chance, range(begin, end)), chance.randint(0, 3))
        if chance.random() < 0.2:
            driven.rescale(chance.randint(1, 4))
    assert len(driven.emitted) > 5
    for row in driven.emitted:
        assert row["mine"] == repr([(v, half(v)) for v in row["all"]])
        assert row["all"] == sorted(row["all"])


# --- whole runs ---


def ran(shelf: str, store: Path, fn: Any, type_: Any) -> list[dict[str, Any]]:
    topology = hf.Topology("own")
    rows = hf.Rows([("a", n, n / 2) for n in range(20)], "k string, v long, w double", rows_per_step=3)
    stream = topology.source(rows, name="rows").consistent(period=0.02, max_consecutive_resets=2)
    made = stream.aggregate(
        "k", window=hf.tumbling(rows=5), own=hf.udaf(fn, "v", "w", type=type_), name="made"
    )
    made.sink(hf.MemorySink(shelf), name="out")
    run_local(topology, f"file:{store}/store")
    return list(hf.MemorySink.rows(shelf))


@pytest.mark.parametrize(
    ("fn", "type_", "wanted"),
    [
        (lambda v, w: pc.max(v).as_py() - pc.min(v).as_py(), "long", [4, 4, 4, 4]),
        (lambda v, w: pc.sum(w), "double", [5.0, 17.5, 30.0, 42.5]),
        (lambda v, w: np.median(v.to_numpy()), pa.float64(), [2.0, 7.0, 12.0, 17.0]),
        (lambda v, w: None if v[0].as_py() else [1, 2], "array<long>", [[1, 2], None, None, None]),
        (lambda v, w: {"n": len(v)}, "struct<n:long>", [{"n": 5}] * 4),
    ],
    ids=["number", "scalar", "numpy", "list", "struct"],
)
def test_values_of_the_declared_type_come_out(
    fn: Any, type_: Any, wanted: list[Any], shelf: str, tmp_path: Path
) -> None:
    found = ran(shelf, tmp_path, fn, type_)
    numbered = zip((5, 10, 15, 20), wanted, strict=True)
    compare_rows([{"k": "a", "window_rows": rows, "own": own} for rows, own in numbered], found)


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda v, w: v[99], "the aggregate 'own' failed over 5 rows: IndexError"),
        (lambda v: 1, "the aggregate 'own' failed over 5 rows: TypeError"),
        (lambda v, w: "many", "the aggregate 'own' gave a value that is no double"),
    ],
)
def test_a_function_that_fails_is_named(fn: Any, says: str, shelf: str, tmp_path: Path) -> None:
    with pytest.raises(RegionParkedError) as caught:
        ran(shelf, tmp_path, fn, "double")
    told = str(caught.value)
    assert f"operator 'made': {says}" in told
    assert (__file__ in told) == ("IndexError" in says), "its own line is shown, where it has one"


# --- mistakes ---

udaf: Any = hf.udaf


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: udaf("max", "v", type="long"), "takes a function"),
        (lambda: udaf(told, type="long"), "takes the names of columns"),
        (lambda: udaf(told, 5, type="long"), "takes the names of columns"),
        (lambda: udaf(told, "v", "v", type="long"), "a column twice"),
        (lambda: udaf(told, "v", type=5), "type=5 is no type"),
        (lambda: udaf(told, "v", type="long, b long"), "is not one type"),
        (lambda: udaf(told, "v", type="lonk"), "lonk"),
    ],
)
def test_nonsense_is_refused_with_a_cure(make: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says) as caught:
        make()
    assert caught.value.cure


def compiled(emit: str = "changes", *columns: str, sources: int = 1) -> Any:
    topology = hf.Topology("t")
    streams = [topology.source(hf.Rows([], SCHEMA), name=f"s{n}") for n in range(sources)]
    rows = streams[0].union(*streams[1:]) if sources > 1 else streams[0]
    options: Any = {"window": hf.tumbling(10, on="at", delay=0)} if sources > 1 else {}
    rows.aggregate("k", emit, **options, own=hf.udaf(told, *columns, type="string"), name="made").sink(
        hf.MemorySink("never"), name="out"
    )
    return compile_graph(topology.graph(), ArrowAnalyser())


def test_columns_must_be_there() -> None:
    with pytest.raises(TopologyError, match="There is no column 'x'"):
        compiled("changes", "v", "x")


def test_a_list_of_all_rows_for_every_row_is_refused() -> None:
    with pytest.raises(TopologyError, match="emit='each'"):
        compiled("each", "v")


def test_rows_of_several_sources_have_no_order() -> None:
    with pytest.raises(TopologyError, match=r"computes udaf\[v,w\]\(v\), but its input comes from several"):
        compiled("changes", "v", "w", sources=2)


def test_the_function_itself_is_no_part_of_the_fingerprint() -> None:
    plan = compiled("changes", "v", "w")
    own = plan.fingerprint[OperatorName("made")].entries["aggregates"]["own"]
    assert own == {"function": "udaf[v,w]", "column": "v", "type": "string"}
    assert type(own["function"]) is str
