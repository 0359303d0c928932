"""Processes that are measured: started with a tag, waited for with all that they began, refused if they fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.runtime.engines.spark.environment import recorded_java
from holdfast.testing.processes import TAG, kill_all, left_after, new_tag

WAIT_S = 3600.0
ENDING_S = 15.0
LAST_WORDS = 2000
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True)
class Started:
    """A process at work. `begun` is the moment before it was started, as time.monotonic() has it."""

    process: subprocess.Popen[bytes]
    begun: float
    out: Path
    log: Path

    def wait(self) -> float:
        """Until it has ended, with whatever code; seconds since it began."""
        self.process.wait(WAIT_S)
        return time.monotonic() - self.begun

    def check(self) -> None:
        """HoldfastError if it failed."""
        if self.process.returncode != 0:
            raise HoldfastError(f"a side ended with code {self.process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-LAST_WORDS:].strip()


@contextmanager
def started(command: Sequence[str], directory: Path, more: Mapping[str, str] = NOTHING) -> Iterator[Started]:
    """At work within the block; behind it nothing is left of it. What it prints goes to files of `directory`. `more`: for its environment."""
    tag = new_tag("bench")
    out, log = directory / "stdout", directory / "stderr"
    os.sync()
    with out.open("wb") as out_file, log.open("wb") as log_file:
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=log_file,
            cwd=directory,
            env={**environment(tag), **more},
        )
    try:
        yield Started(process, begun, out, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        # The JVM may need a moment more than its driver: what it does then is not to be paid for by the next side.
        if left_after(tag, ENDING_S):
            kill_all(tag)


def environment(tag: str) -> Mapping[str, str]:
    """What any Spark program needs to find Java and Python, and the tag. Nothing that only holdfast would set."""
    java = recorded_java()
    found = {} if java is None else {"JAVA_HOME": java}
    return {**found, **os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", TAG: tag}
