"""The orders example runs on Spark and gives what plain Python gives."""

from __future__ import annotations

import json
import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.demo.generate import Volume, write_input
from holdfast.language.topology import Topology

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "orders"


@pytest.mark.slow
@pytest.mark.spark
def test_the_orders_example_gives_every_customers_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any
) -> None:
    monkeypatch.setenv("SHOP", str(tmp_path))
    write_input(tmp_path / "in", 3, Volume(ticks=2, orders_per_tick=300, clicks_per_tick=1, customers=10))
    topology = runpy.run_path(str(EXAMPLES / "orders.py"))["topology"]
    assert isinstance(topology, Topology)
    topology.run(spark, store=str(tmp_path / "store"), until="available")
    latest: dict[str, dict[str, int]] = {}
    for path in sorted((tmp_path / "out" / "accounts").glob("*.json")):
        for row in map(json.loads, path.read_text().splitlines()):
            if row["orders"] > latest.get(row["customer"], {"orders": 0})["orders"]:
                latest[row["customer"]] = row
    totals: dict[str, int] = defaultdict(int)
    for path in (tmp_path / "in" / "orders").iterdir():
        for order in map(json.loads, path.read_text().splitlines()):
            if order["quantity"] > 0:
                totals[order["customer"].strip().lower()] += order["quantity"] * order["price_cents"]
    assert {name: row["cents"] for name, row in latest.items()} == totals
