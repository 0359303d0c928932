"""A task that fails once and is tried again never changes a result, not even one that had done all its work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(180)
@pytest.mark.fault("X10")
def test_a_task_that_is_tried_again_counts_once(tmp_path: Path) -> None:
    program = Path(__file__).with_name("retry_program.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "map-failed").exists()
    assert (tmp_path / "counts-failed").exists()
    assert (tmp_path / "direct_counts-failed").exists()
    regions = json.loads(done.stdout.splitlines()[-1])
    assert [region["resets"] for region in regions.values()] == [0, 0], "Spark healed them by itself"
    lines = [line for path in (tmp_path / "out").glob("part-*.json") for line in path.open()]
    check_changelog([json.loads(line) for line in lines])
    tables = [pq.read_table(path) for path in (tmp_path / "direct").glob("part-*.parquet")]
    check_changelog([row for table in tables for row in table.to_pylist()])


def check_changelog(rows: list[dict[str, int]]) -> None:
    """Every count of every key was told at most once, and the last one is right."""
    told: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        told[row["k"]].append((row["n"], row["s"]))
    for k in range(9):
        ids = [n for n in range(200) if n % 9 == k]
        assert len(set(told[k])) == len(told[k])
        assert set(told[k]) <= {(n, sum(ids[:n])) for n in range(1, len(ids) + 1)}
        assert max(told[k]) == (len(ids), sum(ids))
