"""How a schedule ended: its figures, or the seed to see the failure again."""

from __future__ import annotations

import argparse
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Self, TypeVar

from holdfast.protocol.autonomous import AutonomousPhase
from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.shape import Mode

ElementMove = tuple[ElementPhase, ElementPhase]
ControllerMove = tuple[ControllerPhase, ControllerPhase]
AutonomousMove = tuple[AutonomousPhase, AutonomousPhase]
F = TypeVar("F", bound="Figures")


class SimulationFailed(AssertionError):
    """A schedule broke an invariant or did not end. Says how to see it again."""

    def __init__(self, seed: int, reason: str, simulator: str = "simulator") -> None:
        """`simulator`: its module, and what else its command line was told beside the seed."""
        super().__init__(seed, reason, simulator)
        self.seed = seed
        self.reason = reason
        self.simulator = simulator

    def __str__(self) -> str:
        again = f"python -m holdfast.chaos.{self.simulator} --seed {self.seed}"
        return f"seed {self.seed}: {self.reason}\nre-run: {again}"


@dataclass(slots=True)
class Figures:
    """Of one schedule, or of many added up."""

    schedules: int = 0
    events: int = 0
    faults: int = 0
    runs: int = 0
    controller_moves: set[ControllerMove] = field(default_factory=set)

    def add(self, other: Self) -> None:
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine | its if isinstance(mine, set) else mine + its)

    @abstractmethod
    def figures(self) -> str:
        """In one sentence."""


@dataclass(slots=True)
class Outcome(Figures):
    """Figures of schedules of one region."""

    resets: int = 0
    epochs_begun: int = 0
    epochs_published: int = 0
    parked: int = 0
    rests: int = 0
    """How often nothing came in and the region came to rest."""
    ignored: int = 0
    element_moves: set[ElementMove] = field(default_factory=set)

    def figures(self) -> str:
        return (
            f"{self.schedules} schedules, {self.events} events, {self.faults} faults, {self.resets} resets, "
            f"{self.epochs_begun} epochs begun, {self.epochs_published} published, {self.parked} times parked, "
            f"{self.rests} times at rest, {self.runs} runs, {self.ignored} stale messages ignored"
        )


@dataclass(slots=True)
class MixedOutcome(Figures):
    """Figures of schedules of elements outside of regions."""

    with_region: int = 0
    kills: int = 0
    lost: int = 0
    """Rows counted at the end, added up over all sinks."""
    moves: set[AutonomousMove] = field(default_factory=set)

    def figures(self) -> str:
        return (
            f"{self.schedules} schedules, {self.with_region} with a region, {self.events} events, "
            f"{self.faults} faults, {self.kills} kills, {self.runs} runs, {self.lost} rows counted as lost"
        )


class Teller:
    """Tells what happens, if anybody listens; wording is put together only then."""

    trace: Callable[[str], None] | None = None

    def say(self, line: str, *values: object) -> None:
        if self.trace is not None:
            self.trace(line % values)


Run = Callable[[int, Callable[[str], None] | None, Mode | None], F]
"""One schedule by its seed, told line by line if somebody listens, in one mode if that is not the seed's choice."""


def added_up(total: F, outcomes: Iterable[F]) -> F:
    """The figures of many schedules; the first failure ends it."""
    for outcome in outcomes:
        total.add(outcome)
    return total


def command_line(
    module: str, about: str, run: Run[F], total: F, arguments: list[str] | None, modes: Iterable[Mode] = ()
) -> int:
    """Run one schedule and tell it, or many and print their figures; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m holdfast.chaos.{module}", description=about)
    parser.add_argument("--seed", type=int, default=0, help="the schedule to tell, or the first one to count")
    parser.add_argument("--count", type=int, default=0, help="run that many schedules and print figures only")
    parser.set_defaults(mode=None)
    if choices := tuple(modes):
        parser.add_argument("--mode", choices=choices, help="of all schedules; without it each seed chooses")
    options = parser.parse_args(arguments)
    try:
        if options.count:
            seeds = range(options.seed, options.seed + options.count)
            print(added_up(total, (run(seed, None, options.mode) for seed in seeds)).figures())
        else:
            print(run(options.seed, print, options.mode).figures())
    except SimulationFailed as failed:
        print(f"FAILED {failed}", file=sys.stderr)
        return 1
    return 0
