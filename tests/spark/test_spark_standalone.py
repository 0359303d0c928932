"""On a standalone master with two workers: partitions stay with their executors, one that is killed is survived, and
tasks that Spark starts twice count once. The workers have addresses of their own: Spark speculates on another host only.

Part of `make chaos`: two daemons, two executors and a driver are a lot for a small machine."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exact_sums import check, written
from standalone_cluster import Cluster, await_true
from test_spark_shipping import check as check_shipped
from test_spark_shipping import run_program

from holdfast.store.urls import open_store

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("standalone_program.py")
SPECULATION = Path(__file__).with_name("speculation_program.py")
ROOT = PROGRAM.parents[2]
ROWS, BEGIN_US = 1_000, 1_790_000_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


@pytest.fixture
def here(tmp_path: Path) -> Path:
    random = np.random.default_rng(4)
    (tmp_path / "in").mkdir()
    at = pa.array(BEGIN_US + np.arange(ROWS) * 10_000).cast(pa.timestamp("us", tz="UTC"))
    keys = pa.array([f"k{n}" for n in random.integers(0, 9, ROWS)])
    table = pa.table({"at": at, "k": keys, "v": random.integers(-50, 50, ROWS)})
    for number in range(2):
        piece = table.slice(number * ROWS // 2, ROWS // 2)
        pq.write_table(piece, tmp_path / "in" / f"part-{number}.parquet")
    return tmp_path


def finished(driver: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = driver.communicate(timeout=400)
    assert driver.returncode == 0, errors[-3000:]
    status: dict[str, Any] = json.loads(out.splitlines()[-1])
    return status


def test_partitions_stay_with_their_executors(cluster: Cluster, here: Path) -> None:
    status = finished(cluster.driver(PROGRAM, here))
    assert status["executors"] == 2
    assert status["resets"] == 0, "a partition that moves finds no state and resets its region"
    check(here)


@pytest.mark.fault("P07")
def test_an_executor_that_is_killed_resets_the_region(cluster: Cluster, here: Path) -> None:
    driver = cluster.driver(PROGRAM, here)

    def published() -> bool:
        assert driver.poll() is None, driver.communicate()[1][-3000:]
        store = here / "store"
        return store.exists() and any(
            e.kind == "epoch.published" for e in open_store(f"file:{store}").events()
        )

    await_true(published, 120, "no epoch is published")
    cluster.kill_an_executor()
    status = finished(driver)
    assert status["resets"] >= 1
    check(here)


@pytest.mark.fault("X10")
def test_a_task_that_spark_starts_twice_counts_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    wanted: Counter[str] = Counter()
    for number in range(8):
        ids = list(range(number * 100, number * 100 + 100))
        keys = [f"k{n % 7}" for n in ids]
        pq.write_table(pa.table({"id": ids, "k": keys}), tmp_path / "in" / f"part-{number}.parquet")
        wanted.update(keys)
    status = finished(cluster.driver(SPECULATION, tmp_path))
    assert (tmp_path / "second-attempt").exists(), "Spark did not start the slow task again"
    assert status["resets"] == 0
    told = [(row["k"], row["n"]) for row in written(tmp_path, "sums")]
    assert len(set(told)) == len(told), "a change was told twice"
    assert {k: max(n for key, n in told if key == k) for k in wanted} == dict(wanted)


def test_the_code_of_a_program_comes_to_executors_that_know_nothing_of_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = ("--conf", f"spark.executorEnv.PYTHONPATH={ROOT}", "--conf", "spark.executor.memory=1g")
    run_program(tmp_path, "--master", cluster.master, *settings, environment=cluster.environment)
    check_shipped(tmp_path)
