"""Tasks that read and write by themselves, killed in the middle: running aggregates and windows stay exact on Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_sums import check
from faults import DRIVER_KILLED, fired

from holdfast.store.urls import open_store

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

PROGRAM = Path(__file__).with_name("short_way_program.py")
ROWS, SECOND = 1_200, 1_000_000
BEGIN_US = 1_790_000_000_000_000


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A hundred rows per second of event time, in order, so that no row is late and the last second stays open."""
    random = np.random.default_rng(3)
    (tmp_path / "in").mkdir()
    table = pa.table(
        {
            "at": pa.array(BEGIN_US + np.arange(ROWS) * SECOND // 100).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array([f"k{n}" for n in random.integers(0, 7, ROWS)]),
            "v": random.integers(-50, 50, ROWS),
        }
    )
    for number in range(2):
        pq.write_table(table.slice(number * ROWS // 2, ROWS // 2), tmp_path / "in" / f"part-{number}.parquet")
    return tmp_path


def start(here: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(here)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def live(here: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """(exit, what the region said of itself)."""
    out, errors = (child := start(here, **environment)).communicate(timeout=120)
    assert child.returncode in (0, -signal.SIGKILL), errors[-3000:]
    fired(DRIVER_KILLED, int(child.returncode != 0))
    return child.returncode, json.loads(out.splitlines()[-1]) if child.returncode == 0 else {}


@pytest.mark.chaos
def test_the_driver_dies_in_steps_checkpoints_commits_and_restores(here: Path) -> None:
    for failpoint in ("sink.prepared=kill@2", "sink.commit.applied=kill@2", "reset.op.loaded=kill@2"):
        code, _ = live(here, HOLDFAST_FP=failpoint)
        assert code == -signal.SIGKILL, f"{failpoint} did not fire"
    assert live(here)[0] == 0
    check(here)


@pytest.mark.chaos  # workers also die in test_spark_operators_survive_kills
def test_a_worker_dies_after_it_wrote_segments_and_the_sinks_files(here: Path) -> None:
    code, region = live(here, DEADLY="1")
    assert code == 0
    died = [name for name in ("sums", "seconds") if (here / f"died-in-{name}").exists()]
    assert died, "no worker died"
    fired("worker killed", len(died))
    assert region["resets"] >= len(died), "local[2] tries no task again: the region must have reset"
    check(here)


@pytest.mark.fault("S09", "S08")
def test_a_full_disk_in_a_task_pauses_the_region_until_there_is_space(here: Path) -> None:
    full = here / "full"
    full.touch()
    child = start(here, FULL=str(full))
    try:
        deadline = time.monotonic() + 100
        while "region.paused" not in kinds(here):
            assert child.poll() is None, child.communicate()[1][-3000:]
            assert time.monotonic() < deadline, f"the region does not pause: {kinds(here)}"
            time.sleep(0.2)
        time.sleep(2.0)  # were it no pause, the resets would be used up by now
        full.unlink()
        out, errors = child.communicate(timeout=100)
    finally:
        child.kill()
    assert child.returncode == 0, errors[-3000:]
    assert json.loads(out.splitlines()[-1])["epochs_published"] > 0
    check(here)


def kinds(here: Path) -> list[str]:
    """Of the events so far."""
    if not (here / "store").exists():
        return []
    return [event.kind for event in open_store(f"file:{here}/store").events()]
