"""The catalogue of faults is complete, and its page is what the tests say."""

from __future__ import annotations

from page import PAGE, Marked, marked, written, wrong
from rows import BY_ID, FAULTS, SECTIONS, Row


def test_every_row_has_a_test_or_a_reason_and_every_marker_a_row() -> None:
    assert wrong(marked()) == []


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text() == written(marked()), "make catalogue"


def test_the_rows_are_all_there_and_each_once() -> None:
    assert sum(map(len, FAULTS.values())) == 128
    assert len(BY_ID) == sum(map(len, SECTIONS.values())) == 128 + 20 + 13 + 11


def test_what_is_wrong_is_said() -> None:
    rows = {
        "A": Row("A", "a"),
        "B": Row("B", "b", absent="no"),
        "C": Row("C", "c", open="yet"),
        "D": Row("D", "d"),
    }
    found = [Marked("tests/test_x.py", "test_y", ("B", "C", "D", "E"))]
    assert wrong(found, rows) == [
        "tests/test_x.py: test_y names E, which is no row",
        "A (a) has no test",
        "B does not apply, and has a test",
        "C is called open, and has a test",
    ]
