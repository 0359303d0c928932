"""What workers have imported is not looked at again by Python's collector after each task."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.runtime.engines.spark import collector
from holdfast.runtime.engines.spark.small_steps import SETTING

pytestmark = pytest.mark.spark


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.unfreeze()
    monkeypatch.setattr(collector, "_modules_seen", 0)
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_objects_are_spared_when_modules_came_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    collector.spare_modules()
    spared = gc.get_freeze_count()
    assert spared > 10_000
    made = [[] for _ in range(50_000)]  # type: ignore[var-annotated]
    collector.spare_modules()
    assert gc.get_freeze_count() < spared + len(made) // 2
    monkeypatch.setitem(sys.modules, "holdfast_a_new_module", sys)
    collector.spare_modules()
    assert gc.get_freeze_count() > spared + len(made) // 2


@pytest.mark.usefixtures("thawed")
def test_garbage_of_tasks_is_still_collected() -> None:
    collector.spare_modules()
    ring: list[Any] = []
    ring.append(ring)
    del ring
    assert gc.collect() > 0


def test_workers_that_keep_state_spare_what_they_imported(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "jobs")
    for step in range(4):
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table({"k": [1, 2, 3], "v": [step] * 3}), tmp_path / "in" / f"{step}.parquet")
    topology = hf.Topology("sums")
    rows = topology.source(
        hf.Files(tmp_path / "in", format="parquet", schema="k long, v long", max_files_per_step=1),
        name="rows",
    )
    sums = rows.aggregate("k", total=hf.sum("v"), name="sums")
    sums.sink(hf.FileSink(tmp_path / "out"), name="out")
    topology.run(spark=spark, until="available")

    def spared(_: Iterator[int]) -> Iterator[tuple[bool, int]]:
        yield "holdfast.state.keyed.keyed_map" in sys.modules, gc.get_freeze_count()

    asked = spark.sparkContext.parallelize(range(8), 8).mapPartitions(spared).collect()
    kept = [count for keeps_state, count in asked if keeps_state]
    assert kept
    assert min(kept) > 10_000
