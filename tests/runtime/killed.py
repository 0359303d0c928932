"""Programs that are killed at failpoints and started again, and what they wrote."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import forked
import pyarrow.parquet as pq
from faults import DRIVER_KILLED, fired

PATIENCE_S = 120.0


def lived(program: Path, here: Path, failpoint: str = "", *arguments: str) -> int:
    """One life of a program, which gets `arguments` and then the directory; its exit code.

    A life with a failpoint is a fork: most of a short life is imports. One without is an interpreter of its own, with other
    hashes of texts than the lives before it: whatever depends on them shows.
    """
    given = [str(program), *arguments, str(here)]
    code, said = _forked(given, failpoint) if failpoint else _fresh(given)
    assert code in (0, -signal.SIGKILL), said[-3000:]
    fired(DRIVER_KILLED, int(code != 0))
    return code


def _fresh(given: list[str]) -> tuple[int, str]:
    environment = {**os.environ, "HOLDFAST_FP": ""}
    done = subprocess.run(
        [sys.executable, *given], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )  # fmt: skip
    return done.returncode, done.stderr


def _forked(given: list[str], failpoint: str) -> tuple[int, str]:
    said = Path(given[-1]) / "said"
    said.parent.mkdir(parents=True, exist_ok=True)
    code = forked.finish(forked.start(_live, given, failpoint, said), PATIENCE_S)
    return code, said.read_text(errors="replace")


def _live(given: list[str], failpoint: str, said: Path) -> None:
    """Body of a fork: what `python PROGRAM ARGUMENTS` does."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ["HOLDFAST_FP"] = failpoint
    sys.argv = given
    runpy.run_path(given[0], run_name="__main__")


def killed_and_finished(program: Path, here: Path, kills: Sequence[str], *arguments: str) -> None:
    """One life per failpoint, each of which must fire, and a last one to the end."""
    for failpoint in kills:
        assert lived(program, here, failpoint, *arguments) == -signal.SIGKILL, f"{failpoint} did not fire"
    assert lived(program, here, "", *arguments) == 0


def written(here: Path, name: str) -> list[dict[str, Any]]:
    """The rows of an exactly-once sink."""
    return [row for path in (here / name).glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
