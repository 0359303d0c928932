"""The long campaigns on Spark (`make chaos`): everything that a run consists of is killed, and the output stays exact.

HOLDFAST_SEED=n repeats a run's draws; HOLDFAST_CHAOS_KILLS=n changes how often the driver is killed.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.chaos import campaign
from holdfast.chaos.campaign import Size
from holdfast.chaos.kills import Driver, Kill, Kind, Run
from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(3000)]

DRIVER_KILLS = int(os.environ.get("HOLDFAST_CHAOS_KILLS", "20"))
EXECUTOR_KILLS = int(os.environ.get("HOLDFAST_CHAOS_EXECUTOR_KILLS", "3"))
SIZE = Size(files=6, rows_per_file=400, rows_per_step=40, period_s=0.5)
SLOW = Size(files=6, rows_per_file=400, rows_per_step=40, period_s=0.5, work_s=0.15)
CLUSTER = Size(files=4, rows_per_file=250, rows_per_step=40, period_s=0.5, work_s=0.1, pace_s=1.5)
ROUNDS_MAX = 12

Note = Callable[[list[Kill]], None]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    chosen = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1 << 32))
    again = f"HOLDFAST_SEED={chosen} make chaos PYTEST_ARGS='tests/spark -k \"{request.node.originalname}\"'"
    print(f"seed {chosen}; to run it again: {again}")
    return chosen


def in_rounds(
    tmp_path: Path,
    size: Size,
    seed: int,
    note: Note,
    act: Callable[[Run], bool],
    master: str = "local[2,4]",
) -> None:
    """`act` on fresh runs until it has enough. Every run is taken to its end, judged by the oracle and noted."""
    for number in range(ROUNDS_MAX):
        with Run(tmp_path / str(number), size, seed + number, master) as run:
            enough = act(run)
            run.to_the_end()
            note(run.kills)
        if enough:
            return
    raise AssertionError(f"too few kills count after {ROUNDS_MAX} runs")


def living(run: Run) -> Driver:
    return run.drivers[-1] if run.drivers and run.drivers[-1].alive else run.start()


@pytest.mark.fault("P09", "P11", "O01")
def test_the_driver_is_killed_at_random_moments(tmp_path: Path, seed: int, note_kills: Note) -> None:
    """Most moments lie behind a new epoch, some in the start or the restore of a driver."""
    chance = random.Random(seed)
    left = DRIVER_KILLS

    def kill_drivers(run: Run) -> bool:
        nonlocal left
        while left:
            driver = run.start()
            if run.place.epoch() and chance.random() < 0.25:
                driver.until(lambda: False, chance.uniform(0.0, 10.0))
            elif not run.await_moment(driver, chance):
                break
            if not driver.alive:
                break
            left -= run.strike(driver, "driver")
            campaign.check(run.place, complete=False)
        return not left

    in_rounds(tmp_path, SIZE, seed, note_kills, kill_drivers)


def strikes(
    kind: Kind, wanted: int, seed: int, behind: Callable[[Run, Driver, bool], None]
) -> Callable[[Run], bool]:
    """Kill that many processes of a kind at random moments; `behind` looks at what follows each, and whether it counts."""
    chance = random.Random(seed)
    left = wanted

    def strike(run: Run) -> bool:
        nonlocal left
        while left:
            driver = living(run)
            if not run.await_moment(driver, chance):
                break
            counts = run.strike(driver, kind)
            left -= counts
            behind(run, driver, counts)
        return not left

    return strike


IN_PLACE: list[tuple[Kind, str, int]] = [
    ("worker", "local[2]", 5),
    ("worker", "local[2,4]", 3),
    ("daemon", "local[2]", 3),
    ("daemon", "local[2,4]", 2),
    ("jvm", "local[2]", 2),
]


@pytest.mark.parametrize(("kind", "master", "wanted"), IN_PLACE)
@pytest.mark.fault("P01", "P03", "P10")
def test_a_process_below_the_driver_is_killed(
    kind: Kind, master: str, wanted: int, tmp_path: Path, seed: int, note_kills: Note
) -> None:
    """A worker or daemon: a task is tried again or the region resets. The JVM: the driver ends, the next one goes on."""

    def behind_it(run: Run, driver: Driver, counts: bool) -> None:
        if kind == "jvm":
            assert driver.wait() not in (0, -9), "it cannot go on, and says so"

    in_rounds(tmp_path, SLOW, seed, note_kills, strikes(kind, wanted, seed, behind_it), master)


def has_reset(run: Run, kill: Kill) -> bool:
    return any(event.kind == "reset.begin" and event.wall > kill.at for event in run.events())


@pytest.mark.fault("P07")
def test_an_executor_is_killed_and_its_state_is_restored_elsewhere(
    tmp_path: Path, seed: int, note_kills: Note
) -> None:
    def reset_follows(run: Run, driver: Driver, counts: bool) -> None:
        if counts:
            rose = partial(has_reset, run, run.kills[-1])
            assert driver.until(rose, 60.0), f"the region did not reset: {driver.last_words(40)}"

    strike = strikes("executor", EXECUTOR_KILLS, seed, reset_follows)
    in_rounds(tmp_path, CLUSTER, seed, note_kills, strike, "local-cluster[2,1,1024]")


FAILPOINTS = [
    "ckpt.op.serialize=kill@7", "ckpt.op.put=kill@9", "ckpt.op.put_done=kill@9",
    "ckpt.manifest.tmp_written=kill@2", "ckpt.manifest.fsynced=kill@2", "ckpt.manifest.renamed=kill@2",
    "ckpt.dir.fsynced=kill@2", "drain.all_acked=kill@2", "ckpt.epoch.published=kill@2",
    "sink.prepare=kill@5", "sink.prepared=kill@5",
    "sink.commit.begin=kill@8", "sink.commit.applied=kill@5", "sink.commit.recorded=kill@5",
    "gc.list=kill@2", "gc.select=kill@1", "gc.delete=kill@2",
    "reset.choose_epoch=kill", "reset.begin=kill@2", "reset.op.load=kill@2", "reset.op.loaded=kill@3",
    "reset.source.seek=kill", "reset.sink.rollback=kill@2", "reset.resume=kill@2",
    "step.begin=kill@12", "step.end=kill@12", "drain.op.ack=kill@7",
]  # fmt: skip


@pytest.mark.fault("B04", "X01")
def test_the_driver_dies_at_each_step_of_checkpoint_publish_commit_and_reset(
    tmp_path: Path, seed: int, note_kills: Note
) -> None:
    """One life per failpoint, in random order. A life in which it cannot fire (yet) is drawn again later."""
    left = list(FAILPOINTS)
    random.Random(seed).shuffle(left)

    def die_at_each(run: Run) -> bool:
        while left:
            failpoint = next((f for f in left if run.place.epoch() or not f.startswith("reset")), left[0])
            left.remove(failpoint)
            before = run.place.trail.stat().st_size
            driver = run.start(failpoint)
            ended = driver.wait()
            campaign.check(run.place, complete=False)
            if not run.note_failpoint(driver, before):
                left.append(failpoint)
            if ended == 0:
                break
        return not left

    in_rounds(tmp_path, SIZE, seed, note_kills, die_at_each)


@pytest.mark.fault("B01")
def test_a_burst_of_worker_kills_ends_well(tmp_path: Path, seed: int, note_kills: Note) -> None:
    """As fast as they come back; the region resets again and again, at worst it is parked and started anew."""
    chance = random.Random(seed)

    def burst(run: Run) -> bool:
        driver = run.start()
        if run.await_moment(driver, chance):
            for _ in range(12):
                run.strike(driver, "worker")
                if not driver.alive:
                    break
        return run.counted >= 6

    in_rounds(tmp_path, SLOW, seed, note_kills, burst, "local[2]")


@pytest.mark.parametrize("failpoint", ["reset.begin=kill@4", "reset.op.loaded=kill@2", "reset.resume=kill@4"])
def test_the_driver_dies_in_the_reset_after_a_workers_death(
    failpoint: str, tmp_path: Path, seed: int, note_kills: Note
) -> None:
    """Three elements restore when a driver starts: the fourth hit is in the reset that the worker's death brings."""
    chance = random.Random(seed)

    def die_resetting(run: Run) -> bool:
        before = run.place.trail.stat().st_size
        driver = run.start(failpoint)
        if not run.await_moment(driver, chance):
            return False
        while driver.alive and not run.counted:
            run.strike(driver, "worker")
        return driver.wait() == -9 and run.note_failpoint(driver, before)

    in_rounds(tmp_path, SLOW, seed, note_kills, die_resetting, "local[2]")


@pytest.mark.fault("P09", "D02")
def test_a_jvm_that_outlives_its_driver_changes_nothing(tmp_path: Path, seed: int, note_kills: Note) -> None:
    """It is stopped before its driver dies and goes on beside the next driver: its tasks write where nobody looks."""
    chance = random.Random(seed)
    with Run(tmp_path / "run", SLOW, seed) as run:
        driver = run.start()
        assert run.await_moment(driver, chance)
        (jvm,) = processes.of_kind(driver.tag, "jvm")
        assert processes.send(jvm.pid, driver.tag, signal.SIGSTOP)
        run.strike(driver, "driver")
        following = run.start()
        assert run.await_moment(following, chance)
        assert processes.send(jvm.pid, driver.tag, signal.SIGCONT)
        run.to_the_end()
        note_kills(run.kills)
