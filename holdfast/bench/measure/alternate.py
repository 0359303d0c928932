"""Sides that take turns: warm up, choose how many steps a stretch has, alternate, compare what was written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.bench.measure.cpu import Seconds, since, spent_here
from holdfast.bench.measure.inputs import Inputs
from holdfast.bench.measure.place import Place
from holdfast.errors import HoldfastError

WARM_UP_PASSES = 2
TRIES = 3
ROOM = 1.1
"""Stretches are made a little longer than asked for: steps get faster after the warm-up."""


@dataclass(frozen=True)
class Stretch:
    """What one side did in one stretch. Seconds run from the beginning of the first step until the last row is visible,
    so starting and ending a run count on no side."""

    seconds: float
    rows: int
    steps: int
    latencies_s: tuple[float, ...] = ()
    """Per step: from the moment its batch was next in line until its rows were handed to the sink."""
    step_s: tuple[float, ...] = ()
    """Per step: as the side itself reports it."""
    epochs: int = 0
    bytes_written: int = 0
    cpu_s: Seconds = field(default_factory=dict)
    """By kind of process, starting and ending the run included."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def step_mean_s(self) -> float:
        return self.seconds / self.steps


@dataclass(frozen=True)
class Side:
    """One of the things compared. `run` reads a directory of inputs and writes into a directory.

    A slow side takes part in at most `rounds_max` rounds, does not decide how long stretches are, and may warm up with
    other inputs.
    """

    name: str
    run: Callable[[Path, Path], Stretch]
    rounds_max: int | None = None
    warm_up: Inputs | None = None


Round = Mapping[str, Stretch]
"""What each side did in a round; a slow side may be missing."""

Look = Callable[[Path, int], Any]
"""(output directory, steps) → what was written, in a form that can be compared; raises if it is wrong."""


class Alternation:
    """Runs the rounds of one benchmark."""

    def __init__(self, place: Place, inputs: Inputs, sides: Sequence[Side], look: Look) -> None:
        self._place = place
        self._inputs = inputs
        self._sides = sides
        self._look = look
        self._warm: dict[str, Stretch] = {}

    def warm_up(self, steps: int) -> None:
        """Let every side run `steps` steps twice."""
        for number in range(WARM_UP_PASSES):
            for side in self._sides:
                self._place.console.print(f"warming up {side.name} ({number + 1} of {WARM_UP_PASSES})")
                self._warm[side.name], _ = self._stretch(
                    side, side.warm_up or self._inputs, steps, look=False
                )

    def steps_of(self, seconds: float, at_least: int) -> int:
        """How many steps make a stretch of so many seconds for the fastest side; it tries. Comes after `warm_up`."""
        whole = [side for side in self._sides if side.rounds_max is None]
        fastest = min(whole, key=lambda side: self._warm[side.name].step_mean_s)
        steps = steps_for(seconds, self._warm[fastest.name].step_mean_s, at_least)
        for _ in range(TRIES):
            self._place.console.print(f"{steps} steps of {fastest.name} to see how long they take")
            tried, _ = self._stretch(fastest, self._inputs, steps, look=False)
            steps = max(steps, steps_for(seconds, tried.step_mean_s, at_least))
            if tried.seconds >= seconds:
                break
        return steps

    def measure(self, rounds: int, steps: int) -> list[Round]:
        """Alternate. Every other round goes backwards: what drifts over time hits all sides alike."""
        results: list[Round] = []
        for number in range(rounds):
            turn = [side for side in self._sides if side.rounds_max is None or number < side.rounds_max]
            done: dict[str, Stretch] = {}
            seen: dict[str, Any] = {}
            for side in turn if number % 2 == 0 else reversed(turn):
                done[side.name], seen[side.name] = self._stretch(side, self._inputs, steps)
            check_equal(seen)
            results.append(done)
            shown = ", ".join(f"{side.name} {done[side.name].rows_per_s:,.0f} rows/s" for side in turn)
            self._place.console.print(f"round {number + 1} of {rounds}: {shown}")
        return results

    def _stretch(self, side: Side, inputs: Inputs, steps: int, look: bool = True) -> tuple[Stretch, Any]:
        with self._place.directory("out") as out:
            self._place.settle()
            files, before = inputs.directory(steps), spent_here()
            done = side.run(files, out)
            done = replace(done, cpu_s=since(before, spent_here()))
            return done, self._look(out, steps) if look else None


def steps_for(seconds: float, pace_s: float, at_least: int) -> int:
    """How many steps a stretch of so many seconds has."""
    return max(at_least, math.ceil(ROOM * seconds / pace_s))


def check_equal(seen: Mapping[str, Any]) -> None:
    """All sides must have written the same. (Each side's rows are also judged by `Look`.)"""
    first, *others = seen.values()
    if any(look != first for look in others):
        raise HoldfastError(f"the sides wrote different rows: {dict(seen)}.")


def pairs_of(
    rounds: Sequence[Round], over: str, under: str, figure: Callable[[Stretch], float]
) -> list[float]:
    """The figure of one side over that of the other, for every round both took part in."""
    both = [done for done in rounds if over in done and under in done]
    return [figure(done[over]) / figure(done[under]) for done in both]
