"""The run's own processes, and nobody else's.

Every process of a run carries the run's tag in its environment, where children inherit it: driver Python → JVM →
`pyspark.daemon` → Python workers. A victim is only ever taken from the processes that carry the tag.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigError, HoldfastError

TAG = "HOLDFAST_DEMO_RUN"
TASK_FAILED = "Exception in task"
"""What Spark's executor logs when a task fails, also if it is tried again."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    state: str
    cpu_ticks: int
    command: str

    @property
    def is_daemon(self) -> bool:
        return "pyspark.daemon" in self.command or "pyspark/daemon" in self.command


def new_tag() -> str:
    if not Path("/proc/self/environ").exists() or not hasattr(os, "pidfd_open"):
        raise ConfigError(
            "the demonstration finds its own processes in /proc, which this system does not have.",
            cure="Run it on Linux, for example in a container.",
        )
    return f"demo-{secrets.token_hex(8)}"


def members(tag: str) -> list[Process]:
    """Every living process that carries the tag."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [found for pid in pids if carries(pid, tag) and (found := _look(pid)) is not None]


def carries(pid: int, tag: str) -> bool:
    try:
        return f"{TAG}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def python_workers(tag: str) -> list[Process]:
    """Spark's Python workers: children of a `pyspark.daemon` that are not daemons' own parents."""
    found = members(tag)
    daemons = {process.pid for process in found if process.is_daemon}
    return [process for process in found if process.parent in daemons]


def busy_worker(tag: str, within_s: float, pause_s: float = 0.002) -> Process | None:
    """A Python worker that is computing just now; None if none was within the time. Work may last only milliseconds,
    so known workers are looked at often, and new ones searched for now and then."""
    deadline = time.monotonic() + within_s
    search_at = 0.0
    known: dict[int, int] = {}
    while (now := time.monotonic()) < deadline:
        if now >= search_at:
            known = {worker.pid: worker.cpu_ticks for worker in python_workers(tag)}
            search_at = now + 0.25
        for pid, ticks in known.items():
            worker = _look(pid)
            if worker is not None and (worker.state == "R" or worker.cpu_ticks > ticks):
                return worker
        time.sleep(pause_s)
    return None


def kill(pid: int, tag: str) -> bool:
    """SIGKILL to a process of the run. False: it is gone. The number cannot have been given to another process."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not carries(pid, tag):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
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
            kill(process.pid, tag)
        time.sleep(0.05)
    return left


class Driver:
    """A driver process and its JVM, in a process group of their own; everything they print goes to `log`."""

    def __init__(self, arguments: Sequence[str], tag: str, root: Path, name: str) -> None:
        self.log = root / f"{name}.log"
        self._tag = tag
        scratch = root / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            TAG: tag,
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
            "HOLDFAST_LIVE_DIR": str(scratch),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.demo.driver", *arguments],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=root, env=environment, start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """Raises if it ended although nobody asked it to."""
        code = self.process.poll()
        if code is not None:
            raise HoldfastError(
                f"a driver of the demonstration ended by itself with code {code}: {self.last_words()}",
                cure=f"Look at {self.log}.",
            )

    def tasks_failed(self) -> int:
        return self.log.read_bytes().count(TASK_FAILED.encode())

    def last_words(self, lines: int = 3) -> str:
        text = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(line.strip() for line in text[-lines:])

    def kill_group(self) -> None:
        """SIGKILL to driver Python and JVM at the same moment. Spark's daemon has a group of its own and ends with
        the JVM; what has not ended after a few seconds is ended too, as a host that fails would."""
        os.killpg(self.process.pid, signal.SIGKILL)  # our unreaped child: the number is still its own
        self.process.wait()
        deadline = time.monotonic() + 3.0
        while members(self._tag) and time.monotonic() < deadline:
            time.sleep(0.05)
        kill_all(self._tag)

    def wait(self, timeout_s: float) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise HoldfastError(
                f"a driver of the demonstration did not end within {timeout_s:g} s: {self.last_words()}"
            ) from None


def _look(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return Process(pid, int(fields[1]), fields[0], int(fields[11]) + int(fields[12]), command.strip())
