"""A life as a process, seen from its parent: spawned with its own Python, or forked for a topology that exists in this process only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast import failpoints
from holdfast.language.graph import Graph
from holdfast.runtime.engines.local import LocalEngine
from holdfast.testing import processes
from holdfast.testing.ordeal.life import Life, live

ORPHAN_S = 15.0
"""So long a driver's JVM and its workers may outlive it."""


class LifeProcess(ABC):
    """`tag` finds the processes that it starts; what all of them print goes to `log`."""

    def __init__(self, tag: str, log: Path, control: int) -> None:
        self.tag, self.log = tag, log
        self._control = control
        self.began_at = time.monotonic()

    pid: int

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit code; None: it lives."""

    def tell(self, **told: object) -> None:
        """A command for the life; one that has ended needs none."""
        try:
            os.write(self._control, f"{json.dumps(told)}\n".encode())
        except OSError:
            pass

    def signal(self, number: int) -> None:
        """To the driver's Python alone. It is our child that was not waited for: its number is its own."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, within_s: float) -> int | None:
        """Its exit code; None: it has not ended by then."""
        deadline = time.monotonic() + within_s
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return code

    def tasks_failed(self) -> int:
        try:
            return sum(
                self.log.read_bytes().count(words) for words in (b"Exception in task", b"Lost executor")
            )
        except OSError:
            return 0

    def last_words(self, lines: int = 6) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").strip().splitlines()[-lines:])
        except OSError:
            return ""

    def end(self) -> list[processes.Process]:
        """Nothing of it is left when this returns; what had to be ended, though the driver had gone, is told."""
        self.signal(signal.SIGKILL)
        self.wait(10.0)
        left = processes.left_after(self.tag, ORPHAN_S) if self._has_children() else []
        if left:
            processes.kill_all(self.tag)
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        return left

    def end_at_once(self) -> None:
        """The same without waiting for anybody: somebody interrupts the trial."""
        self.signal(signal.SIGKILL)
        self.wait(10.0)
        if self._has_children():
            processes.kill_all(self.tag)
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    def _has_children(self) -> bool:
        return True


Begin = Callable[[Life, str, Path, Mapping[str, str]], LifeProcess]
"""Begins a life: its tag, where it logs, what its environment has besides."""


class Spawned(LifeProcess):
    def __init__(
        self, command: Sequence[str], tag: str, log: Path, environment: Mapping[str, str], place: Path
    ) -> None:
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=place, start_new_session=True,
                env={**os.environ, **environment, processes.TAG: tag},
            )  # fmt: skip
        assert self._child.stdin is not None
        super().__init__(tag, log, os.dup(self._child.stdin.fileno()))
        self._child.stdin.close()
        self.pid = self._child.pid

    def poll(self) -> int | None:
        return self._child.poll()


class Forked(LifeProcess):
    """A copy of this process, with the topology as it is here. Has no Spark, and so no children."""

    def __init__(
        self, life: Life, graph: Callable[[], Graph], tag: str, log: Path, environment: Mapping[str, str]
    ) -> None:
        reading, writing = os.pipe()
        super().__init__(tag, log, writing)
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(writing)
            _be(life, graph, log, environment, reading)
        os.close(reading)

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _has_children(self) -> bool:
        return False


def _be(
    life: Life, graph: Callable[[], Graph], log: Path, environment: Mapping[str, str], control: int
) -> None:
    """The child of a fork; never returns."""
    code = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(environment)
        failpoints.arm("")
        code = live(life, control, graph, lambda _: LocalEngine(2))
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
