"""How many rows were missed since a checkpoint: rates told from the past, and what may be asked of any estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import own_records
from holdfast.checkpoint.missed_rows_estimate import LEAST_S, RECENT_S, Pace, missed_rows
from holdfast.checkpoint.own_records import OwnCheckpoint, OwnRecord
from holdfast.checkpoint.parts import OperatorPart


def steady(rate: int, seconds: int, every: int = 1) -> Pace:
    """The pace of one input that brought so many rows a second, looked at every so many seconds."""
    pace = Pace.begin(100.0, (0,))
    for passed in range(every, seconds + 1, every):
        pace = pace.looked(100.0 + passed, (rate * passed,))
    return pace


def test_rows_missed_are_the_rate_times_the_seconds_in_whole_rows() -> None:
    assert missed_rows(10.0, 2.59) == 25
    assert missed_rows(0.4, 2.0) == 0


def test_without_a_rate_or_with_a_clock_that_went_back_nothing_was_missed() -> None:
    assert missed_rows(0.0, 1e9) == 0
    assert missed_rows(1e6, -5.0) == 0
    assert Pace.begin(0.0, (7, 7)).missed([1e9, 1e9]) == (0, 0)


@pytest.mark.parametrize("every", [1, 5, 60])
def test_a_steady_stream_has_its_rate_however_often_it_is_looked_at(every: int) -> None:
    pace = steady(30, 300, every)
    # Rows and seconds lose weight alike, but for the stretch between two looks, which counts whole.
    assert pace.rates == (pytest.approx(30.0),)
    assert pace.missed([pace.at_s + 2.5]) in ((74,), (75,))


def test_a_rate_follows_the_stream_and_a_silent_stream_comes_to_nothing() -> None:
    pace = steady(100, 60)
    had = pace.had[0]
    faster = pace
    for second in range(1, 181):
        faster = faster.looked(pace.at_s + second, (had + 500 * second,))
    assert 450 < faster.rates[0] < 500
    silent = pace.looked(pace.at_s + 60 * RECENT_S, pace.had)
    assert silent.missed([silent.at_s + 3600]) == (0,)


def test_time_in_which_nobody_ran_does_not_lower_the_rate() -> None:
    before = steady(100, 60)
    after = before.resumed(before.at_s + 86_400, (5,))
    assert after.rates == before.rates
    assert (after.at_s, after.had) == (before.at_s + 86_400, (5,))


def test_a_burst_in_less_than_a_second_counts_as_one_of_a_second() -> None:
    pace = Pace.begin(0.0, (0,)).looked(LEAST_S / 1000, (50,))
    assert pace.rates == (50.0,)


def test_each_input_has_its_own_rate_and_its_own_end() -> None:
    pace = Pace.begin(0.0, (0, 0, 0)).looked(10.0, (100, 20, 1000))
    assert pace.missed([13.0, 20.0, None]) == (30, 20, 0)


def test_it_goes_through_the_record_of_a_checkpoint_and_may_be_missing_there() -> None:
    for pace in (steady(3, 7), None):
        made = OwnRecord("op", OwnCheckpoint(1, OperatorPart(), pace))
        assert own_records.decode(own_records.encode(made), "op", "it") == made


looks = st.lists(
    st.tuples(
        st.floats(0, 1e5, allow_nan=False),
        st.lists(st.integers(0, 10**9), min_size=2, max_size=2),
    ),
    max_size=20,
)


@given(looks, st.floats(0, 1e6, allow_nan=False), st.floats(0, 1e6, allow_nan=False))
def test_whatever_came_an_estimate_grows_with_time_and_nothing_comes_faster_than_all_rows_in_a_second(
    came: list[tuple[float, list[int]]], seconds: float, more: float
) -> None:
    pace = Pace.begin(0.0, (0, 0))
    for passed, rows in came:
        had = tuple(old + new for old, new in zip(pace.had, rows, strict=True))
        pace = pace.looked(pace.at_s + passed, had)
    soon, later = (pace.missed([pace.at_s + until] * 2) for until in (seconds, seconds + more))
    for side in (0, 1):
        assert 0 <= soon[side] <= later[side]
        assert pace.rates[side] <= pace.had[side] / LEAST_S * (1 + 1e-9)
        assert pace.had[side] or later[side] == 0
