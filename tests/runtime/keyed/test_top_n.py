"""The best rows of each key against sorted lists: the same for every cut into steps and number of partitions."""

from __future__ import annotations

import datetime
from collections import defaultdict
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
from holdfast.language.operators.rows import top_n_schema, top_n_spec
from holdfast.language.operators.values import TimeWindow
from holdfast.operators.rows.ranked import TopOfWindows, TopRows
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.keyed.segment import open_segment
from holdfast.testing import run_local

UTC = pa.timestamp("us", tz="UTC")
BEGIN = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
INPUT = pa.schema(
    [
        ("k", pa.string()),
        ("at", UTC),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("n", pa.int64()),
    ]
)
SECOND = 1_000_000

Row = dict[str, Any]


# --- the naive model ---


def plain(value: Any) -> Any:
    return (value - BEGIN).total_seconds() if isinstance(value, datetime.datetime) else value


def rank_key(row: Row, order: Sequence[str]) -> tuple[Any, ...]:
    """Sorts as `order` says; nulls last, NaN above all numbers, then by position."""
    key: list[Any] = []
    for column in order:
        name, descending = column.removeprefix("-"), column.startswith("-")
        value = plain(row[name])
        if value is None:
            key += [(1,)]
            continue
        if isinstance(value, str):
            codes = [ord(letter) + 1 for letter in value] + [0]
            key += [(0, *([-code for code in codes] if descending else codes))]
            continue
        number = (1, 0.0) if value != value else (0, value)
        key += [(0, *((-number[0], -number[1]) if descending else number))]
    return (*key, row["n"])


def best(rows: Sequence[Row], count: int, order: Sequence[str]) -> list[Row]:
    first = sorted(rows, key=lambda row: rank_key(row, order))[:count]
    return [{"rank": place, **row} for place, row in enumerate(first, 1)]


def comparable(rows: Sequence[Row]) -> list[str]:
    """Rows as texts, which NaN does not spoil."""
    return sorted(repr(sorted((name, plain(value)) for name, value in row.items())) for row in rows)


# --- the operator, driven by hand ---


def table_of(rows: Sequence[Row]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), schema=INPUT)
    positions = {
        "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
        "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
        "__hf_row": table.column("n"),
    }
    for name, column in positions.items():
        table = table.append_column(name, column)
    return table


keys = st.sampled_from(["a", "b", "", None])
scores = st.sampled_from([None, 0.0, 1.5, -2.0, 7.0, float("nan")])
words = st.sampled_from([None, "", "a", "ab", "b"])
a_row = st.tuples(keys, st.integers(-5, 40), scores, words)


def rows_of(drawn: Sequence[Any]) -> list[Row]:
    return [
        {"k": k, "at": BEGIN + datetime.timedelta(seconds=at), "x": x, "s": s, "tags": [s, None], "n": n}
        for n, (k, at, x, s) in enumerate(drawn)
    ]


some_rows = st.one_of(st.lists(a_row, max_size=12), st.lists(a_row, min_size=30, max_size=60)).map(rows_of)
orders = st.sampled_from([["-x"], ["x"], ["-s", "x"], ["x", "-s"], ["-at"], ["s", "-n"]])


@examples(100)
@given(data=st.data())
def test_a_changed_list_leaves_whole_and_others_do_not(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows, order = data.draw(some_rows), data.draw(orders)
    count, by = data.draw(st.integers(1, 4)), data.draw(st.sampled_from([("k",), ("k", "s"), ()]))
    spec = top_n_spec(count, by, order, None)
    logic = TopRows.plan(count, by, spec.order, INPUT, top_n_schema(INPUT, spec))
    driven = Driven(logic, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("top"))
    before: dict[Any, list[Row]] = {}
    for _, end in drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end]), bool(by)):
        groups = defaultdict(list)
        for row in rows[:end]:
            groups[tuple(row[name] for name in by)].append(row)
        now = {key: best(group, count, order) for key, group in groups.items()}
        changed = [row for key, group in now.items() if repr(group) != repr(before.get(key)) for row in group]
        assert comparable(driven.emitted) == comparable(changed)
        driven.emitted.clear()
        before = now


