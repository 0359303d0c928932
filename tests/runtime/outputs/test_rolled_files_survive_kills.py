"""Partitioned and rolled files of a whole job that is killed again and again: the rows of a golden run, each once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired
from killed import killed_and_finished, lived

from holdfast.failpoints import NAMES

PROGRAM = Path(__file__).parents[2] / "sinks" / "output_program.py"
DEATHS = [
    *(name for name in NAMES if name.startswith(("sink.", "roll."))),
    "ckpt.manifest.renamed",
    "ckpt.epoch.published",
]


def shown(here: Path, name: str) -> list[dict[str, Any]]:
    """All visible rows, with the values of their directories as text."""
    found = []
    for path in (here / name).rglob("part-*"):
        folders = path.relative_to(here / name).parts[:-1]
        if folders[:1] == (".holdfast",):
            continue
        by = dict(folder.split("=", 1) for folder in folders)
        if path.suffix == ".json":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
        else:
            rows = pq.ParquetFile(path).read().to_pylist()
        found += [{**row, **by} for row in rows]
    return found


def check(here: Path, golden: Path) -> None:
    for name in ("rows", "all"):
        assert counted(shown(here, name)) == counted(shown(golden, name))
    sums, wanted = shown(here, "sums"), shown(golden, "sums")
    assert newest(sums) == newest(wanted)
    assert max(Counter((row["k"], row["day"], row["n"]) for row in sums).values()) == 1, "a change came twice"
    left = [path for path in here.glob("*/.holdfast/**/*") if path.is_file()]
    assert {path.name for path in left} == {"ledger.json", "output.json"}


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in rows)


def newest(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    """The last sums per key: counts only grow."""
    ordered = sorted(rows, key=lambda row: row["n"])
    return {(row["k"], row["day"]): (row["n"], row["total"]) for row in ordered}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("golden")
    assert lived(PROGRAM, here, "", "local") == 0
    rows = shown(here, "all")
    assert sorted(row["n"] for row in rows) == list(range(800))
    assert sum(n for n, _ in newest(shown(here, "sums")).values()) == 800
    assert sorted(row["n"] for row in shown(here, "rows")) == list(range(800))
    return here


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("name", DEATHS)
def test_a_job_killed_twice_shows_what_an_undisturbed_one_shows(
    tmp_path: Path, golden: Path, name: str
) -> None:
    hit = 2 if name.startswith("ckpt.") else 4
    first = "sink.commit.begin=kill@4" if name.startswith(("roll.", "reset.")) else f"{name}=kill@{hit}"
    second = f"{name}=kill@2" if name.startswith("sink.") else f"{name}=kill"
    if name == "roll.close.shown":
        second = "roll.close.shown=kill@2"  # one sink has shown all, the next one amid it
    killed_and_finished(PROGRAM, tmp_path, [first, second], "local")
    check(tmp_path, golden)


def test_it_ends_well_if_a_run_follows_that_has_nothing_to_do(tmp_path: Path, golden: Path) -> None:
    killed_and_finished(PROGRAM, tmp_path, ["roll.close.noted=kill@3", "reset.sink.rollback=kill@2"], "local")
    assert lived(PROGRAM, tmp_path, "", "local") == 0
    check(tmp_path, golden)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_the_same_on_spark_where_tasks_write_by_themselves(tmp_path: Path, golden: Path) -> None:
    def live(death: str) -> int:
        given = [sys.executable, str(PROGRAM), "spark", str(tmp_path)]
        environment = {**os.environ, "HOLDFAST_FP": death}
        done = subprocess.run(
            given, env=environment, capture_output=True, text=True, timeout=150, check=False
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
        fired(DRIVER_KILLED, int(done.returncode != 0))
        return done.returncode

    for death in ("sink.prepared=kill@4", "sink.commit.applied=kill@4", "roll.close.noted=kill"):
        assert live(death) == -signal.SIGKILL, f"{death} did not fire"
    assert live("") == 0
    check(tmp_path, golden)
