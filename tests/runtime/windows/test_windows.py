"""Event-time windows against a loop over rows: the same results for every cut into steps and number of partitions."""

from __future__ import annotations

import datetime
from collections import defaultdict
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
from holdfast.language.operators.values import TimeWindow
from holdfast.language.operators.windows import sliding
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.windows.time_windows import END, START, Windows
from holdfast.testing import compare_rows, run_local

UTC = pa.timestamp("us", tz="UTC")
INPUT = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
OUTPUT = pa.schema(
    [
        (START, UTC),
        (END, UTC),
        ("k", pa.string()),
        ("n", pa.int64()),
        ("total", pa.int64()),
        ("top", pa.int64()),
    ]
)
AGGREGATES = (("n", "count", None), ("total", "sum", "v"), ("top", "max", "v"))
SECOND = 1_000_000

Row = tuple[int, str | None, int | None, int]
"""(source, key, event second or None, value), in position order within its source."""


# --- the naive model ---


def naive(rows: list[Row], window: TimeWindow, delays: dict[int, int]) -> tuple[dict[Any, Any], int]:
    """((window, key) → (n, total, top) of all windows that ever take a row, number of late rows)."""
    reached: dict[int, int] = {}
    groups: dict[Any, list[int]] = defaultdict(list)
    late = 0
    for source, key, second, value in rows:
        if second is None:
            continue
        time = second * SECOND
        reached[source] = max(reached.get(source, time), time)
        mark = reached[source] - delays[source]
        last = time // window.slide_us
        numbers = [
            w
            for w in range(last - window.size_us // window.slide_us - 1, last + 1)
            if w * window.slide_us <= time < w * window.slide_us + window.size_us
            and w * window.slide_us + window.size_us + window.lateness_us > mark
        ]
        late += not numbers
        for w in numbers:
            groups[w, key].append(value)
    results = {place: (len(values), sum(values), max(values)) for place, values in groups.items()}
    return results, late


def complete(
    results: dict[Any, Any], rows: list[Row], window: TimeWindow, delays: dict[int, int]
) -> dict[Any, Any]:
    """Those whose end the watermark of all sources has passed after the last row."""
    reached = {s: max((t for o, _, t, _ in rows if o == s and t is not None), default=None) for s in delays}
    if any(time is None for time in reached.values()):
        return {}
    mark = min(reached[s] * SECOND - delays[s] for s in delays)  # type: ignore[operator]
    return {place: r for place, r in results.items() if place[0] * window.slide_us + window.size_us <= mark}


# --- the operator, driven by hand ---


def table_of(rows: list[Row], positions: list[int]) -> pa.Table:
    times = [None if second is None else second * SECOND for _, _, second, _ in rows]
    return pa.table(
        {
            "k": pa.array([key for _, key, _, _ in rows], pa.string()),
            "at": pa.array(times, pa.int64()).cast(UTC),
            "v": pa.array([value for *_, value in rows], pa.int64()),
            "__hf_source": pa.array([source for source, *_ in rows], pa.int32()),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(positions, pa.int64()),
        }
    )


def logic_of(window: TimeWindow, delays: dict[int, int], late: bool = False) -> WindowedAggregate:
    windows = Windows.plan(window.size_us, window.slide_us, window.lateness_us, ("k",), AGGREGATES, INPUT)
    port = TimedPort(("k",), "at", {n: f"s{n}" for n in delays}, delays)
    return WindowedAggregate(port, INPUT, OUTPUT, late, None, windows)


def results_of(driven: Driven, window: TimeWindow) -> dict[Any, Any]:
    """(window, key) → the last result that was emitted."""
    found = {}
    for row in driven.emitted:
        micros = round(row[START].timestamp() * 1e6)
        assert row[END] - row[START] == datetime.timedelta(microseconds=window.size_us)
        found[micros // window.slide_us, row["k"]] = (row["n"], row["total"], row["top"])
    return found


keys = st.sampled_from(["a", "b", "", None, "long enough to be no prefix of another"])
a_row = st.tuples(st.integers(0, 1), keys, st.one_of(st.none(), st.integers(-20, 60)), st.integers(-9, 9))
shapes = st.sampled_from([(10, 10), (10, 5), (10, 3), (7, 2), (4, 1)])


@examples(150)
@given(data=st.data())
def test_results_depend_neither_on_cuts_nor_on_partitions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    size, slide = data.draw(shapes)
    delay, lateness = data.draw(st.integers(0, 15)), data.draw(st.sampled_from([0, 0, 6]))
    window = sliding(size, slide, on="at", delay=delay, lateness=lateness)
    rows: list[Row] = data.draw(st.lists(a_row, max_size=60))
    delays = {0: delay * SECOND, 1: (delay + data.draw(st.integers(0, 3))) * SECOND}
    if data.draw(st.booleans()):  # one source only
        rows, delays = [(0, *row[1:]) for row in rows], {0: delays[0]}
    driven = Driven(
        logic_of(window, delays), data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("windows")
    )
    for _ in drive(driven, len(rows), data, lambda a, b: table_of(rows[a:b], list(range(a, b))), False):
        pass
    wanted, late = naive(rows, window, delays)
    assert results_of(driven, window) == complete(wanted, rows, window, delays)
    assert driven.counts.get("late", 0) == late
    if not lateness:
        assert len(driven.emitted) == len(results_of(driven, window)), "each result once"


def test_state_that_no_open_window_needs_is_dropped(tmp_path: Path) -> None:
    window = sliding(10, 5, on="at", delay=0)
    driven = Driven(logic_of(window, {0: 0}), 1, tmp_path)
    for step in range(50):
        rows: list[Row] = [(0, f"k{n}", step * 5, n) for n in range(20)]
        driven.step(table_of(rows, list(range(step * 20, step * 20 + 20))), 0)
        assert sum(segment.rows for segment in driven.segments[0]) <= 60


@pytest.mark.fault("I01")
def test_late_rows_can_be_had_as_a_stream_of_their_own(tmp_path: Path) -> None:
    at = [
        datetime.datetime(2026, 1, 1, 0, 0, second, tzinfo=datetime.UTC) for second in (1, 12, 3, 13, 25, 4)
    ]
    rows = [(moment, n) for n, moment in enumerate(at)]
    topology = hf.Topology("late")
    source = topology.source(hf.Rows(rows, "at timestamp, n int", rows_per_step=2), name="rows")
    results = source.consistent(period=0.05).aggregate(
        [], window=hf.tumbling(10, on="at", delay=0), late=True, n=hf.count(), top=hf.max("n"), name="tens"
    )
    results.sink(hf.MemorySink("tens"), name="out")
    results.late.sink(hf.MemorySink("late"), name="late_out")
    status = run_local(topology, store=f"file:{tmp_path}/store")
    tens, late_rows = hf.MemorySink.table("tens"), hf.MemorySink.table("late")
    hf.MemorySink.clear("tens")
    hf.MemorySink.clear("late")
    compare_rows([{"n": 1, "top": 0}, {"n": 2, "top": 3}], tens.select(["n", "top"]).to_pylist())
    assert late_rows.column("n").to_pylist() == [2, 5]
    counts = [element["counts"] for element in status["elements"].values()]
    assert counts == [{"tens": {"late": 2}}]