def best_of_windows(rows: Sequence[Row], window: TimeWindow, count: int, order: Sequence[str]) -> list[Row]:
    reached, delay = None, dict(window.delays_us)[""]
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        time = round((row["at"] - BEGIN).total_seconds() * SECOND)
        reached = time if reached is None else max(reached, time)
        for number in range((time - window.size_us) // window.slide_us, time // window.slide_us + 1):
            start = number * window.slide_us
            if start <= time < start + window.size_us and start + window.size_us > reached - delay:
                groups[start, row["k"]].append(row)
    found = []
    for (start, _), group in groups.items():
        end = start + window.size_us
        if reached is not None and end <= reached - delay:
            moments = [BEGIN + datetime.timedelta(microseconds=t) for t in (start, end)]
            found += [
                {"window_start": moments[0], "window_end": moments[1], **row}
                for row in best(group, count, order)
            ]
    return found


@examples(100)
@given(data=st.data())
def test_the_best_of_a_window_leave_when_it_is_complete(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    rows, order, count = data.draw(some_rows), data.draw(orders), data.draw(st.integers(1, 4))
    delay = data.draw(st.sampled_from([0, 3, 12]))
    window = data.draw(
        st.sampled_from([hf.tumbling(10, on="at", delay=delay), hf.sliding(9, 3, on="at", delay=delay)])
    )
    spec = top_n_spec(count, "k", order, window)
    port = TimedPort(("k",), "at", {0: "s0"}, {0: delay * SECOND})
    logic = TopOfWindows.plan(count, spec.order, window, port, INPUT, top_n_schema(INPUT, spec))
    driven = Driven(logic, data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("tops"))
    for _ in drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end]), False):
        pass
    assert comparable(driven.emitted) == comparable(best_of_windows(rows, window, count, order))


@pytest.mark.parametrize("mappers", range(5))
def test_equal_rows_stand_in_the_order_of_the_source(tmp_path: Path, mappers: int) -> None:
    spec = top_n_spec(5, "k", "-x", None)
    logic = TopRows.plan(5, ("k",), spec.order, INPUT, top_n_schema(INPUT, spec))
    driven = Driven(logic, 1, tmp_path)
    rows = rows_of([("a", 0, 1.5, "")] * 12)
    driven.step(table_of(rows[4:8]), mappers)
    driven.step(table_of([*rows[8:], *rows[:4]]), mappers)
    assert [(row["rank"], row["n"]) for row in driven.emitted[-5:]] == [(n + 1, n) for n in range(5)]


def test_a_key_keeps_no_more_rows_than_asked_for(tmp_path: Path) -> None:
    spec = top_n_spec(3, "k", "-n", None)
    logic = TopRows.plan(3, ("k",), spec.order, INPUT, top_n_schema(INPUT, spec))
    driven = Driven(logic, 1, tmp_path)
    for step in range(20):
        drawn = [(f"k{n % 7}", 0, 0.0, "") for n in range(50)]
        rows = [{**row, "n": step * 50 + n} for n, row in enumerate(rows_of(drawn))]
        driven.step(table_of(rows), 2)
    driven.rescale(1)
    lists = logic.keyed_map.state_schema.names[-1]
    (segment,) = driven.segments[0]
    assert {len(values) for values in open_segment(segment.path).column(lists).to_pylist()} == {3}


def test_a_whole_run_gives_ranks_that_can_be_merged(tmp_path: Path) -> None:
    rows = [(f"k{n % 3}", (n * 37) % 101) for n in range(90)]
    topology = hf.Topology("best")
    source = topology.source(hf.Rows(rows, "k string, v long", rows_per_step=7), name="rows")
    best_rows = source.consistent("r", period=0.02).top_n(2, by="k", order="-v", name="best")
    best_rows.sink(hf.MemorySink("best"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", partitions=3)
    merged = {(row["k"], row["rank"]): row["v"] for row in hf.MemorySink.rows("best")}
    hf.MemorySink.clear("best")
    for key in ("k0", "k1", "k2"):
        values = sorted((v for k, v in rows if k == key), reverse=True)
        assert [merged[key, 1], merged[key, 2]] == values[:2]
