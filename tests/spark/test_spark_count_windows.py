"""Count windows on Spark, with and without a shuffle, against a loop over the rows of all files in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

SIZE, EVERY = 12, 4


@pytest.fixture
def files(parts: Callable[..., Path]) -> Path:
    random = np.random.default_rng(5)
    keys = ([f"k{n}" if n else None for n in random.integers(0, 9, 700)] for _ in range(3))
    return parts(pa.table({"k": pa.array(of), "v": random.integers(0, 100, 700)}) for of in keys)


def by_hand(files: Path) -> list[dict[str, Any]]:
    seen: dict[str | None, list[int]] = defaultdict(list)
    found = []
    for file in sorted(files.iterdir()):
        for row in pq.read_table(file).to_pylist():
            if row["v"] == 7:
                continue
            of_key = seen[row["k"]]
            of_key.append(row["v"])
            if len(of_key) % EVERY == 0:
                inside = of_key[-SIZE:]
                found.append(
                    {"k": row["k"], "window_rows": len(of_key), "n": len(inside), "total": sum(inside)}
                )
    return found


@pytest.mark.sampled
@pytest.mark.usefixtures("shuffled")
def test_windows_hold_the_last_rows_of_their_keys(on_spark: Any, files: Path) -> None:
    def build(topology: Topology) -> Stream:
        source = hf.Files(str(files), "parquet", "k string, v long", max_rows_per_step=410)
        rows = topology.source(source, name="in").consistent(period=0.3).filter("v <> 7")
        window = hf.sliding(rows=SIZE, every=EVERY)
        return rows.aggregate("k", window=window, n=hf.count(), total=hf.sum("v"), name="w")

    compare_rows(by_hand(files), on_spark(build).to_pylist())
