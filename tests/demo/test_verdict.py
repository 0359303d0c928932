"""Oracle and comparison: a right output is right, and each kind of damage is found."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.demo.generate import Volume, write_input
from holdfast.demo.oracle import Account, Expected, Payment, expected
from holdfast.demo.topology import ORDERS, Places, append_lines, append_to, build, drop_forged
from holdfast.demo.verdict import compare, compare_accounts, compare_ids, judge, notified, sent_again
from holdfast.language.schema import to_arrow

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def payment(customer: str = "c1", cents: int = 100) -> Payment:
    return Payment(customer, cents, "card", NOON)


def test_a_missing_a_repeated_and_a_changed_payment_are_found() -> None:
    right = {1: payment(), 2: payment(), 3: payment()}
    assert compare(right, right.items()).none
    found = compare(right, [(1, payment()), (1, payment()), (3, payment(cents=99)), (4, payment())])
    assert (found.missing, found.duplicated, found.different) == (1, 1, 2)
    assert "order 3" in found.first


def test_accounts_are_merged_by_key_before_they_are_compared() -> None:
    right = {"c1": Account(3, 2, 50, 10, 30)}
    changes = [("c1", Account(1, 1, 20, 0, 20)), ("c1", right["c1"])]
    assert compare_accounts(right, changes).none
    assert compare_accounts(right, changes[::-1]).none


def test_a_change_that_appears_twice_is_a_duplicate_even_if_the_account_is_right() -> None:
    right = {"c1": Account(3, 2, 50, 10, 30)}
    found = compare_accounts(right, [("c1", right["c1"]), ("c1", right["c1"])])
    assert (found.missing, found.duplicated, found.different) == (0, 1, 0)


def test_an_order_counted_twice_makes_the_account_different() -> None:
    right = {"c1": Account(3, 2, 50, 10, 30), "c2": Account(1, 1, 5, 0, 5)}
    found = compare_accounts(right, [("c1", Account(4, 3, 80, 10, 30))])
    assert (found.missing, found.duplicated, found.different) == (1, 0, 1)


def test_identities_may_be_missing_repeated_or_strange() -> None:
    found = compare_ids(frozenset({1, 2, 3}), [1, 1, 1, 7])
    assert (found.rows, found.missing, found.duplicated, found.different) == (4, 2, 2, 1)


def test_half_a_line_of_a_killed_writer_counts_as_not_sent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    append_lines(log, ['{"order": 1}', '{"order": 2}'])
    with log.open("a") as file:
        file.write('{"order": 3')
    append_lines(log, ['{"order": 3}'])
    assert [order for _, order in notified(log)] == [1, 2, 3]


def test_what_was_sent_again_is_told_per_kill(tmp_path: Path) -> None:
    log = tmp_path / "log"
    marks = []
    for orders in ([1, 2, 3], [2, 3, 4], [4, 5]):
        append_lines(log, [json.dumps({"order": order}) for order in orders])
        marks.append(log.stat().st_size)
    assert sent_again(log, marks[:2]) == [2, 1]
    assert sent_again(tmp_path / "absent", [0]) == [0]


def test_the_notification_log_takes_arrow_tables(tmp_path: Path) -> None:
    table = pa.table({"order": [4], "customer": ["c1"], "cents": [5]})
    append_to(tmp_path / "log")(table, 1)
    assert [order for _, order in notified(tmp_path / "log")] == [4]


def write_right_output(places: Places, right: Expected) -> None:
    for directory in (places.payments, places.accounts, places.clicks):
        directory.mkdir(parents=True)
    rows = [{"order": id, **row._asdict()} for id, row in right.payments.items()]
    pq.write_table(pa.Table.from_pylist(rows), places.payments / "part-0.parquet")
    lines = [json.dumps({"customer": name, **row._asdict()}) for name, row in right.accounts.items()]
    (places.accounts / "part-0.json").write_text("\n".join(lines))
    pq.write_table(pa.table({"id": sorted(right.clicks)}), places.clicks / "part-0.parquet")
    append_lines(places.notifications, [json.dumps({"order": id}) for id in right.notifications])


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "pool", tmp_path / "out")


def test_the_right_output_is_judged_right_and_damage_to_each_file_is_seen(places: Places) -> None:
    write_input(places.input, 1, Volume(ticks=2, orders_per_tick=100, clicks_per_tick=10, customers=5))
    right = expected(places.input)
    write_right_output(places, right)
    verdict = judge(places, right)
    assert verdict.exactly_once
    assert verdict.at_least_once
    assert verdict.best_effort(0)
    for file in (places.payments / "part-0.parquet", places.accounts / "part-0.json", places.notifications):
        file.unlink()
    (places.clicks / "part-0.parquet").unlink()
    verdict = judge(places, right)
    assert not verdict.exactly_once
    assert not verdict.at_least_once
    assert verdict.clicks.missing == 20
    assert not verdict.best_effort(19)
    assert verdict.best_effort(20)


def test_forged_orders_are_dropped_as_the_oracle_drops_them(places: Places) -> None:
    write_input(places.input, 1, Volume(ticks=1, orders_per_tick=500, clicks_per_tick=1, customers=5))
    lines = (places.input / "orders" / "tick-00000.json").read_text().splitlines()
    rows = [{**json.loads(line), "at": None} for line in lines]
    kept = drop_forged(pa.Table.from_pylist(rows, to_arrow(ORDERS, "orders")))
    genuine = kept.filter(pa.compute.greater(kept["quantity"], 0)).num_rows
    assert genuine == sum(account.orders for account in expected(places.input).accounts.values())
    assert kept.num_rows < 500


def test_the_topology_has_three_kinds_of_sink(places: Places) -> None:
    names = [str(op.name) for op in build(places).graph().operators.values()]
    assert {"payments_out", "accounts_out", "notifications", "clicks_out"} <= set(names)
