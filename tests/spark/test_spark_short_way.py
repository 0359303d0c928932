"""Keyed steps whose tasks read the files themselves give what a shuffle gives, and what a plain loop gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import keyed
from holdfast.sources import parquet_tasks
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

ROWS, KEYS = 3_000, 70


@pytest.fixture(params=["short way", "divided", "shuffle"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Forces one way; the list gets the name of the way of each step whose tasks read."""
    taken: list[str] = []

    def counted(name: str, method: str) -> None:
        original = getattr(keyed.KeyedJobs, method)

        def called(*args: Any) -> Any:
            taken.append(name)
            return original(*args)

        monkeypatch.setattr(keyed.KeyedJobs, method, called)

    counted("short way", "_places")
    counted("divided", "_read_in_parts")
    if request.param == "divided":
        monkeypatch.setattr(keyed, "DIVIDED_BYTES", 0)
        monkeypatch.setattr(keyed, "PARTS_PER_TASK", 0)
        monkeypatch.setattr(parquet_tasks, "STRETCH_ROWS", 100)
    if request.param == "shuffle":
        monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)
    yield taken
    assert set(taken) == ({request.param} - {"shuffle"})


@pytest.fixture
def files(parts: Callable[..., Path]) -> Path:
    """Three files of several row groups, so that steps of 700 rows begin and end inside of them."""
    random = np.random.default_rng(7)
    notes = pa.array([f"n{n}" for n in range(ROWS // 3)])
    keys = ([f"key-{n}" for n in random.integers(0, KEYS, ROWS // 3)] for _ in range(3))
    values = (random.integers(-(10**6), 10**6, ROWS // 3) for _ in range(3))
    tables = (pa.table({"note": notes, "k": k, "v": v}) for k, v in zip(keys, values, strict=True))
    return parts(tables, row_group_size=300)


def read(topology: Topology, files: Path) -> Stream:
    source = hf.Files(str(files), "parquet", "note string, k string, v long", max_rows_per_step=700)
    return topology.source(source, name="in").consistent(period=0.3)


def rows_of(files: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(files.iterdir()) for row in pq.read_table(path).to_pylist()]


def test_a_changelog_ends_with_the_sums_of_all_rows(on_spark: Any, files: Path, way: list[str]) -> None:
    got = on_spark(
        lambda t: read(t, files).aggregate("k", n=hf.count(), total=hf.sum("v"), top=hf.max("v"), name="sums")
    )
    last = {row["k"]: row for row in sorted(got.to_pylist(), key=lambda row: row["n"])}
    wanted: dict[str, list[int]] = {}
    for row in rows_of(files):
        wanted.setdefault(row["k"], []).append(row["v"])
    assert {k: (row["n"], row["total"], row["top"]) for k, row in last.items()} == {
        k: (len(values), sum(values), max(values)) for k, values in wanted.items()
    }


def test_one_output_per_row_follows_the_order_of_positions(
    on_spark: Any, files: Path, way: list[str]
) -> None:
    got = on_spark(
        lambda t: read(t, files).aggregate("k", total=hf.sum("v"), n=hf.count(), emit="each", name="sums")
    )
    running: dict[str, tuple[int, int]] = {}
    wanted = []
    for row in rows_of(files):
        total, n = running.get(row["k"], (0, 0))
        running[row["k"]] = (total + row["v"], n + 1)
        wanted.append({"k": row["k"], "total": total + row["v"], "n": n + 1})
    compare_rows(wanted, got.to_pylist())


def test_tasks_write_the_files_of_an_exactly_once_sink_themselves(
    spark: Any, files: Path, tmp_path: Path, way: list[str]
) -> None:
    topology = Topology("direct")
    sums = read(topology, files).aggregate("k", n=hf.count(), name="sums")
    sums.sink(hf.FileSink(str(tmp_path / "out"), "parquet"), name="out")
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert not list((tmp_path / "out").glob(".holdfast/out/t*/a*/s*/*")), "nothing stays behind"
    table = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out").glob("part-*"))])
    assert table.group_by("k").aggregate([("n", "max")])["n_max"].to_numpy().sum() == ROWS
    assert table.num_rows == len({tuple(row.values()) for row in table.to_pylist()})


def test_the_output_may_go_to_a_sink_and_elsewhere_at_once(
    spark: Any, on_spark: Any, files: Path, tmp_path: Path, way: list[str]
) -> None:
    def build(topology: Topology) -> list[Stream]:
        sums = read(topology, files).aggregate("k", n=hf.count(), name="sums")
        sums.sink(hf.FileSink(str(tmp_path / "out"), "parquet"), name="files")
        again = sums.aggregate("n", times=hf.count(), name="again")
        return [sums, sums.filter("n > 10"), again, sums.isolate().filter("n > 0")]

    direct, filtered, again, isolated = on_spark.several(build)
    paths = (tmp_path / "out").glob("part-*.parquet")
    written = [row for path in paths for row in pq.read_table(path).to_pylist()]
    compare_rows(direct.to_pylist(), written)
    compare_rows([row for row in written if row["n"] > 10], filtered.to_pylist())
    compare_rows(written, isolated.to_pylist())
    assert again.group_by("n").aggregate([("times", "max")])["times_max"].to_numpy().sum() == len(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.set_column(2, "v", table["v"].cast(pa.int32())),
        lambda table: table.drop_columns(["v"]),
    ],
    ids=["narrower column", "missing column"],
)
def test_files_that_only_spark_reads_alike_are_left_to_spark(
    on_spark: Any, files: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    path = files / "part-1.parquet"
    changed = change(pq.read_table(path))
    pq.write_table(changed, path)
    got = on_spark(lambda t: read(t, files).aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums"))
    last = {row["k"]: row for row in sorted(got.to_pylist(), key=lambda row: row["n"])}
    assert sum(row["n"] for row in last.values()) == ROWS
    wanted = sum(row.get("v") or 0 for row in rows_of(files))
    assert sum(row["total"] or 0 for row in last.values()) == wanted
