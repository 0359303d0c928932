"""`holdfast.read_state` on Spark: values are those the run has emitted; changes are those between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import ConfigError, MismatchError, StoreError
from holdfast.testing import MemorySink, compare_rows, run_local

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Visits(hf.KeyedOperator):
    count = hf.Value(int, default=5)
    pages = hf.List(int)

    def process(self, row: Any, key: Any) -> None:
        self.count = 5 if row.n >= 37 else self.count + 1
        self.pages.append(row.n)


def topology(root: Path) -> hf.Topology:
    made = hf.Topology("read")
    rows, more = (
        made.source(
            hf.Files(str(root / "in"), "json", "at timestamp, k string, n long", max_rows_per_step=15),
            name=name,
        ).consistent("r", period=3600)
        for name in ("rows", "more")
    )
    longest = hf.udaf(lambda n: len(n), "n", type="long")
    streams = (
        rows.aggregate(
            "k", n=hf.count(), total=hf.sum("n"), mean=hf.avg("n"), seen=hf.collect_set("n"), name="totals"
        ),
        rows.aggregate("k", longest=longest, name="own"),
        rows.aggregate("k", window=hf.tumbling(3600, on="at", delay=0), total=hf.sum("n"), name="windows"),
        rows.keyed("k", Visits, "k string", name="visits"),
        rows.join(more, "k", on="at", within=3600, name="pairs", delay=0),
    )
    for number, stream in enumerate(streams):
        stream.sink(MemorySink(f"read-state-{number}"), name=f"out_{number}")
    return made


def put(root: Path, number: int, keys: int) -> list[dict[str, Any]]:
    rows = [{"at": f"2026-01-01T00:{number:02}:{n:02}Z", "k": f"k{n % keys}", "n": n} for n in range(40)]
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_state_is_read_as_users_know_it_and_changes_are_told(spark: Any, tmp_path: Path) -> None:
    files, database = f"file:{tmp_path / 'store'}", f"sqlite:{tmp_path / 'store.db'}"
    first = put(tmp_path, 0, keys=6)
    run_local(topology(tmp_path), files)
    before = epoch_of(files)
    second = put(tmp_path, 1, keys=9)
    run_local(topology(tmp_path), files)
    check_values(spark, files, first + second)
    check_changes(spark, files, before, first, first + second)
    check_what_the_topology_tells(spark, tmp_path, files)
    check_refusals(spark, tmp_path, files)
    for number in range(5):
        MemorySink.clear(f"read-state-{number}")
    run_local(topology(tmp_path), database)
    compare_rows(list(totals(first + second).values()), rows_of(hf.read_state(spark, database, "totals")))


def epoch_of(store: str) -> int:
    from holdfast.checkpoint.look.epochs import open_reader
    from holdfast.ids import RegionName

    return open_reader(store).epochs(RegionName("r"))[-1]


def totals(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    by_key: dict[str, list[int]] = {}
    for row in rows:
        by_key.setdefault(row["k"], []).append(row["n"])
    return {
        key: {"k": key, "n": len(ns), "total": sum(ns), "mean": sum(ns) / len(ns), "seen": sorted(set(ns))}
        for key, ns in by_key.items()
    }


def check_values(spark: Any, store: str, rows: list[dict[str, Any]]) -> None:
    frame = hf.read_state(spark, store, "totals")
    assert frame.columns == ["k", "n", "total", "mean", "seen"]
    compare_rows(list(totals(rows).values()), rows_of(frame))
    emitted = {row["k"]: row for row in MemorySink.rows("read-state-0")}  # the newest change of each key
    compare_rows(list(emitted.values()), rows_of(frame))
    windows = rows_of(hf.read_state(spark, store, "windows").drop("window_end"))
    assert {row["k"]: row["total"] for row in windows} == {
        k: each["total"] for k, each in totals(rows).items()
    }
    assert {str(row["window_start"]) for row in windows} == {"2026-01-01 00:00:00"}


def check_changes(
    spark: Any, store: str, before: int, first: list[dict[str, Any]], both: list[dict[str, Any]]
) -> None:
    changed = rows_of(hf.read_state(spark, store, "totals", changed_since=before))
    old, new = totals(first), totals(both)
    expected = [
        {"change": "changed" if key in old else "added", **row}
        for key, row in new.items()
        if row != old.get(key)
    ]
    compare_rows(expected, changed)
    back = rows_of(hf.read_state(spark, store, "totals", epoch=before, changed_since=epoch_of(store)))
    gone = [{"change": "removed", **row} for key, row in new.items() if key not in old]
    compare_rows(gone, [row for row in back if row["change"] == "removed"])
    sides = hf.read_state(spark, store, "pairs", part="left", changed_since=before)
    assert {row["change"] for row in rows_of(sides)} == {"added"}


def check_refusals(spark: Any, root: Path, store: str) -> None:
    with pytest.raises(ConfigError, match=r"no operator 'total'.*pairs, rows, totals"):
        hf.read_state(spark, store, "total")
    with pytest.raises(ConfigError, match=r"no epoch 99.*Epochs are"):
        hf.read_state(spark, store, "totals", epoch=99)
    with pytest.raises(ConfigError, match=r"several kinds.*part='left', part='right'"):
        hf.read_state(spark, store, "pairs")
    with pytest.raises(ConfigError, match="is a source and keeps no keyed rows"):
        hf.read_state(spark, store, "rows")
    with pytest.raises(StoreError, match="no store"):
        hf.read_state(spark, str(root / "nothing"), "totals")
    with pytest.raises(MismatchError, match="in this topology it is"):
        other = hf.Topology("read")
        rows = other.source(hf.Rows([], "k string, n long"), name="rows").consistent("r")
        rows.aggregate("k", n=hf.max("n"), name="totals").sink(MemorySink("x"), name="out")
        hf.read_state(spark, store, "totals", topology=other)


def check_what_the_topology_tells(spark: Any, root: Path, store: str) -> None:
    own = rows_of(hf.read_state(spark, store, "own", topology=topology(root)))
    assert {row["k"]: row["longest"] for row in own} == {
        row["k"]: row["n"] for row in rows_of(hf.read_state(spark, store, "totals"))
    }
    raw = hf.read_state(spark, store, "own")
    assert "longest" not in raw.columns
    visits = {row["k"]: row for row in rows_of(hf.read_state(spark, store, "visits"))}
    known = {row["k"]: row for row in rows_of(hf.read_state(spark, store, "visits", topology=topology(root)))}
    assert {key: row["count"] for key, row in known.items()} == {
        key: 5 if row["count"] is None else row["count"] for key, row in visits.items()
    }
    assert {key for key, row in visits.items() if row["count"] is None} == {"k1", "k2", "k3"}
    assert all(json.loads(row["pages"])[0] == int(key[1:]) for key, row in visits.items())
