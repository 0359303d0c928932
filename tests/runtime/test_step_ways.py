"""Where small steps are done, decided from costs: cheap ones in the driver, others as jobs, without wavering."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.runtime.engines.step_ways import BEGIN_S, MUCH_CHEAPER, Ways


def after(ways: Ways, rows: int, driver_s: float, job_s: float, steps: int) -> Ways:
    for _ in range(steps):
        ways = ways.chosen(rows)
        ways = ways.measured(ways.now, rows, driver_s if ways.now == "driver" else job_s)
    return ways


def test_a_few_rows_are_done_in_the_driver_from_the_first_step_on() -> None:
    assert Ways().chosen(1).now == "driver"


def test_many_rows_are_a_job_and_few_ones_come_back() -> None:
    grown = Ways().chosen(1_000_000)
    assert grown.now == "job"
    assert grown.chosen(10).now == "driver"


def test_a_driver_that_turns_out_slow_is_left_and_tried_again_some_day() -> None:
    left = after(Ways(), 10, driver_s=1.0, job_s=0.1, steps=20)
    assert left.now == "job"
    found, steps = left, 0
    while found.chosen(10).now == "job" and steps < 400:
        found, steps = found.measured("job", 10, 0.1), steps + 1
    assert 10 < steps < 400, "forgotten at once, or never"


@examples(100)
@given(
    rows=st.integers(0, 100_000),
    driver_s=st.floats(0.0, 5.0),
    job_s=st.floats(0.01, 5.0),
)
def test_the_way_does_not_waver_while_costs_stay(rows: int, driver_s: float, job_s: float) -> None:
    settled = after(Ways(), rows, driver_s, job_s, 30)
    changes, ways = 0, settled
    for _ in range(20):
        then = after(ways, rows, driver_s, job_s, 1)
        changes += then.now != ways.now
        ways = then
    assert changes <= 2


@examples(100)
@given(driver_s=st.floats(0.0, 1.0), job_s=st.floats(0.0, 1.0), rows=st.integers(0, 10**6))
def test_a_change_of_ways_is_for_something_much_cheaper(driver_s: float, job_s: float, rows: int) -> None:
    for now in ("driver", "job"):
        before = Ways(driver_s, job_s, now)  # type: ignore[arg-type]
        then = before.chosen(rows)
        if then.now != now:
            assert then.cost(then.now, rows) < MUCH_CHEAPER * before.cost(before.now, rows)
    assert BEGIN_S["driver"] < BEGIN_S["job"]
