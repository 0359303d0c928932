"""Variance, first, last, sets, lists and quantiles in running topologies: steps, partitions, windows, restarts."""

from __future__ import annotations

import datetime
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.testing import run_local

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DDL = "k string, at timestamp, v int, t string"
Row = tuple[str, datetime.datetime, int | None, str]

ROWS: list[Row] = [
    (
        "abc"[n * 7 // 2 % 3],
        START + datetime.timedelta(seconds=n),
        None if n % 11 == 5 else n * 37 % 19,
        f"t{n % 4}",
    )
    for n in range(60)
]
AGGREGATES = {
    "n": hf.count("v"),
    "var": hf.variance("v"),
    "first": hf.first("v"),
    "last": hf.last("t"),
    "all": hf.collect("v"),
    "set": hf.collect_set("v"),
    "texts": hf.count_distinct("t"),
    "p90": hf.quantile("v", 0.9),
}


def expected(rows: list[Row]) -> dict[str, Any]:
    values = [v for _, _, v, _ in rows if v is not None]
    return {
        "n": len(values),
        "var": pytest.approx(statistics.variance(values)) if len(values) > 1 else None,
        "first": rows[0][2],
        "last": rows[-1][3],
        "all": values,
        "set": sorted(set(values)),
        "texts": len({t for *_, t in rows}),
        "p90": float(sorted(values)[-(-9 * len(values) // 10) - 1]) if values else None,
    }


def by_group(rows: list[Row], group: Any) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[group(row)].append(row)
    return groups


def taken(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = hf.MemorySink.table(name).to_pylist()
    hf.MemorySink.clear(name)
    return rows


@pytest.mark.parametrize(("per_step", "partitions"), [(7, 1), (13, 3), (60, 2)])
def test_changes_add_up_to_the_same_for_all_steps_and_partitions(
    tmp_path: Path, per_step: int, partitions: int
) -> None:
    topology = hf.Topology("changes")
    source = topology.source(hf.Rows(ROWS, DDL, rows_per_step=per_step), name="rows")
    made = source.consistent(period=0.05).aggregate("k", name="totals", **AGGREGATES)
    made.sink(hf.MemorySink("changes"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", partitions=partitions)
    newest = {row.pop("k"): row for row in taken("changes")}
    assert newest == {key: expected(rows) for key, rows in by_group(ROWS, lambda r: r[0]).items()}


def test_each_row_sees_what_came_up_to_it(tmp_path: Path) -> None:
    topology = hf.Topology("each")
    source = topology.source(hf.Rows(ROWS, DDL, rows_per_step=8), name="rows").consistent(period=0.05)
    names = ("n", "var", "first", "last")
    made = source.aggregate("k", emit="each", name="e", **{name: AGGREGATES[name] for name in names})
    made.sink(hf.MemorySink("each"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", partitions=2)
    found = by_group([tuple(row.values()) for row in taken("each")], lambda r: r[0])
    for key, rows in by_group(ROWS, lambda r: r[0]).items():
        model = [expected(rows[: i + 1]) for i in range(len(rows))]
        assert [list(row[1:]) for row in found[key]] == [[m[name] for name in names] for m in model]


@pytest.mark.parametrize(
    "window",
    [hf.tumbling(20, on="at", delay=0), hf.sliding(20, 5, on="at", delay=3)],
    ids=["tumbling", "sliding"],
)
def test_windows_combine_what_panes_kept(tmp_path: Path, window: Any) -> None:
    topology = hf.Topology("windows")
    end: Row = ("z", START + datetime.timedelta(seconds=500), 0, "")
    source = topology.source(hf.Rows([*ROWS, end], DDL, rows_per_step=9), name="rows")
    made = source.consistent(period=0.05).aggregate("k", window=window, name="w", **AGGREGATES)
    made.sink(hf.MemorySink("windows"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", partitions=2)
    found = {(row.pop("window_start"), row.pop("k")): row for row in taken("windows")}
    starts = [START + datetime.timedelta(microseconds=n * window.slide_us) for n in range(-3, 12)]
    length = datetime.timedelta(microseconds=window.size_us)
    for begin in starts:
        inside = [row for row in ROWS if begin <= row[1] < begin + length]
        for key, rows in by_group(inside, lambda r: r[0]).items():
            assert found.pop((begin, key)) == {"window_end": begin + length, **expected(rows)}
    assert not found


def test_state_with_lists_and_positions_is_found_again_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sizes = [10, 25, 25]
    for number, size in enumerate(sizes):
        begin = sum(sizes[:number])
        lines = [
            json.dumps({"k": k, "at": at.isoformat(), "v": v, "t": t})
            for k, at, v, t in ROWS[begin : begin + size]
        ]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(lines) + "\n")
        topology = hf.Topology("restarted")
        files = hf.Files(str(tmp_path / "in" / "*.json"), format="json", schema=DDL)
        made = (
            topology.source(files, name="rows")
            .consistent(period=0.05)
            .aggregate("k", name="totals", **AGGREGATES)
        )
        made.sink(hf.FileSink(str(tmp_path / "out"), format="parquet"), name="out")
        run_local(topology, store=f"file:{tmp_path}/store", partitions=1 + number)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    newest = {key: max((r for r in rows if r["k"] == key), key=lambda r: r["n"]) for key in "abc"}
    for key, group in by_group(ROWS, lambda r: r[0]).items():
        assert {k: v for k, v in newest[key].items() if k != "k"} == expected(group)
