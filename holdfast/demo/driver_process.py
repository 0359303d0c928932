"""A driver of the demonstration as a process of its own, tagged so that its victims are its own (testing/processes.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.testing.processes import TAG, kill_all, left_after

TASK_FAILED = "Exception in task"
"""What Spark's executor logs when a task fails, also if it is tried again."""


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
        if left_after(self._tag, within_s=3.0):
            kill_all(self._tag)

    def wait(self, timeout_s: float) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise HoldfastError(
                f"a driver of the demonstration did not end within {timeout_s:g} s: {self.last_words()}"
            ) from None
