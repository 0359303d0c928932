"""Seconds of CPU that a run has cost so far, by kind of process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from statistics import median

from holdfast.testing.processes import Kind, Process, below, kinds_of, with_kinds

DRIVER, JVM, WORKERS, OTHERS = "driver_python", "driver_jvm", "workers", "others"
KINDS = {"jvm": JVM, "daemon": WORKERS, "worker": WORKERS}

Seconds = Mapping[str, float]


def spent(tag: str, driver: int) -> Seconds:
    """Of all processes that carry the tag and live. `driver`: the number of the Python process that everything began with."""
    return _by_kind(with_kinds(tag), driver)


def spent_here() -> Seconds:
    """Of this process and of all that it began."""
    return _by_kind(kinds_of(below(os.getpid())), os.getpid())


def since(before: Seconds, now: Seconds) -> Seconds:
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in now.items()}


def per_million_rows(spent: Iterable[Seconds], rows: int) -> dict[str, float]:
    """The median of each kind of process over several runs, and of all together."""
    runs = [{**seconds, "all": sum(seconds.values())} for seconds in spent]
    return {kind: round(1e6 * median(run.get(kind, 0.0) for run in runs) / rows, 3) for kind in runs[0]}


def _by_kind(found: Iterable[tuple[Kind, Process]], driver: int) -> Seconds:
    """Children that have ended count with who waited for them: workers that Spark let go, with their daemon."""
    ticks = dict.fromkeys((DRIVER, JVM, WORKERS, OTHERS), 0)
    for kind, process in found:
        name = DRIVER if process.pid == driver else KINDS.get(kind, OTHERS)
        ticks[name] += process.cpu_ticks + process.reaped_ticks
    per_second = os.sysconf("SC_CLK_TCK")
    return {name: count / per_second for name, count in ticks.items()}
