"""Cells of the matrix on Spark in which processes are killed in the middle of a task: a Python worker, all of them at once, an executor
of a cluster, all of them at once.

`make test` draws one death of workers; all the others, and those on a cluster, are in `make chaos`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matrix_deaths
import matrix_program as program
import pytest
from faults import fired
from matrix_cluster_program import ANSWER, TESTS

from holdfast.testing import processes

PROGRAM = Path(__file__).with_name("matrix_cluster_program.py")

pytestmark = pytest.mark.spark


@pytest.mark.sampled
@pytest.mark.parametrize(("topology", "mode", "death"), matrix_deaths.cells(matrix_deaths.WORKERS))
@pytest.mark.fault("P01")
def test_a_death_of_workers_changes_no_result(
    topology: str, mode: str, death: str, spark: Any, tmp_path: Path
) -> None:
    """Tasks are tried once only, so that the region resets."""
    made = program.build(topology, mode, str(tmp_path), matrix_deaths.deadly(death, tmp_path))
    status = made.run(spark, store=f"file:{tmp_path}/store", until="available").as_dict()
    assert matrix_deaths.died(tmp_path), "nobody died"
    assert sum(region["resets"] for region in status["regions"].values()) >= 1
    check(topology, tmp_path)
    fired(f"{death} killed")


def check(topology: str, here: Path) -> None:
    """What a replayable start gives is numbered behind a function in the workers, which promises no order: then all rows and all
    numbers are there once, but which row has which number is open."""
    found, golden = program.found(topology, here), program.golden(topology)
    if topology == "replayable":
        found, golden = ({name: columns(rows) for name, rows in one.items()} for one in (found, golden))
    assert found == golden


def columns(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(sorted(column)) for column in zip(*rows, strict=True)]


class Cluster:
    """A driver with two executors that runs cells as they are given to it."""

    def __init__(self, scratch: Path) -> None:
        self.tag = processes.new_tag("matrix")
        paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "spark")))
        places = dict.fromkeys(("SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR", "SPARK_WORKER_DIR"), str(scratch))
        self._log = scratch / "log"
        with self._log.open("w") as log:
            self._driver = subprocess.Popen(
                [sys.executable, str(PROGRAM), "local-cluster[2,1,1024]"],
                env={**os.environ, **places, processes.TAG: self.tag, "PYTHONPATH": paths},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=scratch,
            )  # fmt: skip

    def run(self, *cell: str) -> str:
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps(cell) + "\n")
        self._driver.stdin.flush()
        for line in self._driver.stdout:
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER).strip()
        return self._log.read_text(errors="replace")[-3000:]

    def end(self) -> None:
        left = processes.kill_all(self.tag)
        self._driver.wait()
        assert not left, "processes of the cluster are left"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("topology", "mode", "death"), matrix_deaths.cells(matrix_deaths.EXECUTORS))
@pytest.mark.fault("P07", "B02")
def test_a_death_of_executors_changes_no_result(
    topology: str, mode: str, death: str, cluster: Cluster, tmp_path: Path
) -> None:
    """Spark tries tasks again, and starts executors anew; state that is gone with one resets the region."""
    assert cluster.run(topology, mode, death, str(tmp_path)) == "ended well"
    assert matrix_deaths.died(tmp_path), "nobody died"
    check(topology, tmp_path)
    fired(f"{death} killed")
