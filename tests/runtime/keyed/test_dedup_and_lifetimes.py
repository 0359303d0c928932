"""Dedup, and keys that are forgotten, against a loop over rows: the same for every cut into steps and partition count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from driven import Driven, drive
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.language.operators.values import Ttl
from holdfast.operators.aggregates.running import RowAggregate
from holdfast.operators.rows.dedup import Dedup
from holdfast.state.keyed.expiry import remembering
from holdfast.testing import compare_sequence, run_local

UTC = pa.timestamp("us", tz="UTC")
INPUT = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
AGGREGATES = (("n", "count", None), ("total", "sum", "v"), ("newest", "last", "v"))
OUTPUT = pa.schema([("k", pa.string()), ("n", pa.int64()), ("total", pa.int64()), ("newest", pa.int64())])
SECOND = 1_000_000
BEFORE = -(10**18)

Row = tuple[str | None, int | None]
"""(key, event second or None), in position order; the value is the position."""


# --- naive models ---


def timed(rows: Sequence[Row], ttl: Ttl | None) -> Iterator[tuple[int, str | None, int, int]]:
    """(position, key, its time, the watermark there)."""
    reached = BEFORE
    for position, (key, second) in enumerate(rows):
        reached = reached if second is None else max(reached, second * SECOND)
        time = reached if second is None else second * SECOND
        yield position, key, time, reached - (ttl.delay_us if ttl else 0)


def naive_dedup(rows: Sequence[Row], ttl: Ttl | None) -> list[int]:
    """The positions of the rows that pass."""
    seen: dict[str | None, int] = {}
    passed = []
    for position, key, time, mark in timed(rows, ttl):
        if key in seen and (ttl is None or not mark >= seen[key] + ttl.length_us):
            continue
        seen[key] = time
        passed.append(position)
    return passed


def naive_lives(rows: Sequence[Row], ttl: Ttl) -> list[dict[str, Any]]:
    """What each row's key has come to."""
    lives: dict[str | None, list[int]] = {}
    latest: dict[str | None, int] = {}
    found = []
    for position, key, time, mark in timed(rows, ttl):
        if key not in lives or mark >= latest[key] + ttl.length_us:
            lives[key], latest[key] = [], BEFORE
        lives[key].append(position)
        latest[key] = max(latest[key], time)
        life = lives[key]
        found.append({"k": key, "n": len(life), "total": sum(life), "newest": position})
    return found


