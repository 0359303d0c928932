"""Rows on their way to Python operators in the driver are read there, without a job: the same rows, whatever stands between, and after failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired
from killed import written

import holdfast as hf
from holdfast.failpoints import arm, disarm
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark.small_steps import SETTING
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

STEPS, ROWS = 5, 6_000
SCHEMA = "k long, v long, t string"
Said = Callable[[str], None]


class Count(hf.Operator):
    """Rows and sums so far, by key, once per step: which rows came is seen, and in which order."""

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.rows = 0

    def process_batch(self, table: pa.Table, port: int) -> list[dict[str, Any]]:
        for k, v in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True):
            self.rows += 1
            self.sums[k] = self.sums.get(k, 0) + v * self.rows
        return [{"k": k, "total": total} for k, total in sorted(self.sums.items())]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return lambda how: monkeypatch.setenv(SETTING, how)


def fill(here: Path, format: str) -> None:
    """More bytes per file than the driver reads for the sake of small steps."""
    (here / "in").mkdir(parents=True)
    for step in range(STEPS):
        rows = range(step * ROWS, (step + 1) * ROWS)
        texts = [f"text {n} of a row" for n in rows]
        table = pa.table({"k": [n % 7 for n in rows], "v": list(rows), "t": texts})
        if format == "parquet":
            pq.write_table(table, here / "in" / f"f{step}.parquet")
        else:
            pa.csv.write_csv(table, here / "in" / f"f{step}.csv", pa.csv.WriteOptions(quoting_style="none"))


def run(spark: Any, here: Path, out: Path, format: Any, faults: str = "") -> int:
    """To the end; returns the number of Spark's jobs."""
    topology = Topology("near")
    source = hf.Files(here / "in", format, SCHEMA, max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(period=0.2)
    rows.filter("v % 5 <> 0").apply(Count(), "k long, total long", name="near").sink(
        hf.FileSink(out / "near", "parquet"), name="near_out"
    )
    jobs = spark.sparkContext._jsc.sc().dagScheduler()
    before = jobs.numTotalJobs()
    if faults:
        arm(faults)
    try:
        topology.run(spark, store=f"file:{out}/store", until="available")
    finally:
        hits = disarm() if faults else {}
    assert all(hits.values()), f"{hits}: not every fault fired"
    return int(jobs.numTotalJobs() - before)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_the_driver_reads_what_its_operators_get(spark: Any, tmp_path: Path, said: Said, format: str) -> None:
    fill(tmp_path, format)
    said("jobs")
    with_jobs = run(spark, tmp_path, tmp_path / "jobs", format)
    said("driver")
    without = run(spark, tmp_path, tmp_path / "driver", format, "step.end=raise@4;ckpt.op.put=raise@2")
    assert with_jobs >= STEPS, "Spark read every step"
    assert without <= 1, "and none; analysing the filter may take one"
    wanted = written(tmp_path / "jobs", "near")
    assert len(wanted) == 7 * STEPS
    compare_rows(wanted, written(tmp_path / "driver", "near"), format)


def test_what_is_not_certain_is_for_spark(spark: Any, tmp_path: Path, said: Said) -> None:
    said("driver")
    fill(tmp_path, "csv")
    last = tmp_path / "in" / f"f{STEPS - 1}.csv"
    last.write_text(last.read_text().replace("text", '"text', 1).replace("row", 'row"', 1))
    assert run(spark, tmp_path, tmp_path / "out", "csv") >= 1
    said("jobs")
    run(spark, tmp_path, tmp_path / "jobs", "csv")
    compare_rows(written(tmp_path / "jobs", "near"), written(tmp_path / "out", "near"), "quotes")


@pytest.mark.slow
def test_each_row_counts_once_whatever_dies(tmp_path: Path) -> None:
    fill(tmp_path, "parquet")
    command = [sys.executable, str(Path(__file__).with_name("near_program.py")), str(tmp_path)]
    for fault in ("step.end=kill@4", "step.begin=kill@5", ""):
        environment = {**os.environ, "HOLDFAST_FP": fault, SETTING: "driver"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == (-signal.SIGKILL if fault else 0), done.stderr[-3000:]
        if fault:
            fired(DRIVER_KILLED)
    values = range(STEPS * ROWS)
    golden = [
        {"n": n, "v": v, "total": total}
        for n, (v, total) in enumerate(zip(values, accumulate(values), strict=True), 1)
    ]
    compare_rows(golden, written(tmp_path, "out"), "near")
