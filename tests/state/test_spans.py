"""Merged ranges against a loop over ranges."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.windows.row_windows import merged_ranges

AGGREGATION = Aggregation.plan(
    ("k",), (("n", "count", None), ("low", "min", "v")), pa.schema([("k", pa.string()), ("v", pa.int64())])
)


@given(data=st.data())
def test_every_range_holds_its_rows_and_no_others(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    sizes = np.array(lengths, dtype=np.int64)
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    counts = np.arange(1, len(first) + 1)
    lowest = np.array(data.draw(st.permutations(range(len(first)))))
    highs = data.draw(st.lists(st.integers(0, len(first) - 1), max_size=30))
    lows = [data.draw(st.integers(int(first[high]), high)) for high in highs]
    low, high = np.array(lows, dtype=np.int64), np.array(highs, dtype=np.int64)
    parts = [pa.array(counts), pa.array(lowest)]
    got = merged_ranges(AGGREGATION, parts, first, low, high)
    assert got[0].to_pylist() == [int(counts[a : b + 1].sum()) for a, b in zip(lows, highs, strict=True)]
    assert got[1].to_pylist() == [int(lowest[a : b + 1].min()) for a, b in zip(lows, highs, strict=True)]
