"""The driver and an executor cannot reach each other for a while, on a standalone cluster whose hosts are joined by a cable: what is short
is waited for; an executor that was given up, worked on and comes back changes nothing.

Part of `make chaos`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import cables
import pytest
from numbered_lives import Numbered
from standalone_cluster import MASTER, WORKERS, Cluster, await_true

from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1200)]

SHORT_S = 4.0
NEAR, FAR = WORKERS


@pytest.fixture(scope="module")
def cable() -> Iterator[cables.Cable]:
    if problem := cables.why_not():
        pytest.skip(problem)
    with cables.Cable() as made:
        yield made


@pytest.mark.fault("N02")
def test_a_driver_and_an_executor_that_are_cut_off_for_a_while_lose_nothing(
    cable: cables.Cable, tmp_path: Path
) -> None:
    (tmp_path / "cluster").mkdir()
    here, there = cables.HOSTS
    hosts = {MASTER: here, NEAR: here, FAR: there}
    before = {name: cable.into(int(host == there)) for name, host in hosts.items()}
    cluster = Cluster(tmp_path / "cluster", hosts, before)
    try:
        with Numbered(tmp_path / "run", 2500) as lives:
            settings = {"spark.driver.host": here, "spark.driver.bindAddress": here}
            driver = lives.start(
                cluster.master, "", *cable.into(0), settings=settings, SPARK_LOCAL_IP=here, PACE_S="0.3"
            )
            epoch = lives.until_epoch(driver)
            await_true(lambda: len(processes.of_kind(cluster.tag, "executor")) == 2, 60, "two executors")
            cable.cut()
            time.sleep(SHORT_S)
            cable.mend()
            epoch = lives.until_epoch(driver, lives.epoch() + 1)
            cable.cut()
            # The master gives the far worker up after 20 s; what its executor had is restored on the near one.
            lives.until(driver, lambda: b"Lost executor" in lives.log.read_bytes(), "the loss of an executor")
            epoch = lives.until_epoch(driver, lives.epoch() + 1)
            cable.mend()
            lives.until_epoch(driver, epoch + 2)
            assert lives.finished(driver)["resets"] >= 1
    finally:
        cluster.end()
