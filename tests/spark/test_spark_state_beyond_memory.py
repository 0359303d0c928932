"""State on Spark whose share of each Python worker is four times as large as the memory the worker may take: steps,
checkpoints, merges and restores go on, on executors as in one process, and every row is right.

The limit is the kernel's (RLIMIT_DATA, see limited_daemon.py): more is refused, which would fail tasks and reset the region.
Mapped files do not count. Part of `make chaos`: it writes some gigabytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from limited_daemon import memory
from wide_keys import feed, random_keys

from holdfast.checkpoint import manifest
from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).with_name("spark_memory_program.py")
LIMIT_MB, DRIVER_MB = 160, 320
"""Per worker, which has half of the state; of the driver, which uploads and loads all of it where there are no executors."""
KEY_BYTES, ROWS, FILES = 32, 80_000, 250
"""20 million keys, about 60 bytes of state each. What is merged or joined at a time does not grow with the
state, so that the memory a worker needs hardly depends on how many keys there are."""
AGAIN = 20
"""Keys of each file that come a second time, after a restore."""

Rows = npt.NDArray[np.uint64]
"""One row per key: a hash of it, how often it came, the sum of its values."""


def keys_of(number: int) -> pa.Array:
    return random_keys(number, ROWS, KEY_BYTES)


# --- the run --------------------------------------------------------------------------------------------------------


def run(here: Path, master: str, tell: Callable[..., None]) -> None:
    """One life of the program, which must end well and never have been refused memory."""
    tag = processes.new_tag("memory")
    child = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(here), master, str(DRIVER_MB)],
        env={
            **os.environ,
            processes.TAG: tag,
            "LIMIT_MB": str(LIMIT_MB),
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_THRESHOLD_": str(1 << 20),  # what is freed goes back and counts no more
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    peaks: dict[int, int] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(tag, peaks, ended))
    watcher.start()
    try:
        out, errors = child.communicate(timeout=800)
        assert child.returncode == 0, errors[-3000:]
    finally:
        ended.set()
        watcher.join()
        processes.kill_all(tag)
    told: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert told["refused"] == [True, True, True], "a worker or the driver may allocate more than its limit"
    assert told["resets"] == 0
    largest = max(peaks.values()) >> 20
    tell(
        "memory on Spark",
        f"{master}: workers had at most {largest} MB, modules among it; limit +{LIMIT_MB} MB",
    )


def watch(tag: str, peaks: dict[int, int], ended: threading.Event) -> None:
    """The most memory that each worker had, and was not of files."""
    while not ended.wait(0.1):
        for process in processes.members(tag):
            if "-m limited_daemon" in process.command:
                peaks[process.pid] = max(peaks.get(process.pid, 0), memory("RssAnon", process.pid))


def state_bytes(here: Path) -> list[int]:
    """What the newest epoch has of each partition."""
    store, region = open_store(f"file:{here}/store"), RegionName("region")
    newest = manifest.decode(store.manifest(region, store.epochs(region)[-1]), "the newest epoch")
    return [sum(ref.size for ref in refs) for refs in newest.operators()["sums"].segments]


# --- what comes out -------------------------------------------------------------------------------------------------

FACTORS = np.random.default_rng(99).integers(1, 1 << 63, KEY_BYTES // 8, dtype=np.uint64) | np.uint64(1)


def hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """One number per key; all have the same length."""
    assert pc.all(pc.equal(pc.binary_length(keys), KEY_BYTES)).as_py()
    begin = keys.offset * KEY_BYTES
    letters = np.frombuffer(keys.buffers()[2], np.uint8)[begin : begin + len(keys) * KEY_BYTES]
    words = letters.view(np.uint64).reshape(-1, KEY_BYTES // 8)
    return np.asarray((words * FACTORS).sum(axis=1, dtype=np.uint64))


def rows_of(keys: pa.Array, n: Any, total: Any) -> Rows:
    found = np.empty((len(keys), 3), np.uint64)
    found[:, 0], found[:, 1], found[:, 2] = hashes(keys), n, total
    return found


def in_order(parts: Iterable[Rows]) -> Rows:
    rows = np.concatenate(list(parts))
    return rows[np.lexsort(rows.T)]


def check(here: Path, wanted: Iterable[Rows]) -> None:
    """The output has exactly these rows."""
    found = []
    for path in (here / "out").glob("part-*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches(columns=["k", "n", "total"]):
            found.append(rows_of(*(batch.column(name) for name in ("k", "n", "total"))))
    np.testing.assert_array_equal(in_order(found), in_order(wanted))


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
@pytest.mark.fault("P08", "I12", "O11")
def test_each_workers_share_of_the_state_is_four_times_as_large_as_its_memory_limit(
    master: str, tmp_path: Path, tell: Callable[..., None]
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        feed(tmp_path, number, keys_of(number))
    run(tmp_path, master, tell)
    wanted = [rows_of(keys_of(number), 1, number) for number in range(FILES)]
    check(tmp_path, wanted)
    smallest = min(state_bytes(tmp_path))
    assert len(state_bytes(tmp_path)) == 2
    assert smallest >= 4 * (LIMIT_MB << 20), f"{smallest >> 20} MB are not four times the limit"
    tell("memory on Spark", f"{master}: {[size >> 20 for size in state_bytes(tmp_path)]} MB of state")

    # A restore, and old keys from everywhere: some of each file.
    some = [keys_of(number).slice(17, AGAIN) for number in range(FILES)]
    feed(tmp_path, FILES, pa.concat_arrays(some))
    run(tmp_path, master, tell)
    again = [rows_of(keys, 2, number + FILES) for number, keys in enumerate(some)]
    check(tmp_path, [*wanted, *again])
