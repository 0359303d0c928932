"""An executor, the driver and the Redis server that has the epochs are killed at the same moment, twice: the run goes on from the newest
acknowledged epoch, and the output is exact.

Part of `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import DRIVER_KILLED, fired
from numbered_lives import Numbered
from store.redis_server import MISSING, RedisServer, program

from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1200)]

MASTER = "local-cluster[2,1,1024]"


@pytest.mark.fault("B03")
def test_executor_driver_and_redis_server_die_together(tmp_path: Path) -> None:
    if program() is None:
        pytest.skip(MISSING)
    with RedisServer(tmp_path / "server") as server, Numbered(tmp_path / "run", 1200) as lives:
        url, before = server.url("numbered"), 0
        for _ in range(2):
            driver = lives.start(MASTER, url, PACE_S="0.3")
            before = lives.until_epoch(driver, before + 1)
            executor = processes.of_kind(lives.tag, "executor")[0]
            assert processes.send(executor.pid, lives.tag), "the executor is gone by itself"
            server.kill()
            driver.kill()
            driver.wait()
            fired("executor and Redis server killed")
            fired(DRIVER_KILLED)
            assert processes.left_after(lives.tag, 60) == []
            server.start()
        following = lives.start(MASTER, url)
        lives.until_epoch(following, before)
        lives.finished(following)
