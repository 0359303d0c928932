"""On a standalone master with two workers: partitions stay with their executors, one that is killed is survived, and
tasks that Spark starts twice count once. The workers have addresses of their own: Spark speculates on another host only.

Part of `make chaos`: two daemons, two executors and a driver are a lot for a small machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from exact_sums import check, written
from faults import fired
from test_spark_shipping import check as check_shipped
from test_spark_shipping import run_program

from holdfast.store.urls import open_store
from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("standalone_program.py")
SPECULATION = Path(__file__).with_name("speculation_program.py")
ROOT = PROGRAM.parents[2]
SPARK_CLASS = Path(pyspark.__path__[0]) / "bin" / "spark-class"
ROWS, BEGIN_US = 1_000, 1_790_000_000_000_000


class Cluster:
    """A master and two workers of one core, on loopback; they and what they start carry one tag."""

    def __init__(self, here: Path) -> None:
        self.tag = processes.new_tag("standalone")
        self._here = here
        self.environment = {
            **os.environ,
            processes.TAG: self.tag,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(here / "local"),
            "SPARK_DAEMON_MEMORY": "512m",
        }
        (here / "local").mkdir()
        ports = [free_port() for _ in range(2)]
        self.master = f"spark://127.0.0.1:{ports[0]}"
        self._start(
            "master.Master", "--host", "127.0.0.1", "--port", str(ports[0]), "--webui-port", str(ports[1])
        )
        await_true(lambda: listens(ports[0]), 60, "the master does not listen")
        for number in range(2):
            place, host = here / f"worker-{number}", f"127.0.0.{number + 1}"
            self._start(
                "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g",
                "--webui-port", str(free_port()), "--work-dir", str(place), self.master,
            )  # fmt: skip

    def _start(self, name: str, *arguments: str) -> None:
        with (self._here / f"{name}.log").open("ab") as log:
            subprocess.Popen(
                [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *arguments],
                stdout=log, stderr=log, env={**self.environment, "SPARK_LOCAL_IP": arguments[1]}, start_new_session=True,
            )  # fmt: skip

    def driver(self, here: Path, program: Path = PROGRAM) -> subprocess.Popen[str]:
        command = [sys.executable, str(program), self.master, str(here)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def kill_an_executor(self) -> None:
        executor = processes.of_kind(self.tag, "executor")[0]
        assert processes.send(executor.pid, self.tag)
        fired("executor killed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def await_true(condition: Callable[[], bool], seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    assert not processes.kill_all(made.tag), "processes of the cluster are left"


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
    status = finished(cluster.driver(here))
    assert status["executors"] == 2
    assert status["resets"] == 0, "a partition that moves finds no state and resets its region"
    check(here)


@pytest.mark.fault("P07")
def test_an_executor_that_is_killed_resets_the_region(cluster: Cluster, here: Path) -> None:
    driver = cluster.driver(here)

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
    status = finished(cluster.driver(tmp_path, SPECULATION))
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
