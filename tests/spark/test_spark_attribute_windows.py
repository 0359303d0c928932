"""Windows by an attribute and by marks on Spark, with and without a shuffle, against a loop over the rows; and an
aggregate that the user wrote, over them."""

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

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DELTA, EVERY = 30, 4


@pytest.fixture
def files(parts: Callable[..., Path]) -> Path:
    random = np.random.default_rng(5)
    tables = []
    far = np.cumsum(random.integers(0, 5, 1000))
    for number in range(2):
        part = slice(500 * number, 500 * number + 500)
        keys = pa.array([f"k{n}" if n else None for n in random.integers(0, 6, 500)])
        ends, values = random.random(500) < 0.1, random.integers(0, 100, 500)
        tables.append(pa.table({"k": keys, "a": far[part], "end": ends, "v": values}))
    return parts(tables)


def by_hand(files: Path) -> list[list[dict[str, Any]]]:
    """What comes out of tumbling, sliding and marked windows."""
    found: list[list[dict[str, Any]]] = [[], [], []]
    open_: list[dict[Any, list[Any]]] = [defaultdict(list) for _ in range(3)]
    count: dict[Any, int] = defaultdict(int)

    def emit(shape: int, key: Any) -> None:
        values = [value for _, value in open_[shape][key]]
        result = {"n": len(values), "total": sum(values), "turns": values[-1] - values[0]}
        found[shape].append({"k": key, "window_rows": count[key], **result})

    for file in sorted(files.iterdir()):
        for row in pq.read_table(file).to_pylist():
            key, far = row["k"], row["a"]
            if open_[0][key] and far > open_[0][key][0][0] + DELTA:
                emit(0, key)
                open_[0][key].clear()
            count[key] += 1
            for windows in open_:
                windows[key].append((far, row["v"]))
            open_[1][key] = [(a, v) for a, v in open_[1][key] if a >= far - DELTA]
            if count[key] % EVERY == 0:
                emit(1, key)
            if row["end"]:
                emit(2, key)
                open_[2][key].clear()
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("shuffled", [False, True], ids=["short way", "shuffle"])
def test_windows_end_by_what_is_in_the_rows(on_spark: Any, files: Path, shuffled: bool) -> None:
    def build(topology: Topology) -> list[Stream]:
        source = hf.Files(
            str(files), "parquet", "k string, a long, end boolean, v long", max_rows_per_step=240
        )
        rows = topology.source(source, name="in").consistent(period=0.3)
        if shuffled:
            rows = rows.filter("v >= 0")
        windows = [
            hf.tumbling(delta=DELTA, of="a"),
            hf.sliding(delta=DELTA, of="a", every=EVERY),
            hf.tumbling(until="end"),
        ]
        own = hf.udaf(lambda v: v[-1].as_py() - v[0].as_py(), "v", type="long")
        return [
            rows.aggregate("k", window=window, n=hf.count(), total=hf.sum("v"), turns=own, name=f"w{number}")
            for number, window in enumerate(windows)
        ]

    for wanted, table in zip(by_hand(files), on_spark.several(build), strict=True):
        compare_rows(wanted, table.to_pylist())
