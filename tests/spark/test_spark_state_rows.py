"""Rows of state on executors of their own: the driver cannot look into their segments, so tasks count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from eager_workers import without_eager_workers

from holdfast.cli.status.store_status import read_status

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from holdfast.cli.main import run; run()"]
PROGRAM = """
import holdfast as hf

topology = hf.Topology("repeats")
source = hf.Files("in", "json", schema="k long", max_rows_per_step=10)
rows = topology.source(source, name="rows").consistent("r", period="1 hour")
rows.aggregate("k", n=hf.count(), name="sums").sink(hf.FileSink("out", "json"), name="out")
"""


def rows_after_a_run(here: Path) -> int:
    settings = ["--conf", f"spark.executorEnv.PYTHONPATH={ROOT}", "--conf", "spark.executor.memory=1g"]
    master = ["--master", "local-cluster[2,1,1024]", *settings]
    done = subprocess.run(
        [*COMMAND, "run", "program.py", "--store", "store", "--until", "available", *master],
        cwd=here,
        env=without_eager_workers(os.environ) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(read_status(str(here / "store"))["summary"]["elements"]["rows"]["state"]["sums"]["rows"])


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_key_that_changed_in_many_steps_on_executors_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(f'{{"k": {n % 7}}}\n' for n in range(50)))
    assert rows_after_a_run(tmp_path) == 7
    assert rows_after_a_run(tmp_path) == 7, "restored, and no step came"
