"""Many schedules of one mode, over all cores: what `holdfast simulate` does."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal, get_args

from holdfast.chaos.independent import IndependentSimulator
from holdfast.chaos.mixed.simulator import MixedSimulator
from holdfast.chaos.outcome import Figures, MixedOutcome, Outcome, SimulationFailed
from holdfast.chaos.simulator import Simulator
from holdfast.chaos.tapes import Failure, played, shrunk
from holdfast.protocol.autonomous import AUTONOMOUS_MOVES
from holdfast.protocol.controller import CONTROLLER_MOVES
from holdfast.protocol.element_phases import ELEMENT_MOVES
from holdfast.protocol.phases import legal_moves

SimulatedMode = Literal["drain", "token", "async", "independent", "outside"]
"""The modes of regions, and `outside`: elements outside of regions, alone and beside one."""
MODES: tuple[SimulatedMode, ...] = get_args(SimulatedMode)
CHUNK = 250

Tell = Callable[[str], None]


def schedule(
    mode: SimulatedMode, seed: int, rng: Random | None = None, trace: Tell | None = None
) -> Outcome | MixedOutcome:
    """Run one schedule. `rng` decides instead of the seed, if given."""
    match mode:
        case "outside":
            return MixedSimulator(seed, rng=rng, trace=trace).run()
        case "independent":
            return IndependentSimulator(seed, rng=rng, trace=trace).run()
        case _:
            return Simulator(seed, mode=mode, rng=rng, trace=trace).run()


@dataclass(frozen=True)
class Simulated:
    """What many schedules gave. `violations`: seed and reason of each schedule that broke something."""

    mode: SimulatedMode
    total: Figures
    violations: tuple[tuple[int, str], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "schedules": self.total.schedules + len(self.violations),
            "violations": len(self.violations),
            "events": self.total.events,
            "faults": self.total.faults,
            "coverage": coverage(self.mode, self.total),
            "failed": [{"seed": seed, "reason": reason} for seed, reason in self.violations],
        }


def coverage(mode: SimulatedMode, total: Figures) -> dict[str, str]:
    """How many of the moves that machines may make were made. A region's controller has more moves than one mode uses."""
    found: dict[str, str] = {}
    if isinstance(total, MixedOutcome):
        found["alone"] = f"{len(total.moves)}/{len(legal_moves(AUTONOMOUS_MOVES))}"
    elif isinstance(total, Outcome) and mode != "independent":
        found["element"] = f"{len(total.element_moves)}/{len(legal_moves(ELEMENT_MOVES))}"
        found["controller"] = f"{len(total.controller_moves)}/{len(legal_moves(CONTROLLER_MOVES))}"
    return found


def simulate(
    mode: SimulatedMode, seeds: range, workers: int | None = None, tell: Tell | None = None
) -> Simulated:
    """Run schedules over processes. Violations do not end it: all are told."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    total: Figures = MixedOutcome() if mode == "outside" else Outcome()
    violations: list[tuple[int, str]] = []
    for done, (figures, failed) in enumerate(_in_processes(mode, chunks, workers or os.cpu_count() or 1), 1):
        total.add(figures)
        violations += failed
        if tell is not None:
            tell(
                f"{min(done * CHUNK, len(seeds)):,} of {len(seeds):,} schedules, {len(violations)} violations"
            )
    return Simulated(mode, total, tuple(violations))


Chunk = tuple[Figures, list[tuple[int, str]]]


def _in_processes(mode: SimulatedMode, chunks: list[range], workers: int) -> Iterator[Chunk]:
    if len(chunks) == 1 or workers == 1:
        yield from map(partial(run_chunk, mode), chunks)
        return
    context = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield from pool.map(partial(run_chunk, mode), chunks)


def run_chunk(mode: SimulatedMode, seeds: range) -> Chunk:
    total: Figures = MixedOutcome() if mode == "outside" else Outcome()
    failed = []
    for seed in seeds:
        try:
            total.add(schedule(mode, seed))
        except SimulationFailed as broken:
            failed.append((seed, broken.reason))
    return total, failed


def shortest(mode: SimulatedMode, seed: int) -> Failure:
    """A short schedule that fails as that of the seed does."""
    play = partial(_play, mode, seed)
    failure = played(play, (), seed)
    assert failure is not None, f"the schedule of seed {seed} does not fail"
    return shrunk(play, failure)


def _play(mode: SimulatedMode, seed: int, rng: Random) -> None:
    schedule(mode, seed, rng)
