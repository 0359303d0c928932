"""Keyed operators on Spark under kill -9 of Python workers and of the driver: joins, dedup, top_n, sort, barrier, Python
operators with timers, windows by rows, attributes and marks. All are in one region, so that each kill takes all of them
back to an epoch; what each wrote is what it writes without failures and without Spark.

A small fixed sample; `make chaos` lets the workers of every operator die, drivers at random moments and at failpoints, and
executors of a cluster.
HOLDFAST_SEED=n repeats a run's draws.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from operators_lives import HEADER, LIFE_S, Lives
from operators_program import OPERATORS, deaths, epoch_of

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

SEED = 20

Tell = Callable[..., None]


@pytest.mark.fault("P01", "P09")
def test_a_worker_and_then_the_driver_die_and_all_results_are_what_they_are_without_failures(
    tmp_path: Path, tell: Tell, request: pytest.FixtureRequest
) -> None:
    with Lives(tmp_path / "lives", SEED, steps=6, shuffled=False) as lives:
        driver = lives.start(deadly={"asof": "done"})
        assert lives.until(driver, lambda: lives.resets() == 1, LIFE_S), "the region did not reset"
        ((name, _, epoch, _),) = deaths(lives.here)
        assert (name, int(epoch) >= 1) == ("asof", True)
        assert lives.until(driver, lambda: epoch_of(lives.here) > int(epoch), LIFE_S), "it did not go on"
        lives.kill_driver(driver)
        visible = lives.visible()
        assert lives.ended(lives.start()) == 0
        for name, rows in lives.visible().items():
            assert rows > visible[name], f"the second driver found nothing left to do for {name}"
        lives.note_deaths()
        tell(f"kills: {request.node.name}", HEADER, *lives.table())
        lives.check()


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("shuffled", [False, True], ids=["short way", "shuffle"])
@pytest.mark.fault("P07", "I14")
def test_executors_die_with_the_segments_they_hold(
    shuffled: bool, tmp_path: Path, tell: Tell, request: pytest.FixtureRequest
) -> None:
    cluster: dict[str, Any] = {"master": "local-cluster[2,1,1024]", "life_s": 1200.0}
    with Lives(tmp_path / "lives", SEED, steps=8, shuffled=shuffled, **cluster) as lives:
        driver = lives.start()
        for _ in range(EXECUTOR_KILLS):
            epoch = epoch_of(lives.here)
            assert lives.until(driver, lambda e=epoch: epoch_of(lives.here) > e, LIFE_S), "no new epoch"
            lives.kill_an_executor(driver)
        assert lives.ended(driver) == 0
        tell(f"kills: {request.node.name}", HEADER, *lives.table())
        lives.check()


EXECUTOR_KILLS = 2
FAILPOINTS = [
    "step.begin=kill@2", "step.end=kill@2", "ckpt.op.put_done=kill@9", "ckpt.epoch.published=kill@1", "sink.prepared=kill@7",
    "sink.commit.applied=kill@5", "reset.op.loaded=kill@7", "reset.sink.rollback=kill@3",
]  # fmt: skip
DRIVER_KILLS, WORKER_KILLS, DRIVERS_PER_ROUND, ROUNDS_MAX = 4, 4, 3, 10


@pytest.mark.chaos
@pytest.mark.timeout(3000)
def test_workers_of_every_operator_and_drivers_die_at_random_moments(
    tmp_path: Path, tell: Tell, request: pytest.FixtureRequest
) -> None:
    """Fresh inputs and lives until every operator's worker died both ways, each failpoint fired, enough was killed."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1 << 32))
    again = f"HOLDFAST_SEED={seed} make chaos PYTEST_ARGS='tests/spark -k \"{request.node.name}\"'"
    print(f"seed {seed}; to run it again: {again}")
    tell(f"kills: {request.node.name}", f"seed {seed}", HEADER)
    campaign = Campaign(random.Random(seed))
    for number in range(ROUNDS_MAX):
        shuffled = bool(number % 2)
        with Lives(tmp_path / str(number), seed + number, steps=12, shuffled=shuffled) as lives:
            campaign.round(lives)
            way = "through a shuffle" if shuffled else "the short way"
            tell(f"kills: {request.node.name}", f"round {number}, {way}", *lives.table())
            lives.check()
        if campaign.over:
            return
    raise AssertionError(f"after {ROUNDS_MAX} rounds there still is {campaign!r}")


class Campaign:
    """What is still to happen, drawn from `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        short = {name: chance.choice(["begin", "done"]) for name in OPERATORS}
        other = {name: "begin" if moment == "done" else "done" for name, moment in short.items()}
        self._deadly = {False: short, True: other}
        """By whether rows go through a shuffle."""
        self._failpoints = chance.sample(FAILPOINTS, len(FAILPOINTS))
        self._left = {"driver": DRIVER_KILLS, "worker": WORKER_KILLS}

    def __repr__(self) -> str:
        return f"{self._deadly} {self._failpoints} {self._left}"

    @property
    def over(self) -> bool:
        return not any(self._deadly.values()) and not self._failpoints and not any(self._left.values())

    def round(self, lives: Lives) -> None:
        """Some drivers that die, then one that loses workers, to the end of the input."""
        for _ in range(DRIVERS_PER_ROUND):
            if not self._failpoints and not self._left["driver"]:
                assert self._loses_workers(lives) == 0
                break
            if self._kill_of_a_driver(lives) == 0:
                break
        else:
            assert self._loses_workers(lives) == 0
        others, died = len(lives.kills), lives.note_deaths()
        for name in died:
            del self._deadly[lives.shuffled][name]
        # Another kill may come before anybody heard of a worker's death; every other one takes the region back.
        assert lives.resets() + others >= len(died), f"{lives.resets()} resets: {lives.kills}"

    def _kill_of_a_driver(self, lives: Lives) -> int:
        """Its exit code. While it restores only if there is an epoch, and then before anything else."""
        restoring = [failpoint for failpoint in self._failpoints if failpoint.startswith("reset")]
        others = [failpoint for failpoint in self._failpoints if failpoint not in restoring]
        able = restoring + others if epoch_of(lives.here) else others
        if not able or (self._left["driver"] and self._chance.random() < 0.33):
            return self._dies_at_some_moment(lives)
        code = lives.ended(lives.start(failpoint=able[0]))
        if code:
            lives.note_driver(able[0])
            self._failpoints.remove(able[0])
        return code

    def _dies_at_some_moment(self, lives: Lives) -> int:
        """Most moments lie behind a new epoch, some in the start or the restore of a driver."""
        driver, first = lives.start(deadly=self._deadly[lives.shuffled]), epoch_of(lives.here)
        if not first or self._chance.random() < 0.7:
            lives.until(driver, lambda: epoch_of(lives.here) > first, LIFE_S)
        lives.until(driver, lambda: False, self._chance.uniform(0.0, 6.0))
        if driver.poll() is not None:
            return lives.ended(driver)
        self._left["driver"] = max(self._left["driver"] - 1, 0)
        lives.kill_driver(driver)
        return -signal.SIGKILL

    def _loses_workers(self, lives: Lives) -> int:
        """Workers die of their own accord, at most one per epoch, and some are killed in between."""
        driver = lives.start(deadly=self._deadly[lives.shuffled])
        wanted = min(self._left["worker"], 2)
        while wanted and driver.poll() is None:
            lives.until(driver, lambda: False, self._chance.uniform(1.0, 6.0))
            if epoch_of(lives.here) and driver.poll() is None and lives.kill_some_worker(driver):
                wanted -= 1
                self._left["worker"] -= 1
        return lives.ended(driver)
