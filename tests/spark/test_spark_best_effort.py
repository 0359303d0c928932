"""Best effort on Spark under kill -9 of the driver: what is missing is counted, hardly more is counted, and no row comes
twice. Four graphs run side by side in one process, each on a store of its own, so that a kill hits all of them.

`make chaos` kills each graph alone, more often, and an executor of a cluster. HOLDFAST_SEED=n repeats a run's draws.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from operators_lives import TaggedLives

from holdfast.chaos.best_effort import ALONE, Graph, Place, Size, losses
from holdfast.chaos.losses import HEADER, SinkLosses, markdown, record
from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("best_effort_spark_program.py")
GRAPHS: tuple[Graph, ...] = tuple(ALONE)
SMALL = Size(rows=600, rows_per_step=20, pace_s=0.1, slow_s=0.2, period_s=0.6)
LARGE = Size(rows=800, rows_per_step=20, pace_s=0.05, slow_s=0.2, period_s=0.6)
SCRATCHES = ("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR", "SPARK_WORKER_DIR")
LIFE_S = 240.0
"""A driver that lives longer hangs."""
KILLS = 2

Note = Callable[[Sequence[SinkLosses]], None]


@pytest.fixture
def note(request: pytest.FixtureRequest, tell: Callable[..., None]) -> Note:
    """note(losses) puts them into the tables of the run, and beside that of `--chaos-table FILE`."""
    table: Path | None = request.config.getoption("--chaos-table", default=None)

    def add(found: Sequence[SinkLosses]) -> None:
        title = f"best effort on Spark under kills: {HEADER.splitlines()[0]}"
        tell(title, *(each.line() for each in found))
        if table is not None:
            record(table.with_suffix(".losses.md"), found)

    return add


class Lives(TaggedLives):
    """Some graphs in one process, in as many lives as it takes."""

    def __init__(
        self,
        here: Path,
        graphs: Sequence[Graph],
        size: Size,
        master: str = "local[2]",
        life_s: float = LIFE_S,
    ) -> None:
        self.places = {graph: Place(here / graph) for graph in graphs}
        self.killed: list[int] = []
        self._here, self._size, self._master, self._life_s = here, size, master, life_s
        super().__init__()
        for place in self.places.values():
            place.root.mkdir(parents=True)

    @property
    def tag(self) -> str:
        return self._tags[-1]

    def start(self, to_the_end: bool = False) -> subprocess.Popen[bytes]:
        self._tags.append(processes.new_tag("loose"))
        environment = {
            **os.environ,
            **dict.fromkeys(SCRATCHES, str(self._scratch)),
            processes.TAG: self.tag,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        size, end = json.dumps(asdict(self._size)), "1" if to_the_end else "0"
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self._here), self._master, size, end, *self.places],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    @property
    def _log(self) -> Path:
        return self._here / f"driver-{len(self._tags)}.log"

    def await_steps(self, driver: subprocess.Popen[bytes], steps: int) -> None:
        """Wait until each graph has begun so many steps in this life, or has come to the end of its input."""
        deadline = time.monotonic() + self._life_s

        def waits(place: Place) -> bool:
            return len(place.steps(driver.pid)) < steps and place.most_rows() < self._size.rows

        while any(map(waits, self.places.values())):
            assert driver.poll() is None, self._log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, "it does not get going"
            time.sleep(0.02)

    def kill(self, driver: subprocess.Popen[bytes]) -> None:
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
        self.killed.append(driver.pid)
        assert processes.left_after(self.tag, 20) == [], "its JVM and workers notice and end"

    def end(self) -> list[SinkLosses]:
        """A life to the end of the input; what each sink has then."""
        return self.ended(self.start(to_the_end=True))

    def ended(self, driver: subprocess.Popen[bytes]) -> list[SinkLosses]:
        assert driver.wait(self._life_s) == 0, self._log.read_text(errors="replace")[-3000:]
        found: list[SinkLosses] = []
        for graph, place in self.places.items():
            counted = json.loads(place.report(driver.pid).read_text())["lost_rows"]
            found += losses(graph, place, self._size, counted, self.killed)
        return found


def check(found: Sequence[SinkLosses], again: str = "") -> None:
    for each in found:
        assert each.broken is None, f"{each.graph}, sink {each.sink}: {each.broken}\n{markdown(found)}{again}"


def test_drivers_of_four_graphs_are_killed_and_what_is_missing_is_counted(tmp_path: Path, note: Note) -> None:
    with Lives(tmp_path, GRAPHS, SMALL) as lives:
        for number in range(KILLS):
            driver = lives.start()
            lives.await_steps(driver, 3 + number)
            lives.kill(driver)
        found = lives.end()
    note(found)
    check(found)
    assert any(each.counted for each in found), "the kills hit nobody"


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("graph", GRAPHS)
def test_drivers_of_one_graph_are_killed_at_random_moments(
    graph: Graph, tmp_path: Path, note: Note, request: pytest.FixtureRequest
) -> None:
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1 << 32))
    again = f"HOLDFAST_SEED={seed} make chaos PYTEST_ARGS='tests/spark -k \"{request.node.name}\"'"
    print(f"seed {seed}; to run it again: {again}")
    chance = random.Random(f"{graph} {seed}")
    with Lives(tmp_path, [graph], LARGE) as lives:
        for _ in range(5):
            driver = lives.start()
            lives.await_steps(driver, chance.randrange(1, 15))
            time.sleep(chance.uniform(0.0, 2.0))
            lives.kill(driver)
        found = lives.end()
    note(found)
    check(found, again)


@pytest.mark.chaos
@pytest.mark.timeout(2500)
def test_an_executor_dies_with_the_segments_of_an_operator_that_has_checkpoints_of_its_own(
    tmp_path: Path, note: Note
) -> None:
    with Lives(tmp_path, ["own"], LARGE, "local-cluster[2,1,1024]", life_s=1200.0) as lives:
        driver = lives.start(to_the_end=True)
        lives.await_steps(driver, 12)
        victim, *_ = processes.of_kind(lives.tag, "executor")
        assert processes.send(victim.pid, lives.tag)
        found = lives.ended(driver)
    note(found)
    assert any(each.counted for each in found), "nobody missed the executor"
    for each in found:
        assert each.repeated == 0
        assert each.missing <= each.counted, each.line()
