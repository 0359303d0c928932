"""When the next epoch begins: a period after the last one began, and never without time for steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.clock import ManualClock
from holdfast.runtime.region.triggers import REST_SHARE, PeriodicTrigger, until_next


@examples(200)
@given(period_s=st.floats(0.01, 100.0), took_s=st.floats(0.0, 1000.0))
def test_a_short_epoch_keeps_the_pace_and_a_long_one_leaves_time_for_steps(
    period_s: float, took_s: float
) -> None:
    rest = until_next(period_s, took_s)
    assert 0 < rest <= period_s
    assert rest >= min(period_s, REST_SHARE * took_s)
    if took_s <= period_s / (1 + REST_SHARE):
        assert abs(took_s + rest - period_s) < 1e-9


def test_the_time_an_epoch_took_is_no_delay_of_the_next() -> None:
    clock, waits = ManualClock(), []
    trigger = PeriodicTrigger(2.0, clock, lambda: None, lambda seconds, _: waits.append(seconds))
    trigger.go_on()
    trigger.epoch_begun()
    clock.advance(0.5)
    trigger.epoch_over()
    trigger.epoch_begun()
    clock.advance(30.0)
    trigger.epoch_over()
    trigger.go_on()  # after a reset: from the beginning
    assert waits == [2.0, 1.5, 2.0, 2.0]
