"""Count windows against a loop over rows: the same results for every cut into steps and number of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import driven
import numpy as np
import pyarrow as pa
import pytest
from driven import Driven, drive
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.language.operators.values import CountWindow
from holdfast.operators.aggregates.running import CountedAggregate
from holdfast.state.columns.arrays import list_of
from holdfast.state.columns.hashing import HASH_COLUMN, KEY_GROUPS, key_group, key_hash
from holdfast.state.keyed import lookup
from holdfast.state.keyed.segment import open_segment
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.row_windows import ROWS
from holdfast.store.urls import open_store
from holdfast.testing import compare_rows, compare_sequence, run_local

INPUT = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
AGGREGATES = (
    ("n", "count", None), ("total", "sum", "v"), ("top", "max", "v"), ("low", "min", "x"), ("mean", "avg", "v"),
    ("newest", "last", "v"), ("all", "collect", "v"),
)  # fmt: skip
RESULTS = [
    *((name, pa.int64()) for name in (ROWS, "n", "total", "top")), ("low", pa.float64()), ("mean", pa.float64()),
    ("newest", pa.int64()), ("all", list_of(pa.int64())),
]  # fmt: skip

Row = tuple[str | None, int | None]
"""(key, value), in position order."""


# --- the naive model ---


def naive(rows: Sequence[Row], window: CountWindow, keyed: bool = True) -> list[dict[str, Any]]:
    """What comes out, in the order in which windows are completed, with the position of the completing row."""
    seen: dict[Any, list[int | None]] = defaultdict(list)
    found = []
    for position, (key, value) in enumerate(rows):
        of_key = seen[key if keyed else ""]
        of_key.append(value)
        if len(of_key) % window.every:
            continue
        inside = of_key[-window.size :]
        values = [value for value in inside if value is not None]
        result: dict[str, Any] = {"k": key} if keyed else {}
        result |= {ROWS: len(of_key), "n": len(inside)}
        result |= {"total": sum(values) if values else None, "top": max(values, default=None)}
        result |= {"low": min((value / 2 for value in values), default=None)}
        result |= {"mean": sum(values) / len(values) if values else None}
        result |= {"newest": value, "all": values, "__hf_row": position}
        found.append(result)
    return found


# --- the operator, driven by hand ---


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    values = [value for _, value in rows]
    return pa.table(
        {
            "k": pa.array([key for key, _ in rows], pa.string()),
            "v": pa.array(values, pa.int64()),
            "x": pa.array([None if value is None else value / 2 for value in values], pa.float64()),
            "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def logic_of(window: CountWindow, by: tuple[str, ...] = ("k",)) -> CountedAggregate:
    windows = CountWindows.plan(window.size, window.every, by, AGGREGATES, INPUT)
    output = pa.schema([*((name, pa.string()) for name in by), *RESULTS])
    return CountedAggregate.over(windows, output, True, by)


def emitted_by(driven: Driven) -> list[dict[str, Any]]:
    """What came out, with the row as the only sign of its position."""
    hidden = ("__hf_source", "__hf_ordinal")
    return [{name: value for name, value in row.items() if name not in hidden} for row in driven.emitted]


keys = st.sampled_from(["a", "b", "", None, "long enough to be no prefix of another"])
a_row = st.tuples(keys, st.one_of(st.none(), st.integers(-9, 9)))
shapes = st.sampled_from([(1, 1), (3, 3), (5, 1), (7, 2), (6, 4), (8, 2), (13, 1), (12, 9), (40, 1)])


@examples(200)
@given(data=st.data())
def test_results_depend_neither_on_cuts_nor_on_partitions(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    window = CountWindow(*data.draw(shapes))
    by = data.draw(st.sampled_from([("k",), ("k",), ()]))
    rows: list[Row] = data.draw(st.lists(a_row, max_size=90))
    driven = Driven(logic_of(window, by), data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("count"))
    for _ in drive(driven, len(rows), data, lambda begin, end: table_of(rows[begin:end], begin)):
        pass
    # A row completes one window at most: sorted by its position, the results are those of the model, one for one.
    emitted = sorted(emitted_by(driven), key=lambda row: row["__hf_row"])
    compare_sequence(naive(rows, window, keyed=bool(by)), emitted)


def test_results_of_a_step_come_in_the_order_in_which_windows_were_completed(tmp_path: Path) -> None:
    rows: list[Row] = [(f"k{n % 7}", n) for n in range(200)]
    driven = Driven(logic_of(CountWindow(6, 2)), 1, tmp_path)
    driven.step(table_of(rows, 0), 3)
    compare_sequence(naive(rows, CountWindow(6, 2)), emitted_by(driven))


@pytest.mark.parametrize(("size", "every", "most"), [(6, 6, 1), (6, 2, 3), (6, 4, 3), (5, 1, 5)])
def test_a_key_never_has_more_state_rows_than_a_window_has_panes(
    tmp_path: Path, size: int, every: int, most: int
) -> None:
    driven = Driven(logic_of(CountWindow(size, every)), 1, tmp_path)
    for step in range(40):
        driven.step(table_of([(f"k{n % 11}", n) for n in range(30)], step * 30), 0)
        driven.rescale(1)  # which leaves the newest row of each (slot, key)
        assert sum(segment.rows for segment in driven.segments[0]) <= 11 * most


def test_all_slots_of_a_key_lie_in_its_key_group(tmp_path: Path) -> None:
    driven = Driven(logic_of(CountWindow(9, 1)), 1, tmp_path)
    driven.step(table_of([(f"k{n % 11}", n) for n in range(300)], 0), 0)
    table = pa.concat_tables([open_segment(segment.path) for segment in driven.segments[0]])
    assert table.num_rows == 99
    hashes = table.column(HASH_COLUMN).to_numpy()
    assert len(np.unique(hashes)) == 99
    assert KEY_GROUPS == 128
    np.testing.assert_array_equal(key_group(hashes), key_group(key_hash([table.column("k")])))


def test_a_step_reads_only_what_its_own_keys_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(logic_of(CountWindow(6, 2)), 1, tmp_path)
    driven.step(table_of([(f"k{n % 500}", n) for n in range(5000)], 0), 0)
    asked = []

    def find_rows(segments: Any, wanted: pa.Table, aggregation: Any) -> Any:
        asked.append(wanted.num_rows)
        return lookup.find_rows(segments, wanted, aggregation)

    for module in ("row_windows", "count_windows"):
        monkeypatch.setattr(f"holdfast.state.windows.{module}.find_rows", find_rows)
    driven.step(table_of([("k1", 1), ("k2", 2), ("k2", 3)], 5000), 0)
    assert asked == [2, 1], "two heads; one pane before the head of the key that completes a window"


# --- whole runs ---


ROWS_IN = [(f"k{n % 5}" if n % 7 else None, n) for n in range(120)]


class Weak(driven.Weak):
    def fails_at(self, row: Any) -> bool:
        return bool(row.n >= 80)

    def process(self, row: Any, port: int) -> Any:
        passed = super().process(row, port)
        return (passed.k, passed.window_rows, passed.n)


def counted(shelf: str, window: CountWindow, rows_per_step: int = 7) -> hf.Topology:
    topology = hf.Topology("counted")
    source = topology.source(hf.Rows(ROWS_IN, "k string, v long", rows_per_step=rows_per_step), name="rows")
    result = source.consistent("r", period=0.02, max_consecutive_resets=2).aggregate(
        "k", window=window, n=hf.max("v"), total=hf.sum("v"), name="counted"
    )
    passed = result.apply(Weak, "k string, window_rows long, n long", name="weak")
    passed.sink(hf.MemorySink(shelf), name="out")
    return topology


def golden(window: CountWindow) -> list[dict[str, Any]]:
    return [{"k": r["k"], ROWS: r[ROWS], "n": r["top"]} for r in naive(ROWS_IN, window)]


@pytest.mark.parametrize("window", [hf.tumbling(rows=4), hf.sliding(rows=6, every=1)])
def test_a_failure_in_the_middle_changes_nothing(tmp_path: Path, shelf: str, window: CountWindow) -> None:
    Weak.failures = 1
    status = run_local(counted(shelf, window), store=f"file:{tmp_path}/store", partitions=3)
    assert status["regions"]["r"]["resets"] == 1
    # The hosted operator sees the windows in the order of the rows that completed them.
    compare_sequence(golden(window), hf.MemorySink.rows(shelf))


@pytest.mark.parametrize("partitions", [1, 3, 4])
def test_a_stored_state_goes_on_over_another_number_of_partitions(
    tmp_path: Path, shelf: str, partitions: int
) -> None:
    store, window = f"file:{tmp_path}/store", hf.sliding(rows=6, every=2)
    Weak.failures = 1000
    with pytest.raises(RegionParkedError):
        run_local(counted(shelf, window), store, partitions=3)
    kinds = [event.kind for event in open_store(store).events()]
    assert "epoch.published" in kinds, "there is something to go on from"
    Weak.failures = 0
    run_local(counted(shelf, window, rows_per_step=5), store, partitions=partitions)
    compare_sequence(golden(window), hf.MemorySink.rows(shelf))


def test_windows_of_windows_keep_the_order(tmp_path: Path, shelf: str) -> None:
    topology = hf.Topology("nested")
    source = topology.source(hf.Rows(ROWS_IN, "k string, v long", rows_per_step=11), name="rows")
    pairs = source.consistent("r", period=0.02).aggregate(
        "k", window=hf.tumbling(rows=2), total=hf.sum("v"), name="pairs"
    )
    pairs.aggregate([], window=hf.tumbling(rows=10), total=hf.sum("total"), name="tens").sink(
        hf.MemorySink(shelf), name="out"
    )
    run_local(topology, store=f"file:{tmp_path}/store")
    inner = [row["total"] for row in naive(ROWS_IN, CountWindow(2, 2))]
    wanted = [{ROWS: end, "total": sum(inner[end - 10 : end])} for end in range(10, len(inner) + 1, 10)]
    compare_rows(wanted, hf.MemorySink.rows(shelf))
