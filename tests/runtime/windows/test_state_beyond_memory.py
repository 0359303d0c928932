"""State four times as large as the memory its process may take: steps, checkpoints, merges and restores go on.

Part of `make chaos`: it writes some gigabytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from wide_keys import feed, random_keys

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1200)]

PROGRAM = Path(__file__).with_name("memory_program.py")
LIMIT_MB = 288
KEY_BYTES, ROWS, FILES = 600, 8_000, 260
"""260 files of 8,000 keys of 600 bytes: a state of about a gigabyte."""


def keys_of(number: int) -> pa.Array:
    return random_keys(number, ROWS, KEY_BYTES)


def run(here: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(here), str(LIMIT_MB)],
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
        capture_output=True, text=True, timeout=1000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.fault("I12", "O11")
def test_a_state_four_times_as_large_as_the_memory_limit(tmp_path: Path) -> None:
    for number in range(FILES):
        feed(tmp_path, number, keys_of(number))
    told = run(tmp_path)
    state = FILES * ROWS * KEY_BYTES  # at least: every key is there
    assert state >= 4 * (LIMIT_MB << 20), f"{state >> 20} MB is not four times the limit"
    print(f"{state >> 20} MB of keys, at most {told['peak_mb']} MB taken of {LIMIT_MB}")

    # A restore, and old keys from everywhere: some of each file.
    some = pa.concat_arrays([keys_of(number).slice(17, 20) for number in range(FILES)])
    feed(tmp_path, FILES, some)
    told = run(tmp_path)
    print(f"restored, at most {told['peak_mb']} MB taken")
    newest = max((tmp_path / "out").glob("part-*.parquet"), key=lambda path: path.name)
    table = pq.read_table(newest)
    again = table.filter(pc.equal(table.column("n"), 2))
    assert again.num_rows == len(some)
    assert sorted(again.column("total").to_pylist()) == sorted(
        n + FILES for n in range(FILES) for _ in range(20)
    )
