"""Sorting by event time against `sorted`: the same rows in the same order for every cut into steps."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
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
from holdfast.operators.rows.sorting import Sort
from holdfast.operators.shared.timed import TimedPort
from holdfast.testing import run_local

UTC = pa.timestamp("us", tz="UTC")
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
INPUT = pa.schema([("at", UTC), ("n", pa.int64())])
SECOND = 1_000_000

Row = tuple[int, int | None]
"""(source, event second or None), in position order within its source; its number is its position."""


def naive(rows: Sequence[Row], delays: dict[int, int]) -> tuple[list[int], int]:
    """(the numbers of the rows that leave, in order; how many are late)."""
    reached: dict[int, int] = {}
    waiting, late = [], 0
    for number, (source, second) in enumerate(rows):
        if second is None:
            continue
        reached[source] = max(reached.get(source, second), second)
        if second * SECOND < reached[source] * SECOND - delays[source]:
            late += 1
        else:
            waiting.append((second * SECOND, source, number))
    if any(source not in reached for source in delays):
        return [], late
    mark = min(reached[source] * SECOND - delay for source, delay in delays.items())
    return [number for time, _, number in sorted(waiting) if time < mark + (len(delays) == 1)], late


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    times = [None if second is None else second * SECOND for _, second in rows]
    numbers = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.table(
        {
            "at": pa.array(times, pa.int64()).cast(UTC),
            "n": numbers,
            "__hf_source": pa.array([source for source, _ in rows], pa.int32()),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": numbers,
        }
    )


def logic_of(delays: dict[int, int], names: str = "abc") -> Sort:
    return Sort(TimedPort((), "at", {number: names[number] for number in delays}, delays), INPUT, stamp=5)


a_row = st.tuples(st.integers(0, 1), st.one_of(st.none(), st.integers(-20, 60)))
some_rows = st.one_of(st.lists(a_row, max_size=12), st.lists(a_row, min_size=30, max_size=70))
rising = some_rows.map(
    lambda rows: [(s, None if t is None else n // 2 + t // 9) for n, (s, t) in enumerate(rows)]
)


@examples(80)
@given(data=st.data())
def test_rows_leave_in_the_order_of_time_whatever_the_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows: list[Row] = data.draw(st.one_of(some_rows, rising))
    delays = {0: data.draw(st.integers(0, 12)) * SECOND, 1: data.draw(st.integers(0, 12)) * SECOND}
    if data.draw(st.booleans()):  # one source only
        rows, delays = [(0, time) for _, time in rows], {0: delays[0]}
    driven = Driven(logic_of(delays), data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("sort"))
    for _ in drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end], begin), False):
        pass
    wanted, late = naive(rows, delays)
    assert [row["n"] for row in driven.emitted] == wanted
    assert [row["__hf_row"] for row in driven.emitted] == list(range(len(wanted)))
    assert {row["__hf_source"] for row in driven.emitted} <= {5}
    assert driven.counts.get("late", 0) == late


def test_sources_may_get_other_numbers_while_their_rows_wait(tmp_path: Path) -> None:
    driven = Driven(logic_of({0: 0, 1: 0}, "bc"), 1, tmp_path)
    driven.step(table_of([(0, 5), (1, 5), (0, 9)], 0), 0)
    driven.logic = logic_of({0: 0, 1: 0, 2: 0}, "abc")
    driven.step(table_of([(0, 5), (0, 9), (2, 9), (1, 9)], 3), 0)
    assert [row["n"] for row in driven.emitted] == [3, 0, 1], "by the names a, b, c"


def test_rows_are_not_written_again_and_again(tmp_path: Path) -> None:
    """A long wait makes a large state: segments stay few, and most steps write little more than their own rows."""
    driven = Driven(logic_of({0: 10**6 * SECOND}), 1, tmp_path)
    written, most = 0, 0
    for step in range(120):
        before = set(driven.segments[0])
        driven.step(table_of([(0, 7 * step % 1000)] * 3000, step * 3000), 0)
        written += sum(segment.rows for segment in set(driven.segments[0]) - before)
        most = max(most, len(driven.segments[0]))
    assert sum(segment.rows for segment in driven.segments[0]) == 360_000
    assert written < 360_000 * 12
    assert most <= 10


def test_what_has_left_is_not_kept(tmp_path: Path) -> None:
    driven = Driven(logic_of({0: 5 * SECOND}), 2, tmp_path)
    for step in range(200):
        driven.step(table_of([(0, step)] * 10, step * 10), step % 3)
    assert len(driven.emitted) == 10 * 195
    assert sum(segment.rows for segment in driven.segments[0]) <= 60


def test_what_depends_on_order_may_follow_a_union_of_sources(tmp_path: Path) -> None:
    def moments(parity: int) -> list[tuple[datetime.datetime, int]]:
        return [(BEGIN + datetime.timedelta(seconds=n), n) for n in range(parity, 61, 2)]

    topology = hf.Topology("sorted")
    sources = [
        topology.source(
            hf.Rows(moments(parity), "at timestamp, n long", rows_per_step=3 + parity), name=f"s{parity}"
        ).consistent("r", period=0.02)
        for parity in (0, 1)
    ]
    ordered = sources[0].union(sources[1]).sort("at", name="sorted", delay=0)
    ordered.aggregate([], window=hf.tumbling(rows=4), all=hf.collect("n"), name="fours").sink(
        hf.MemorySink("fours"), name="out"
    )
    status: Any = run_local(topology, store=f"file:{tmp_path}/store", partitions=3)
    fours = [row["all"] for row in hf.MemorySink.rows("fours")]
    hf.MemorySink.clear("fours")
    assert fours == [list(range(n, n + 4)) for n in range(0, 56, 4)], status
