"""A whole run on a Redis server: the driver is killed, the server is killed, and the output is exact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.cli.status.store_status import read_status
from holdfast.store.redis.redis_store import RedisStore

from . import redis_job
from .redis_server import RedisServer

PROGRAM = Path(redis_job.__file__)

pytestmark = pytest.mark.slow


def start(url: str, output: Path, failpoints: str = "", *master: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HOLDFAST_FP": failpoints, "HOLDFAST_FP_LOG": f"{output}.hits"}
    command = [sys.executable, str(PROGRAM), url, str(output), *master]
    return subprocess.Popen(command, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True)


def lived(url: str, output: Path, failpoints: str = "") -> int:
    process = start(url, output, failpoints)
    said, _ = process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGKILL), said[-3000:]
    assert "hunter2" not in said
    return process.returncode


def written(output: Path) -> list[tuple[Any, ...]]:
    rows = [row for path in output.glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted(tuple(row.values()) for row in rows)


@pytest.mark.fault("K07")
def test_a_driver_killed_anywhere_goes_on_from_the_server_with_exact_output(
    redis_program: str, tmp_path: Path
) -> None:
    with RedisServer(tmp_path / "server", password="hunter2") as server:
        url, output = server.url("job"), tmp_path / "out"
        for failpoint in (
            "ckpt.op.put_done=kill@3",
            "ckpt.manifest.fsynced=kill@4",
            "sink.commit.begin=kill@3",
        ):
            assert lived(url, output, failpoint) == -signal.SIGKILL, f"{failpoint} did not fire"
            status = read_status(url)
            assert status["owner"] is not None
            assert not status["alive"], "a killed driver is known to be dead at once"
        assert lived(url, output) == 0
        assert written(output) == redis_job.expected()
        status = read_status(url)
        assert status["owner"] is None
        assert "hunter2" not in repr(status)


@pytest.mark.fault("K07", "K14")
def test_a_run_outlives_a_server_that_is_killed_under_it(redis_program: str, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server") as server:
        url, output = server.url("job"), tmp_path / "out"
        process = start(url, output)
        store = RedisStore(url)
        disturbed = 0
        for _ in range(3):
            _wait_for_an_epoch(store, process)
            disturbed += process.poll() is None
            server.restart()
        assert disturbed, "the run ended before the server was killed"
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said[-3000:]
        assert written(output) == redis_job.expected()
        store.close()


@pytest.mark.spark
@pytest.mark.chaos  # a cluster is a lot for a small machine
def test_executors_of_a_cluster_store_their_segments_themselves(redis_program: str, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server", password="hunter2") as server:
        output = tmp_path / "out"
        process = start(server.url("job"), output, "", "local-cluster[1,2,1024]")
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 0, said[-3000:]
        assert written(output) == redis_job.expected()
        hits = [line.split() for line in Path(f"{output}.hits").read_text().splitlines()]
        drivers = {pid for name, pid in hits if name == "ckpt.epoch.published"}
        assert len(drivers) == 1
        assert {pid for name, pid in hits if name == "ckpt.op.put_done"} - drivers, "only the driver wrote"
        assert "hunter2" not in said


def _wait_for_an_epoch(store: RedisStore, process: subprocess.Popen[str]) -> None:
    """Until the run has published one more than now, or is at its end."""

    def count() -> int:
        try:
            return len([event for event in store.events() if event.kind == "epoch.published"])
        except Exception:
            return 0

    before, deadline = count(), time.monotonic() + 60
    while count() <= before and process.poll() is None:
        assert time.monotonic() < deadline, "no epoch was published"
        time.sleep(0.005)
