"""The comparisons that `holdfast.testing` offers: what they accept, and how they say what differs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast import testing


def test_rows_may_come_in_any_order_and_form() -> None:
    testing.compare_rows([{"a": 1, "b": [2]}, {"a": 2, "b": None}], [{"b": None, "a": 2}, {"b": [2], "a": 1}])
    testing.compare_rows(pa.table({"a": [1, 2]}), [{"a": 2}, {"a": 1}])


def test_a_missing_row_is_shown() -> None:
    with pytest.raises(testing.GoldenMismatch, match=r"1 missing, first \(2,\)"):
        testing.compare_rows([(1,), (2,)], [(1,)])


def test_a_row_too_many_is_shown_with_how_often_it_came() -> None:
    with pytest.raises(testing.GoldenMismatch, match=r"1 too many, first \(1,\) \(2 times instead of 1\)"):
        testing.compare_rows([(1,)], [(1,), (1,)])


def test_a_sequence_tells_the_first_row_that_differs() -> None:
    testing.compare_sequence([(1,), (2,)], [(1,), (2,)])
    with pytest.raises(testing.GoldenMismatch, match=r"row 1 is \(3,\) instead of \(2,\)"):
        testing.compare_sequence([(1,), (2,)], [(1,), (3,)])
    with pytest.raises(testing.GoldenMismatch, match="1 rows missing from row 1 on"):
        testing.compare_sequence([(1,), (2,)], [(1,)])


def test_changelogs_are_merged_by_key_before_they_are_compared() -> None:
    golden = [{"k": "a", "n": 3}, {"k": "b", "n": 1}]
    testing.compare_changelog(golden, [{"k": "b", "n": 1}, {"k": "a", "n": 1}, {"k": "a", "n": 3}], "k")
    testing.compare_changelog(
        golden, [{"k": "a", "n": 3}, {"k": "a", "n": 1}, {"k": "b", "n": 1}], ["k"], "n"
    )
    with pytest.raises(testing.GoldenMismatch, match="merged by k"):
        testing.compare_changelog(golden, [{"k": "a", "n": 2}, {"k": "b", "n": 1}], "k")


def test_the_newest_row_of_a_key_is_the_last_or_the_one_with_the_highest_version() -> None:
    rows = [{"k": 1, "n": 2}, {"k": 1, "n": 1}]
    assert testing.merge_by_key(rows, "k") == {(1,): {"k": 1, "n": 1}}
    assert testing.merge_by_key(rows, "k", "n") == {(1,): {"k": 1, "n": 2}}


def test_compare_answers_instead_of_raising() -> None:
    assert testing.compare([(1,)], [(1,)])
    assert not testing.compare([(1,)], [(2,)])


def test_the_public_names_of_holdfast_testing_exist_and_are_few() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert len(testing.__all__) <= 20
