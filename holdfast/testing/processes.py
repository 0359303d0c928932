"""The processes of one run, and nobody else's: driver Python → driver JVM → executor JVMs → `pyspark.daemon` → workers.

Every process of a run carries the run's tag in its environment, where children inherit it. A victim is only ever taken
from the processes that carry the tag, and the signal goes to a handle, so that a number given away meanwhile is safe.
Never by name.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.errors import ConfigError

TAG = "HOLDFAST_RUN_TAG"

Kind = Literal["jvm", "executor", "daemon", "worker", "other"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    state: str
    cpu_ticks: int
    command: str
    reaped_ticks: int = 0
    """Of its children that have ended and were waited for, and of theirs."""

    @property
    def _is_pyspark(self) -> bool:
        """Whichever module the daemon is: it is told what its workers run."""
        return "pyspark.worker" in self.command or "pyspark/daemon" in self.command


def new_tag(prefix: str = "run") -> str:
    if not Path("/proc/self/environ").exists() or not hasattr(os, "pidfd_open"):
        raise ConfigError(
            "processes are found in /proc, which this system does not have.",
            cure="Run it on Linux, for example in a container.",
        )
    return f"{prefix}-{secrets.token_hex(8)}"


def members(tag: str) -> list[Process]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [found for pid in pids if carries(pid, tag) and (found := look(pid)) is not None]


def carries(pid: int, tag: str) -> bool:
    try:
        return f"{TAG}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty if it is gone."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def of_kind(tag: str, kind: Kind) -> list[Process]:
    """The run's processes of one kind."""
    return [process for found, process in with_kinds(tag) if found == kind]


def with_kinds(tag: str) -> list[tuple[Kind, Process]]:
    """All processes of the run."""
    return kinds_of(members(tag))


def below(pid: int) -> list[Process]:
    """A process and all that it began, directly or not, as far as who began them lives."""
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    there = {number: found for number in numbers if (found := look(number)) is not None}
    begun_by: dict[int, list[Process]] = {}
    for process in there.values():
        begun_by.setdefault(process.parent, []).append(process)
    below = [there[pid]] if pid in there else []
    for process in below:  # grows while it is walked
        below += begun_by.get(process.pid, [])
    return below


def kinds_of(found: Collection[Process]) -> list[tuple[Kind, Process]]:
    """What each of them is. A worker is forked from a daemon and looks like it: its parent tells."""
    pyspark = {process.pid for process in found if process._is_pyspark}
    return [(_kind_of(process, pyspark), process) for process in found]


def _kind_of(process: Process, pyspark: set[int]) -> Kind:
    if process.pid in pyspark:
        return "worker" if process.parent in pyspark else "daemon"
    if "CoarseGrainedExecutorBackend" in process.command:
        return "executor"
    return "jvm" if "org.apache.spark.deploy.SparkSubmit" in process.command else "other"


def busy(tag: str, kind: Kind, within_s: float, pause_s: float = 0.002) -> Process | None:
    """A process of the kind that is computing just now; None if none was within the time. Work may last only
    milliseconds, so known processes are looked at often, and new ones searched for now and then."""
    deadline = time.monotonic() + within_s
    search_at = 0.0
    known: dict[int, int] = {}
    while (now := time.monotonic()) < deadline:
        if now >= search_at:
            known = {process.pid: process.cpu_ticks for process in of_kind(tag, kind)}
            search_at = now + 0.25
        for pid, ticks in known.items():
            process = look(pid)
            if process is not None and (process.state == "R" or process.cpu_ticks > ticks):
                return process
        time.sleep(pause_s)
    return None


def send(pid: int, tag: str, number: int = signal.SIGKILL) -> bool:
    """A signal to a process of the run. False: it is gone. The number cannot have been given to another process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not carries(pid, tag):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def kill_all(tag: str, within_s: float = 10.0) -> list[Process]:
    """End everything that carries the tag; returns what could not be ended."""
    deadline = time.monotonic() + within_s
    while (left := members(tag)) and time.monotonic() < deadline:
        for process in left:
            send(process.pid, tag)
        time.sleep(0.05)
    return left


def left_after(tag: str, within_s: float, but: Callable[[Process], bool] = lambda _: False) -> list[Process]:
    """Who still carries the tag after waiting for all to end by themselves."""
    deadline = time.monotonic() + within_s
    while (left := [p for p in members(tag) if not but(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def look(pid: int) -> Process | None:
    """None if there is no such process, or it has ended and only waits to be noticed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[1]), fields[0], own, command.strip(), reaped)
