"""Rows that come in several tables come to the same sums as all of them at once, for every partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from holdfast.operators.aggregates import running
from holdfast.operators.aggregates.running import SummedAggregate
from holdfast.state.aggregates.aggregation import Aggregation, combine


@pytest.mark.parametrize("keys", [20, 2_000_000], ids=["keys repeat", "keys hardly repeat"])
@pytest.mark.parametrize("together", [1, 90_000, 1 << 22])
def test_pieces_come_to_the_same(keys: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TOGETHER_ROWS", together)
    random = np.random.default_rng(7)
    rows = pa.table({"k": random.integers(0, keys, 200_000), "v": random.integers(-5, 5, 200_000)})
    plan = Aggregation.plan(["k"], [("n", "count", None), ("total", "sum", "v")], rows.schema)
    logic = SummedAggregate(plan, plan.output_schema, False)
    pieces = [rows.slice(at, 40_000) for at in range(0, 200_000, 40_000)]
    for partition in range(2):
        whole = logic.own({0: rows}, partition, 2)
        found = logic.own_of({0: iter(pieces)}, partition, 2)
        assert combine(plan, found).equals(combine(plan, whole))
    assert logic.own_of({0: iter([rows.slice(0, 0)])}, 0, 2) is None
