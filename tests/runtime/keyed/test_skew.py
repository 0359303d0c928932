"""Nearly all rows of one key: results are those of a loop over the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast import failpoints
from holdfast.testing import MemorySink, Rows, run_local

ROWS = 3000


@pytest.mark.fault("I11", "O03")
def test_nearly_all_rows_of_one_key(tmp_path: Path) -> None:
    keys = ["hot" if n % 100 else f"k{n}" for n in range(ROWS)]
    made = hf.Topology("skew")
    rows = made.source(
        Rows(list(zip(keys, range(ROWS), strict=True)), "k string, n long", rows_per_step=100), name="rows"
    )
    rows = rows.consistent("r", period=0.02)
    rows.aggregate("k", n=hf.count(), s=hf.sum("n"), name="sums").sink(MemorySink("skew"), name="out")
    failpoints.arm("step.end=raise@12")
    try:
        run_local(made, f"file:{tmp_path}/store", partitions=4)
        assert failpoints.fired()["step.end"] == 1
    finally:
        failpoints.disarm()
    found: dict[str, tuple[int, int]] = {}
    for row in MemorySink.rows("skew"):
        found[row["k"]] = max(found.get(row["k"], (0, 0)), (row["n"], row["s"]))
    expected = {key: (keys.count(key), sum(n for n, k in enumerate(keys) if k == key)) for key in set(keys)}
    MemorySink.clear("skew")
    assert found == expected
