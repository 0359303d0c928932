"""A row that ends its Python worker, and a driver that is killed while it is looked for: one letter, and all other rows once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import poison_spark_program as program
import pytest
from faults import DRIVER_KILLED, fired
from killed import written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


def live(here: Path, failpoint: str) -> int:
    done = subprocess.run(
        [sys.executable, program.__file__, str(here)],
        env={**os.environ, "HOLDFAST_FP": failpoint},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


@pytest.mark.fault("I04", "P04")
def test_a_row_that_ends_its_worker_is_put_aside_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    assert live(tmp_path, "poison.try=kill@3") == -signal.SIGKILL, "it was looked for"
    fired(DRIVER_KILLED)
    assert live(tmp_path, "") == 0
    (letter,) = written(tmp_path, "bad")
    assert json.loads(letter["row"]) == {"n": program.BAD, "k": f"k{program.BAD % 3}"}
    assert letter["error"] == "its worker process ended, or the executor did"
    totals: dict[str, int] = {}
    expected = []
    for n in range(program.ROWS):
        if n != program.BAD:
            totals[f"k{n % 3}"] = totals.get(f"k{n % 3}", 0) + n
            expected.append((f"k{n % 3}", n, totals[f"k{n % 3}"]))
    assert sorted((row["k"], row["n"], row["total"]) for row in written(tmp_path, "out")) == sorted(expected)
