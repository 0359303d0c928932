"""The demonstration's input: the same seed gives the same bytes, and it is as untidy as promised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.demo.generate import KINDS, Volume, signature, tick_file, tick_rows, write_input

SMALL = Volume(ticks=3, orders_per_tick=400, clicks_per_tick=50, customers=20)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_input(tmp_path / name, seed, SMALL)
    for kind in KINDS:
        first, again, other = (tick_file(tmp_path / name, kind, 2).read_bytes() for name in "abc")
        assert first == again
        assert first != other


def test_counts_are_those_of_the_files(tmp_path: Path) -> None:
    rows = write_input(tmp_path, 5, SMALL)
    for kind in KINDS:
        lines = [line for path in (tmp_path / kind).iterdir() for line in path.read_text().splitlines()]
        assert rows[kind] == len(lines)
        assert all(json.loads(line) for line in lines)


def test_order_numbers_are_unique_over_all_ticks() -> None:
    ids = [row["id"] for tick in range(3) for row in tick_rows(5, tick, SMALL)["orders"]]
    assert len(set(ids)) == len(ids) == 1200


@pytest.mark.parametrize("seed", range(3))
def test_an_order_has_at_most_one_accepted_payment(seed: int) -> None:
    accepted = [r["order"] for r in tick_rows(seed, 0, SMALL)["payments"] if r["status"] == "accepted"]
    assert len(set(accepted)) == len(accepted) > 300


def test_some_rows_need_cleaning() -> None:
    made = tick_rows(1, 0, Volume(orders_per_tick=2000))
    columns = ("id", "customer", "item", "quantity", "price_cents")
    assert any(row["signature"] != signature(*(row[c] for c in columns)) for row in made["orders"])
    assert any(row["quantity"] == 0 for row in made["orders"])
    assert any(row["customer"] != row["customer"].strip().lower() for row in made["orders"])
    assert {row["status"] for row in made["payments"]} == {"accepted", "declined", "pending"}
