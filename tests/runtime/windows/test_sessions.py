"""Sessions against a loop over rows: out of order, late, cut into steps in any way, over partitions, with a large state."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from driven import Driven
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import holdfast as hf
from holdfast.operators.aggregates import sessions as logics
from holdfast.operators.aggregates.sessions import SessionAggregate
from holdfast.operators.rows.sorting import Sort
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.windows.session_windows import Sessions
from holdfast.state.windows.time_windows import END, START
from holdfast.testing import MemorySink, run_local

UTC = pa.timestamp("us", tz="UTC")
INPUT = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
OUTPUT = pa.schema([(START, UTC), (END, UTC), ("k", pa.string()), ("n", pa.int64()), ("total", pa.int64())])
SECOND = 1_000_000
GAP, DELAY = 10, 7
FAR = 10_000

Row = tuple[str, int, int]
Result = tuple[int, int, str, int, int]


def model(rows: list[Row]) -> tuple[list[Result], int]:
    """(sessions that are closed at the end, late rows)."""
    reached, late = -(10**9), 0
    kept: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, at, value in rows:
        reached = max(reached, at)
        if at < reached - DELAY:
            late += 1
        else:
            kept[key].append((at, value))
    found: list[Result] = []
    for key, of_key in kept.items():
        ordered = sorted(of_key)
        session = [ordered[0]]
        for row in [*ordered[1:], (10**9, 0)]:
            if row[0] - session[-1][0] >= GAP:
                end = session[-1][0] + GAP
                if end <= reached - DELAY:
                    found.append((session[0][0], end, key, len(session), sum(v for _, v in session)))
                session = []
            session.append(row)
    return sorted(found), late


def logic() -> SessionAggregate:
    plan = Sessions.plan(GAP * SECOND, ("k",), (("n", "count", None), ("total", "sum", "v")), INPUT)
    port = TimedPort(("k",), "at", {0: "a"}, {0: DELAY * SECOND}, schema=INPUT)
    return SessionAggregate(port, INPUT, OUTPUT, False, None, plan)


def table(rows: list[Row], first: int) -> pa.Table:
    columns = {
        "k": pa.array([row[0] for row in rows], pa.string()),
        "at": pa.array([row[1] * SECOND for row in rows], pa.int64()).cast(UTC),
        "v": pa.array([row[2] for row in rows], pa.int64()),
        "__hf_source": pa.array([0] * len(rows), pa.int32()),
        "__hf_ordinal": pa.array([0] * len(rows), pa.int64()),
        "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
    }
    return pa.table(columns)


def seconds(value: dt.datetime) -> int:
    return int(value.timestamp())


def driven(rows: list[Row], cuts: list[int], partitions: int, directory: Path) -> tuple[list[Result], int]:
    run, done = Driven(logic(), partitions, directory), 0
    for size in [*cuts, len(rows)]:
        piece = rows[done : done + size]
        if piece:
            run.step(table(piece, done), len(piece) % 3)
        done += len(piece)
    return sorted(shape(row) for row in run.emitted), run.counts.get("late", 0)


def shape(row: dict[str, Any]) -> Result:
    return seconds(row[START]), seconds(row[END]), row["k"], row["n"], row["total"]


ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 90), st.integers(0, 5)), max_size=40)


@examples(150)
@given(rows=ROWS, cuts=st.lists(st.integers(1, 9), max_size=20), partitions=st.integers(1, 3))
def test_sessions_are_those_of_a_loop_over_rows(
    rows: list[Row], cuts: list[int], partitions: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [*rows, ("c", 95, 0)]
    assert driven(rows, cuts, partitions, tmp_path_factory.mktemp("s")) == model(rows)


def test_a_large_state_is_written_once_in_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logics, "REWRITTEN_ROWS", 3)
    chance = random.Random(3)
    rows = [(f"k{chance.randrange(40)}", n // 4 + chance.randrange(6), n) for n in range(1200)]
    assert driven(rows, [17] * 80, 2, tmp_path) == model(rows)


def test_a_row_after_exactly_the_gap_begins_a_new_session(tmp_path: Path) -> None:
    found, _ = driven([("a", 0, 1), ("a", GAP, 1), ("b", FAR, 0)], [], 1, tmp_path)
    assert [(start, n) for start, _, _, n, _ in found] == [(0, 1), (GAP, 1)]


def test_in_a_topology_sessions_close_at_the_end_of_the_input(tmp_path: Path) -> None:
    rows = [("a", dt.datetime(2026, 1, 1, 0, 0, s, tzinfo=dt.UTC)) for s in (0, 5, 9, 30, 31)]
    topology = hf.Topology("t")
    clicks = topology.source(hf.Rows(rows, "k string, at timestamp", rows_per_step=2), name="clicks")
    clicks = clicks.event_time("at", delay=0).consistent(period=0.05)
    made: Any = clicks.aggregate("k", window=hf.session("10 seconds"), n=hf.count(), name="sessions")
    made.sink(MemorySink(str(tmp_path)), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    found = sorted((row[START].second, row[END].second, row["n"]) for row in MemorySink.rows(str(tmp_path)))
    assert found == [(0, 19, 3), (30, 41, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_a_stored_state_goes_on_over_another_number_of_partitions(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    rows = [(chance.choice("abcd"), n // 3 + chance.randrange(8), n) for n in range(200)]
    sorts = Sort(TimedPort(("k",), "at", {0: "a"}, {0: DELAY * SECOND}, schema=INPUT), INPUT, stamp=3)
    runs = [Driven(made, 2, tmp_path / name) for made, name in ((logic(), "sessions"), (sorts, "sorted"))]
    for run in runs:
        run.directory.mkdir()
        done = 0
        while done < len(rows):
            size = chance.randint(1, 20)
            run.step(table(rows[done : done + size], done), chance.randint(0, 3))
            done += size
            if chance.random() < 0.3:
                run.rescale(chance.randint(1, 4))
    sessions, ordered = runs
    assert sorted(shape(row) for row in sessions.emitted) == model(rows)[0]
    reached, kept = -1, []
    for row in rows:
        reached = max(reached, row[1])
        kept += [row] if row[1] >= reached - DELAY else []
    for key in "abcd":
        left = sorted((at, n) for k, at, n in kept if k == key and at <= reached - DELAY)
        assert [row["v"] for row in ordered.emitted if row["k"] == key] == [n for _, n in left]
