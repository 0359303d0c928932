"""The daemons of a standalone cluster are killed under a run, and come back: without its master the run goes on, without a worker its region
resets; when all are gone at once it waits in vain, and the next driver goes on from its epochs.

Part of `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import DRIVER_KILLED, fired
from numbered_lives import Numbered
from standalone_cluster import MASTER, WORKERS, Cluster, await_true

from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    yield made
    made.end()


def executors(cluster: Cluster) -> int:
    return len(processes.of_kind(cluster.tag, "executor"))


@pytest.mark.fault("P13")
def test_a_run_goes_on_without_its_master(cluster: Cluster, tmp_path: Path) -> None:
    with Numbered(tmp_path / "run", 1000) as lives:
        driver = lives.start(cluster.master, PACE_S="0.3")
        before = lives.until_epoch(driver)
        cluster.kill(MASTER)
        before = lives.until_epoch(driver, before + 2)
        cluster.start(MASTER)
        lives.until_epoch(driver, before + 2)
        assert lives.finished(driver)["resets"] == 0


@pytest.mark.fault("P13")
def test_a_worker_that_is_killed_and_comes_back_costs_a_reset(cluster: Cluster, tmp_path: Path) -> None:
    """Its executor ends with it."""
    with Numbered(tmp_path / "run", 1000) as lives:
        driver = lives.start(cluster.master, PACE_S="0.3")
        before = lives.until_epoch(driver)
        await_true(lambda: executors(cluster) == 2, 60, "there are no two executors")
        cluster.kill(WORKERS[0])
        before = lives.until_epoch(driver, before + 1)
        cluster.start(WORKERS[0])
        lives.until_epoch(driver, before + 1)
        assert lives.finished(driver)["resets"] >= 1


@pytest.mark.fault("P13")
def test_when_all_daemons_are_gone_the_next_driver_goes_on_from_the_epochs(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Numbered(tmp_path / "run", 600) as lives:
        driver = lives.start(cluster.master, PACE_S="0.3")
        before = lives.until_epoch(driver)
        cluster.kill(MASTER, *WORKERS)
        await_true(lambda: not executors(cluster), 60, "executors outlive their workers")
        for name in (MASTER, *WORKERS):
            cluster.start(name)
        driver.kill()
        driver.wait()
        fired(DRIVER_KILLED)
        following = lives.start(cluster.master)
        lives.until_epoch(following, before)
        lives.finished(following)
