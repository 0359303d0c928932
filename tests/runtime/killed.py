"""Programs that are killed at failpoints and started again, and what they wrote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def lived(program: Path, here: Path, failpoint: str = "", *arguments: str) -> int:
    """One life of a program, which gets `arguments` and then the directory; its exit code."""
    environment = {**os.environ, "HOLDFAST_FP": failpoint}
    done = subprocess.run(
        [sys.executable, str(program), *arguments, str(here)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


def killed_and_finished(program: Path, here: Path, kills: Sequence[str], *arguments: str) -> None:
    """One life per failpoint, each of which must fire, and a last one to the end."""
    for failpoint in kills:
        assert lived(program, here, failpoint, *arguments) == -signal.SIGKILL, f"{failpoint} did not fire"
    assert lived(program, here, "", *arguments) == 0


def written(here: Path, name: str) -> list[dict[str, Any]]:
    """The rows of an exactly-once sink."""
    return [row for path in (here / name).glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
