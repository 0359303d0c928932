"""How rows of two runs find each other, what is counted, and what is advised. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from holdfast.chaos.impact.advice import Effects, advise
from holdfast.chaos.impact.deviation import AT, Pairing, compared, pairing_of


def table(rows: list[tuple[Any, ...]], *names: str) -> pa.Table:
    """Rows with their moment as the last value."""
    return pa.Table.from_pylist([dict(zip((*names, AT), row, strict=True)) for row in rows])


GOLDEN = table([(n, 10.0 * n, "x", float(n)) for n in range(10)], "id", "v", "t")
BY_ID = Pairing(("id",))


def changed(at: int, **values: Any) -> pa.Table:
    rows = GOLDEN.to_pylist()
    rows[at] |= values
    return pa.Table.from_pylist(rows)


def test_equal_tables_deviate_in_nothing() -> None:
    found = compared(GOLDEN, GOLDEN, BY_ID, 5.0)
    assert (found.rows, found.missing, found.extra, found.wrong, found.effect) == (5, 0, 0, 0, 0.0)
    assert (found.agrees_after_rows, found.agrees_after_s) == (0, 0.0)


def test_missing_extra_and_wrong_rows_are_told_apart() -> None:
    rows = [row for row in GOLDEN.to_pylist() if row["id"] != 5]
    rows[5] |= {"v": 66.0}  # of id 6
    found = compared(GOLDEN, pa.Table.from_pylist([*rows, {**rows[0], "id": 77, AT: 6.0}]), BY_ID, 5.0)
    assert (found.missing, found.extra, found.wrong) == (1, 1, 1)
    assert (found.agrees_after_rows, found.agrees_after_s) == (2, 1.0)


def test_a_row_that_came_twice_is_extra() -> None:
    found = compared(GOLDEN, pa.concat_tables([GOLDEN, GOLDEN.slice(6, 1)]), BY_ID, 5.0)
    assert (found.missing, found.extra, found.wrong) == (0, 1, 0)


def test_deviation_is_relative_and_begins_at_the_kill() -> None:
    found = compared(GOLDEN, changed(7, v=80.0), BY_ID, 7.0)
    golden = (70.0**2 + 80.0**2 + 90.0**2) ** 0.5
    assert found.columns == {"v": pytest.approx(10.0 / golden)}


def test_a_column_of_zeros_deviates_by_what_it_is_off() -> None:
    zeros = table([(n, 0.0, float(n)) for n in range(4)], "id", "v")
    off = table([(n, 3.0, float(n)) for n in range(4)], "id", "v")
    assert compared(zeros, off, BY_ID, 0.0).columns == {"v": 3.0}


def test_a_text_that_differs_is_wrong_and_counts_by_rows() -> None:
    found = compared(GOLDEN, changed(6, t="y"), BY_ID, 5.0)
    assert (found.wrong, found.differs, found.effect) == (1, 1, pytest.approx(0.2))


def test_what_is_still_wrong_at_the_end_never_agrees_again() -> None:
    found = compared(GOLDEN, changed(9, v=1.0), BY_ID, 5.0)
    assert (found.agrees_after_rows, found.agrees_after_s) == (None, None)


def test_a_number_within_the_tolerance_agrees_again_though_it_is_wrong() -> None:
    found = compared(GOLDEN, changed(9, v=90.5), BY_ID, 5.0, tolerance=0.01)
    assert (found.wrong, found.agrees_after_rows) == (1, 0)


def test_nothing_at_all_was_written() -> None:
    found = compared(GOLDEN, None, BY_ID, 0.0)
    assert (found.missing, found.effect, found.agrees_after_rows) == (10, 1.0, None)


def test_nulls_and_nans_equal_themselves() -> None:
    odd = table([(1, None, 0.0), (2, float("nan"), 1.0), (3, 1.0, 2.0)], "id", "v")
    assert compared(odd, odd, BY_ID, 0.0).wrong == 0
    filled = table([(1, 0.0, 0.0), (2, 0.0, 1.0), (3, 1.0, 2.0)], "id", "v")
    assert compared(odd, filled, BY_ID, 0.0).wrong == 2


# --- pairing ----------------------------------------------------------------------------------------------------------


def test_the_first_column_that_tells_rows_apart_pairs_them() -> None:
    assert pairing_of(GOLDEN, (), (), exact=False) == BY_ID


def test_a_changelog_is_paired_by_key_and_moment() -> None:
    log = table([("a", 1, 0.0), ("b", 1, 0.0), ("a", 2, 1.0)], "k", "n")
    pairing = pairing_of(log, (), [("k",)], exact=False)
    assert pairing == Pairing(("k",), by_moment=True)
    # A step is lost: later counts are off by one, and nothing but the lost row is missing.
    found = compared(log, table([("b", 1, 0.0), ("a", 1, 1.0)], "k", "n"), pairing, 0.0)
    assert (found.missing, found.extra, found.wrong) == (1, 0, 1)


def test_where_rows_may_come_again_a_changelog_is_paired_by_their_number() -> None:
    log = table([("a", 1, 0.0), ("a", 2, 1.0)], "k", "n")
    later = table([("a", 1, 0.0), ("a", 2, 7.0)], "k", "n")
    pairing = pairing_of(log, (), [("k",)], exact=True)
    assert compared(log, later, pairing, 0.0).effect == 0.0


def test_what_the_user_names_counts() -> None:
    assert pairing_of(GOLDEN, ("t",), [("id",)], exact=False) == Pairing(("t",), by_moment=True)


# --- advice -----------------------------------------------------------------------------------------------------------


def test_operators_are_ranked_by_what_a_checkpoint_saves_per_byte() -> None:
    found = advise(
        [
            Effects("large", 1_000_000, 0.9, 0.9, 0.1),
            Effects("small", 1_000, 0.5, 0.5, 0.1),
            Effects("useless", 1_000, 0.05, 0.05, 0.05),
            Effects("hopeless", 1_000, 0.5, 0.5, 0.5),
            Effects("kept", 2_000, 0.1, 0.9, 0.1, is_kept=True),
            Effects("idle", 2_000, 0.1, 0.1, 0.1, is_kept=True),
            Effects("filter", 0, 0.02),
            Effects("paid", 500, 0.0, in_region=True),
        ]
    )
    assert [(each.operator, each.verdict) for each in found[:3]] == [
        ("kept", "keep"), ("small", "checkpoint"), ("large", "checkpoint")
    ]  # fmt: skip
    assert {each.operator: each.verdict for each in found[3:]} == {
        "useless": "leave", "hopeless": "no help", "idle": "not needed", "filter": "no state", "paid": "region"
    }  # fmt: skip
