"""A row that comes a month later than the one before it: every timer is due at once. Results are right, memory is bounded, and a step that
takes longer than an epoch may is not done again for ever."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import fired

import holdfast as hf
from holdfast.testing import run_local

PROGRAM = Path(__file__).with_name("storm_program.py")
BEGIN_US, MONTH_US = 1_790_000_000_000_000, 30 * 86_400 * 1_000_000
LIMIT_MB = 448
PER_FILE = 50_000


def feed(here: Path, number: int, keys: Any, at_us: int) -> None:
    (here / "in").mkdir(exist_ok=True)
    at = pa.array(np.full(len(keys), at_us)).cast(pa.timestamp("us"))
    pq.write_table(
        pa.table({"k": pa.array(keys, pa.int64()), "at": at}), here / "in" / f"{number:05}.parquet"
    )


def run(here: Path) -> int:
    """How many megabytes it took."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(here), str(LIMIT_MB)],
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
        capture_output=True, text=True, timeout=1500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return int(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def told(here: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in (here / "out").glob("part-*.parquet")])


def storm(here: Path, keys: int) -> int:
    for number in range(keys // PER_FILE):
        feed(here, number, np.arange(number * PER_FILE, (number + 1) * PER_FILE), BEGIN_US)
    run(here)
    assert not list((here / "out").glob("part-*.parquet")), "a timer came too early"
    feed(here, 10_000, np.array([0]), BEGIN_US + MONTH_US)
    peak = run(here)
    fired("all timers due at once", keys)
    found = told(here)
    assert found["n"].unique().to_pylist() == [1]
    assert np.array_equal(np.sort(found["k"].to_numpy()), np.arange(keys))
    return peak


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.fault("T04", "O11")
def test_two_million_timers_at_once_take_bounded_memory(tmp_path: Path) -> None:
    print(f"at most {storm(tmp_path, 2_000_000)} MB taken of {LIMIT_MB}")


@pytest.mark.fault("T04")
def test_all_timers_at_once_after_a_long_stop(tmp_path: Path) -> None:
    storm(tmp_path, PER_FILE)


# --- a step that takes longer than an epoch may -----------------------------------------------------------------------


class Slow(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> None:
        self.set_timer(row.at + dt.timedelta(hours=1))

    def on_timer(self, at: dt.datetime, key: Any) -> Any:
        time.sleep(0.02)
        yield {"k": key}


@pytest.mark.parametrize("mode", ["async", "token", "drain"])
@pytest.mark.fault("T04", "R01")
def test_a_step_that_takes_longer_than_an_epoch_may_comes_to_its_end(
    mode: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """30 timers take 0.6 s at least, and an epoch has 0.3 s."""
    shelf = request.node.name
    hf.MemorySink.clear(shelf)
    begin = dt.datetime(2026, 1, 1)
    rows = [(k, begin) for k in range(30)] + [(0, begin + dt.timedelta(days=30))]
    topology = hf.Topology("storm")
    source = hf.Rows(rows, "k long, at timestamp_ntz", rows_per_step=30)
    given = topology.source(source, name="in").consistent("r", mode=mode, period=0.05, drain_timeout=0.3)
    made = given.keyed("k", Slow, "k long", name="slow", on="at", delay=0)
    made.sink(hf.MemorySink(shelf), name="out")
    status = run_local(topology, f"file:{tmp_path}/store").as_dict()
    found = [row["k"] for row in hf.MemorySink.rows(shelf)]
    hf.MemorySink.clear(shelf)
    assert status["regions"]["r"]["resets"] >= 1, "no epoch took too long"
    assert sorted(found) == list(range(30))