# --- the operators, driven by hand ---


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    times = [None if second is None else second * SECOND for _, second in rows]
    return pa.table(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "at": pa.array(times, pa.int64()).cast(UTC),
            "v": pa.array(range(first, first + len(rows)), pa.int64()),
            "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


keys = st.sampled_from(["a", "b", "", None, "long enough to be no prefix of another"])
a_row = st.tuples(keys, st.one_of(st.none(), st.integers(-20, 60)))
some_rows = st.one_of(st.lists(a_row, max_size=12), st.lists(a_row, min_size=30, max_size=80))
rising = some_rows.map(lambda rows: [(k, None if s is None else n + s // 9) for n, (k, s) in enumerate(rows)])
lifetimes = st.builds(
    lambda length, delay: hf.ttl(length, on="at", delay=delay), st.integers(1, 30), st.sampled_from([0, 0, 5])
)


def in_steps(driven: Driven, rows: Sequence[Row], data: st.DataObject) -> list[int]:
    """How many rows each step had."""
    steps = drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end], begin))
    return [end - begin for begin, end in steps]


@examples(80)
@given(data=st.data())
def test_the_first_row_of_each_life_passes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[Row] = data.draw(st.one_of(some_rows, rising))
    ttl = data.draw(st.one_of(st.none(), lifetimes))
    logic = Dedup.plan(("k",), ttl, INPUT, stamped=True)
    driven = Driven(logic, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("dedup"))
    in_steps(driven, rows, data)
    passed = naive_dedup(rows, ttl)
    assert sorted(row["v"] for row in driven.emitted) == passed
    assert all(row["v"] == row["__hf_row"] for row in driven.emitted), "rows keep their positions"
    assert driven.counts.get("dropped", 0) == len(rows) - len(passed)


@examples(60)
@given(data=st.data())
def test_an_aggregate_starts_afresh_after_its_key_was_forgotten(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[Row] = data.draw(st.one_of(some_rows, rising))
    ttl = data.draw(lifetimes)
    aggregation = remembering(("k",), AGGREGATES, INPUT)
    logic = RowAggregate(aggregation, OUTPUT, True, ttl, "each")
    driven = Driven(logic, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("lives"))
    in_steps(driven, rows, data)
    emitted = sorted(driven.emitted, key=lambda row: row["__hf_row"])
    hidden = ("__hf_source", "__hf_ordinal", "__hf_row")
    compare_sequence(
        naive_lives(rows, ttl), [{k: v for k, v in row.items() if k not in hidden} for row in emitted]
    )


@examples(60)
@given(data=st.data())
def test_changes_tell_what_each_key_of_the_step_has_come_to(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[Row] = data.draw(st.one_of(some_rows, rising))
    ttl = data.draw(lifetimes)
    logic = RowAggregate(remembering(("k",), AGGREGATES, INPUT), OUTPUT, False, ttl, "changes")
    driven = Driven(logic, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("changes"))
    steps = in_steps(driven, rows, data)
    each, wanted = iter(naive_lives(rows, ttl)), []
    for step in steps:
        wanted += list({row["k"]: row for row in itertools.islice(each, step)}.values())
    by_newest = sorted(driven.emitted, key=lambda row: row["newest"])
    compare_sequence(sorted(wanted, key=lambda row: row["newest"]), by_newest)


@pytest.mark.parametrize("kind", ["dedup", "aggregate"])
def test_merging_leaves_out_what_was_forgotten(tmp_path: Path, kind: str) -> None:
    ttl = hf.ttl(10, on="at", delay=0)
    logic: Any = Dedup.plan(("k",), ttl, INPUT, stamped=False)
    if kind == "aggregate":
        logic = RowAggregate(remembering(("k",), AGGREGATES, INPUT), OUTPUT, False, ttl, "changes")
    driven = Driven(logic, 1, tmp_path)
    for step in range(300):
        driven.step(table_of([(f"{step}-{n}", step) for n in range(20)], step * 20), 0)
    kept = sum(segment.rows for segment in driven.segments[0])
    assert kept < 1500, f"{kept} of 6000 keys are there, 200 of them alive"
    driven.step(table_of([("299-0", 300), ("0-0", 300)], 6000), 0)
    if kind == "dedup":
        assert [row["k"] for row in driven.emitted[6000:]] == ["0-0"]
    else:
        assert {row["k"]: row["n"] for row in driven.emitted[6000:]} == {"299-0": 2, "0-0": 1}


def test_processing_time_is_the_step_s_and_never_falls(tmp_path: Path) -> None:
    logic = Dedup.plan(("k",), hf.ttl(10), INPUT, stamped=False)
    driven = Driven(logic, 2, tmp_path)
    passed = []
    for step, second in enumerate([100, 105, 103, 109, 110, 111, 131]):
        driven.meta = logic.at(driven.meta, second * SECOND)
        driven.step(table_of([("a", None), ("a", None), (f"only {step}", None)], 3 * step), step % 3)
        passed += [(second, row["k"]) for row in driven.emitted if row["k"] == "a"]
        driven.emitted.clear()
    assert passed == [(100, "a"), (110, "a"), (131, "a")]


# --- whole runs ---


def test_dropped_rows_are_in_the_status_and_order_goes_on(tmp_path: Path, shelf: str) -> None:
    rows = [(f"k{n % 5}" if n % 7 else None, n) for n in range(60)]
    topology = hf.Topology("once")
    source = topology.source(hf.Rows(rows, "k string, v long", rows_per_step=7), name="rows")
    once = source.consistent("r", period=0.02).dedup("k", name="once")
    once.aggregate([], window=hf.tumbling(rows=2), all=hf.collect("v"), name="pairs").sink(
        hf.MemorySink(shelf), name="out"
    )
    status = run_local(topology, store=f"file:{tmp_path}/store", partitions=3)
    assert [row["all"] for row in hf.MemorySink.rows(shelf)] == [[0, 1], [2, 3], [4, 5]]
    counts = [element["counts"] for element in status["elements"].values()]
    assert counts == [{"once": {"dropped": 54}}]


@pytest.mark.parametrize(("seconds", "wanted"), [(3600, [1, 2, 3, 4, 5, 6]), (100, [1, 1, 1, 1, 1, 1])])
def test_processing_time_is_the_driver_s_clock(
    tmp_path: Path, shelf: str, seconds: float, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(1_000_000, 101)
    monkeypatch.setattr(SystemClock, "wall", lambda _: float(next(now)))
    rows = [("a", n) for n in range(6)]
    topology = hf.Topology("forgetful")
    source = topology.source(hf.Rows(rows, "k string, v long", rows_per_step=1), name="rows")
    counted = source.consistent("r", period=60).aggregate("k", ttl=hf.ttl(seconds), n=hf.count(), name="n")
    counted.sink(hf.MemorySink(shelf), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    assert [row["n"] for row in hf.MemorySink.rows(shelf)] == wanted
