"""Programs that are killed at failpoints and started again, and what they wrote."""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import forked
import pyarrow.parquet as pq
from faults import DRIVER_KILLED, fired

PATIENCE_S = 120.0
FAILPOINTS = "HOLDFAST_FP"
DRAWS = 3


def lived(program: Path, here: Path, failpoint: str = "", *arguments: str) -> int:
    """One life of a program, which gets `arguments` and then the directory; its exit code.

    A life with a failpoint is a fork: most of a short life is imports. One without is an interpreter of its own, with other
    hashes of texts than the lives before it: whatever depends on them shows.
    """
    given = [str(program), *arguments, str(here)]
    code, said = _forked(given, {FAILPOINTS: failpoint}) if failpoint else _fresh(given)
    assert code in (0, -signal.SIGKILL), said[-3000:]
    fired(DRIVER_KILLED, int(code != 0))
    return code


def killed_at(failpoint: str, program: Path, *arguments: str, **environment: str) -> None:
    """A life in a fork that the failpoint must end."""
    code, said = _forked([str(program), *arguments], {**environment, FAILPOINTS: failpoint})
    assert code == -signal.SIGKILL, f"{failpoint} did not fire: {said[-3000:]}"
    fired(DRIVER_KILLED)


def undisturbed(program: Path, here: Path, *arguments: str) -> None:
    """A life to the end in a fork, for what others are compared with: those end in interpreters of their own."""
    code, said = _forked([str(program), *arguments, str(here)], {FAILPOINTS: ""})
    assert code == 0, said[-3000:]


def _fresh(given: list[str]) -> tuple[int, str]:
    environment = {**os.environ, FAILPOINTS: ""}
    done = subprocess.run(
        [sys.executable, *given], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )  # fmt: skip
    return done.returncode, done.stderr


def _forked(given: list[str], environment: Mapping[str, str]) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("r", errors="replace") as said:
        code = forked.finish(forked.start(_live, given, dict(environment), said.name), PATIENCE_S)
        return code, said.read()


def _live(given: list[str], environment: dict[str, str], said: str) -> None:
    """Body of a fork: what `python PROGRAM ARGUMENTS` does."""
    output = os.open(said, os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    sys.argv = given
    runpy.run_path(given[0], run_name="__main__")


def killed_and_finished(
    program: Path, here: Path, kills: Sequence[str], *arguments: str, draws: int = DRAWS
) -> None:
    """One life per failpoint, each of which must fire, and a last one to the end.

    A run that came to its end before a failpoint fired tells nothing, and at another pace it would have fired: all is drawn
    again from the beginning, `draws` times at most (once where `here` is not all that the program leaves behind)."""
    with tempfile.TemporaryDirectory() as before:
        here.mkdir(parents=True, exist_ok=True)
        shutil.copytree(here, before, dirs_exist_ok=True)
        for draw in range(draws):
            if draw:
                shutil.rmtree(here)
                shutil.copytree(before, here)
            silent = next((kill for kill in kills if lived(program, here, kill, *arguments) == 0), None)
            if silent is None:
                break
        else:
            raise AssertionError(f"{silent} did not fire in {draws} runs")
    assert lived(program, here, "", *arguments) == 0


def written(here: Path, name: str) -> list[dict[str, Any]]:
    """The rows of an exactly-once sink."""
    return [row for path in (here / name).glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
