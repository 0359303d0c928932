"""Seconds of CPU that a run has cost so far, by kind of process."""

from __future__ import annotations

import os

from holdfast.testing.processes import with_kinds

DRIVER, JVM, WORKERS, OTHERS = "driver_python", "driver_jvm", "workers", "others"
KINDS = {"jvm": JVM, "daemon": WORKERS, "worker": WORKERS}


def spent(tag: str, driver: int) -> dict[str, float]:
    """Of all processes that carry the tag and live, and of their children that ended: workers that Spark let go count
    with their daemon. `driver`: the number of the Python process that everything began with."""
    ticks = dict.fromkeys((DRIVER, JVM, WORKERS, OTHERS), 0)
    for kind, process in with_kinds(tag):
        name = DRIVER if process.pid == driver else KINDS.get(kind, OTHERS)
        ticks[name] += process.cpu_ticks + process.reaped_ticks
    per_second = os.sysconf("SC_CLK_TCK")
    return {name: count / per_second for name, count in ticks.items()}
