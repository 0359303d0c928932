"""A source without rows on Spark: windows and a join go on without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.testing import compare_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SECOND = 1_000_000


@pytest.mark.sampled
@pytest.mark.parametrize("shuffled", [False, True], ids=["short way", "shuffle"])
def test_nobody_waits_for_a_source_without_rows(on_spark: Any, tmp_path: Path, shuffled: bool) -> None:
    for name in ("rows", "none"):
        (tmp_path / name).mkdir()
    times = pa.array([n * SECOND for n in range(600)], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    table = pa.table({"k": [f"k{n % 7}" for n in range(600)], "at": times, "v": list(range(600))})
    pq.write_table(table, tmp_path / "rows" / "part-0.parquet")

    def build(topology: Topology) -> list[Stream]:
        files = [
            hf.Files(str(tmp_path / name), "parquet", "k string, at timestamp, v long", max_rows_per_step=150)
            for name in ("rows", "none")
        ]
        rows, none = (
            topology.source(source, name=name).consistent(period=0.3)
            for source, name in zip(files, ("rows", "none"), strict=True)
        )
        if shuffled:
            rows, none = rows.filter("v >= 0"), none.filter("v >= 0")
        window = hf.tumbling(60, on="at", idle=0.01, delay=0)
        both = rows.union(none).aggregate([], window=window, n=hf.count(), total=hf.sum("v"), name="w")
        return [both, rows.asof_join(none, by="k", on="at", idle=0.01, name="j", delay=0)]

    windows, joined = on_spark.several(build)
    found = [{name: row[name] for name in ("n", "total")} for row in windows.to_pylist()]
    compare_rows([{"n": 60, "total": sum(range(60 * w, 60 * w + 60))} for w in range(9)], found)
    assert joined.num_rows == 599
    assert set(joined.column("v_right").to_pylist()) == {None}
