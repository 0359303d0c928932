"""What the demonstrations have in common: programs that are started, killed with all their processes, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0


class Program:
    """`python FILE WORDS…`, as a group of processes of its own. What it prints goes into a file."""

    def __init__(self, output: Path, file: str, *words: object) -> None:
        self._command = [sys.executable, file, *map(str, words)]
        self._output = output
        self.kills = 0
        self.start()

    def start(self) -> None:
        root = str(Path(__file__).parents[1])
        paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )

    def kill_and_restart(self) -> None:
        """SIGKILL for driver, JVM and workers: nothing gets to say goodbye."""
        self.check()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.kills += 1
        self.start()

    def check(self) -> None:
        """It must be at work, or have ended well."""
        if self._process.poll():
            raise SystemExit(f"{' '.join(self._command)} failed:\n{self._output.read_text()[-3000:]}")

    def finish(self, ask: bool = False) -> None:
        """Wait for its end; `ask`: it is asked to establish a final epoch and stop. One that has not begun yet just ends."""
        if ask:
            self._process.terminate()
        if self._process.wait(PATIENCE_S) != -signal.SIGTERM or not ask:
            self.check()

    def close(self) -> None:
        """End whatever is left of it."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def wait_for(condition: Callable[[], Any], what: str, *programs: Program) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        for program in programs:
            program.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.02)


def run(topology: Any, store: Path, until: Any, local: bool) -> None:
    """On Spark, or, with the same protocol and recovery, in this process alone, which starts in a second."""
    if local:
        from holdfast.testing import run_local

        run_local(topology, f"file:{store}", until)
    else:
        topology.run(store=f"file:{store}", until=until)
