"""Many schedules of a simulator: shared out over processes, or one after the other until one fails."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from sound_plants import sound

from holdfast.chaos.outcome import F, SimulationFailed, added_up

WORKERS = 2


C = TypeVar("C")


def in_processes(simulate: Callable[[C], F], total: F, chunks: Iterable[C]) -> F:
    """The figures of all chunks."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        return added_up(total, pool.map(simulate, chunks))


def first_failure(run: Callable[[int], object], most: int) -> SimulationFailed:
    """What the checkers say of the first schedule that fails; one of that many must."""
    for seed in range(most):
        try:
            run(seed)
        except SimulationFailed as failure:
            sound("of this simulation", failure.reason)
            return failure
    raise AssertionError(f"{most} schedules did not find it")
