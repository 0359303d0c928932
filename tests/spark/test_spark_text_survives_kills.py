"""The driver dies while tasks read text, and again where Spark's reader has taken over: each row counts once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]

PROGRAM = Path(__file__).with_name("text_program.py")
FILES, ODD = 9, 5


def live(here: Path, fault: str) -> tuple[int, str]:
    environment = {**os.environ, "HOLDFAST_FP": fault, "HOLDFAST_SMALL_STEPS": "jobs"}
    command = [sys.executable, str(PROGRAM), str(here)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr[-3000:]


def test_each_row_counts_once(tmp_path: Path) -> None:
    draw, wanted = random.Random(11), dict[str, tuple[int, int]]()
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = [(f"k{draw.randrange(40)}", draw.randrange(-99, 99)) for _ in range(2_000)]
        for k, v in rows:
            if v % 2 == 0:
                n, total = wanted.get(k, (0, 0))
                wanted[k] = n + 1, total + v
        last = '"' if number == ODD else ""  # quotes: from here on tasks do not read
        lines = ["k,v", *(f"{k},{v}" for k, v in rows[:-1]), f"{last}{rows[-1][0]}{last},{rows[-1][1]}"]
        (tmp_path / "in" / f"{number}.csv").write_text("\n".join(lines) + "\n")
    for fault in ("step.end=kill@3", "step.end=kill@5"):
        code, errors = live(tmp_path, fault)
        assert code == -signal.SIGKILL, errors
        fired(DRIVER_KILLED)
    code, errors = live(tmp_path, "")
    assert code == 0, errors
    found = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "out").glob("*.parquet"))])
    changes = [tuple(row.values()) for row in found.to_pylist()]
    assert len({(k, n) for k, n, _ in changes}) == len(changes), "a change came twice"
    assert {k: (n, total) for k, n, total in sorted(changes, key=lambda row: row[1])} == wanted
