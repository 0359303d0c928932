"""A type checker accepts a program that is right, and finds what is wrong in one that is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RIGHT = """
import holdfast as hf

shop = hf.Topology("shop")
orders = shop.source(hf.Files("orders", format="json", schema="id long, at timestamp"), name="orders")
orders = orders.consistent(period="2 seconds", mode="async").event_time("at", delay="5 seconds")
paid = orders.join(orders, by="id", within="1 hour", how="left", name="paid")
counted = orders.group_by("id").agg(n=hf.count(), emit="each", name="counted")
late = orders.aggregate("id", window=hf.tumbling("1 hour"), late=True, n=hf.count(), name="hours").late
both: hf.Stream = counted.where("n > 1").rename(n="times").drop("id")
run: hf.Run = shop.submit(store="store", until="available", take_over=True)
epoch: int = run.status().regions["shop"].epoch
state: str = run.status().state
rate: float = run.progress.rows_per_s["orders"]
status: hf.RunStatus = shop.run(store="store")
plain = status["regions"]["shop"]["epoch"]
run.trigger_epoch()
run.stop()
ended: bool = run.await_termination(timeout=5)
"""

WRONG = {
    'how="left"': 'how="outr"',
    'mode="async"': 'mode="asink"',
    'emit="each"': 'emit="always"',
    'until="available"': 'until="now"',
    "take_over=True": "takeover=True",
    "counted.where(": "counted.groupBy(",
    "regions[": "region[",
    "hf.tumbling(": "hf.window(",
    "run.progress.rows_per_s": "run.progres.rows_per_s",
}


def checked(path: Path, program: str) -> str:
    path.write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    found = subprocess.run(
        [*command, "--cache-dir", str(ROOT / ".mypy_cache"), str(path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "MYPYPATH": str(ROOT)}, preexec_fn=lambda: os.nice(19) and None,
    )  # fmt: skip
    return found.stdout + found.stderr


@pytest.mark.slow
def test_a_right_program_passes_and_every_mistake_of_a_wrong_one_is_found(tmp_path: Path) -> None:
    assert "Success" in (told := checked(tmp_path / "right.py", RIGHT)), told
    wrong = RIGHT
    for good, bad in WRONG.items():
        assert RIGHT.count(good) == 1, good
        wrong = wrong.replace(good, bad)
    told = checked(tmp_path / "wrong.py", wrong)
    found = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", told)}
    for bad in WRONG.values():
        (line,) = (number for number, text in enumerate(wrong.splitlines(), 1) if bad in text)
        assert line in found, f"mypy does not find {bad}:\n{told}"
