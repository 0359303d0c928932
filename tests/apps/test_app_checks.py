"""What judges the applications notices rows that are missing, repeated, wrong, or there too early."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_data import Row, check_words, compare

GOLDEN: list[Row] = [("a", "1"), ("b", "2"), ("b", "2")]


@pytest.mark.parametrize("found", [GOLDEN[:2], [*GOLDEN, ("a", "1")], [("a", "2"), *GOLDEN[1:]], []])
def test_a_complete_result_has_the_same_rows_as_often(found: list[Row]) -> None:
    compare(GOLDEN, GOLDEN[::-1], True, "rows")
    with pytest.raises(AssertionError):
        compare(GOLDEN, found, True, "rows")


@pytest.mark.parametrize("found", [GOLDEN, [("a", "1"), ("a", "1")], [("c", "3")]])
def test_a_partial_result_has_some_of_the_rows_and_not_all(found: list[Row]) -> None:
    compare(GOLDEN, GOLDEN[1:], False, "rows")
    with pytest.raises(AssertionError):
        compare(GOLDEN, found, False, "rows")


@pytest.mark.parametrize("lines", [["the,1"], ["the,1", "the,3"], ["the,2", "the,2"], ["the,2", "or,1"]])
def test_a_changelog_of_words_that_is_wrong_is_noticed(lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "part-0.csv"
    file.write_text("word,count\nthe,1\nthe,2\n")
    check_words({"the": 2}, tmp_path, True)
    file.write_text("\n".join(["word,count", *lines]) + "\n")
    with pytest.raises(AssertionError):
        check_words({"the": 2}, tmp_path, True)
