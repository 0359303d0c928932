"""What a soak uses, from outside: memory, descriptors and threads of its processes, bytes of its directories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.chaos.soak.app import Places
from holdfast.testing import processes


@dataclass(frozen=True, slots=True)
class Sample:
    """At a moment. Sizes in MB."""

    at_s: float
    life: int
    life_s: float
    """Age of the life."""
    epoch: int
    driver_mb: float
    jvm_mb: float
    descriptors: int
    """Of driver and JVM."""
    threads: int
    store_mb: float
    """Without logs."""
    log_mb: float
    out_mb: float
    files: int
    """In the store, logs included."""


def sampled(
    places: Places, tag: str, driver: int, at_s: float, life: int, life_s: float, epoch: int
) -> Sample:
    jvms = [process.pid for process in processes.of_kind(tag, "jvm")]
    logs, store = _size(places.store / "logs"), _size(places.store)
    out = _size(places.root / "out")[0] + (places.database.stat().st_size if places.database.exists() else 0)
    mine = [driver, *jvms]
    return Sample(
        round(at_s, 1), life, round(life_s, 1), epoch, _memory(driver), sum(map(_memory, jvms)),
        sum(map(_descriptors, mine)), sum(map(_threads, mine)), _mb(store[0] - logs[0]), _mb(logs[0]), _mb(out), store[1],
    )  # fmt: skip


def _mb(size: float) -> float:
    return round(size / 1e6, 2)


def _memory(pid: int) -> float:
    return _mb(_status(pid, "VmRSS:") * 1024)


def _threads(pid: int) -> int:
    return _status(pid, "Threads:")


def _status(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _size(place: Path) -> tuple[int, int]:
    """Bytes and files. What goes while it is looked at does not count."""
    size = files = 0
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                size += os.stat(f"{directory}/{name}").st_size
                files += 1
            except OSError:
                continue
    return size, files
