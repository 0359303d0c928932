"""Child of test_best_effort_kills: one life of a graph of `holdfast.chaos.best_effort`, without Spark, and its parent's side.

A life ends when it is killed; the last one runs to the end of its input and leaves its status.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass, replace
from typing import Any

import forked

from holdfast import failpoints
from holdfast.chaos.best_effort import Graph, Place, Size, build, losses, note_steps
from holdfast.chaos.losses import SinkLosses
from holdfast.protocol import accounts
from holdfast.runtime.element import account_books
from holdfast.runtime.element.alone_life import AloneLife
from holdfast.testing.local import run_local, submit_local

STARTS_S = 60.0
"""A life whose first step takes longer hangs."""


@dataclass(frozen=True)
class Fate:
    """What a life is to do, and to suffer."""

    store: str
    failpoint: str = ""
    to_the_end: bool = False
    take_over: bool = False
    defect: str | None = None


def life(place: Place, graph: Graph, size: Size, fate: Fate) -> None:
    """Body of a child."""
    os.environ["TMPDIR"] = tempfile.tempdir = str(place.root)
    if ";" in fate.failpoint:  # a kill shows by itself
        os.environ[failpoints.ENV_LOG] = str(place.root / "fired")
    failpoints.arm(fate.failpoint)
    note_steps({graph: place.trail})
    if fate.defect is not None:
        DEFECTS[fate.defect]()
    topology = build(graph, place, size)
    if fate.to_the_end:
        status = run_local(topology, fate.store, take_over=fate.take_over)
        place.report(os.getpid()).write_text(json.dumps(status.as_dict()))
    else:
        submit_local(topology, fate.store).await_termination()
    os._exit(0)


class Lives:
    """One graph on one store, in as many lives as it takes."""

    def __init__(
        self, place: Place, graph: Graph, size: Size, defect: str | None = None, kind: str = "file"
    ) -> None:
        self.place, self.graph, self.size = place, graph, size
        self._fate = Fate(f"{kind}:{place.store}", defect=defect)
        self.killed: list[int] = []

    def kill_at(self, failpoint: str) -> None:
        """A life that dies at a failpoint, which must fire."""
        process = self._start(failpoint=failpoint)
        assert forked.finish(process) == -signal.SIGKILL, f"{failpoint} did not fire"
        self.killed.append(process.pid)

    def fired(self) -> set[str]:
        """What fired in lives that had several failpoints."""
        lines = (self.place.root / "fired").read_text().splitlines()
        return {line[1:].split()[0] for line in lines if line.startswith("!")}

    def kill_at_some_moment(self, chance: random.Random, within_s: float) -> None:
        """A life that is killed some time after its first steps, or while it starts."""
        process = self._start()
        if chance.random() < 0.8:
            self._await_steps(process, chance.randrange(1, 6))
        time.sleep(chance.uniform(0.0, within_s))
        process.kill()
        assert forked.finish(process) == -signal.SIGKILL
        self.killed.append(process.pid)

    def _await_steps(self, process: Any, steps: int) -> None:
        patience = time.monotonic() + STARTS_S
        while len(self.place.steps(process.pid)) < steps:
            assert process.exitcode is None, "it ended"
            assert time.monotonic() < patience, "it does not get going"
            time.sleep(0.002)

    def put_to_sleep_and_taken_over(self, chance: random.Random, within_s: float) -> list[SinkLosses]:
        """A life that is stopped, not killed; another one takes over, and the first wakes up meanwhile."""
        sleeper = self._start()
        self._await_steps(sleeper, chance.randrange(1, 20))
        time.sleep(chance.uniform(0.0, within_s))
        os.kill(sleeper.pid, signal.SIGSTOP)
        heir = self._start(to_the_end=True, take_over=True)
        self._await_steps(heir, chance.randrange(1, 6))
        os.kill(sleeper.pid, signal.SIGCONT)
        assert forked.finish(sleeper) == 1, "it notices that it was replaced"
        self.killed.append(sleeper.pid)
        return self._ended(heir)

    def end(self) -> list[SinkLosses]:
        """A life to the end of the input; what each sink has then."""
        return self._ended(self._start(to_the_end=True))

    def _ended(self, process: Any) -> list[SinkLosses]:
        assert forked.finish(process) == 0
        status: dict[str, Any] = json.loads(self.place.report(process.pid).read_text())
        return losses(self.graph, self.place, self.size, status["lost_rows"], self.killed)

    def _start(self, **fate: Any) -> Any:
        return forked.start(life, self.place, self.graph, self.size, replace(self._fate, **fate))


# --- defects that the tests must notice -------------------------------------------------------------------------------


def _forget_queues() -> None:
    """What waits in a queue is not counted."""
    accounts._in_queues = lambda account, books: ()  # type: ignore[assignment]


def _forget_steps() -> None:
    """A step that a kill ended is not counted."""
    accounts._in_step = lambda account: ()  # type: ignore[assignment]


def _forget_states() -> None:
    """What operators took after their checkpoints is not counted."""
    accounts._in_states = lambda account, books: ()  # type: ignore[assignment]


def _forget_borders() -> None:
    """What a region took after its newest epoch is not counted."""
    accounts.at_borders = account_books.at_borders = lambda books: {}  # type: ignore[attr-defined]


def _count_all_queues() -> None:
    """What was taken out of a queue counts as if it waited."""
    accounts._taken = lambda connection, books: 0  # type: ignore[assignment]
    old = accounts._in_queues

    def too_many(account: Any, books: Any) -> Any:
        return old(replace(account, taken=dict.fromkeys(account.taken, 0)), books)

    accounts._in_queues = too_many


def _save_positions_late() -> None:
    """A position is saved when its rows were processed, instead of before."""
    save = AloneLife._save

    def late(life: Any, account: Any) -> None:
        if not account.in_flight:
            save(life, account)

    AloneLife._save = late  # type: ignore[method-assign]


DEFECTS = {
    "queues": _forget_queues,
    "steps": _forget_steps,
    "states": _forget_states,
    "borders": _forget_borders,
    "too many": _count_all_queues,
    "late": _save_positions_late,
}
