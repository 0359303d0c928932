"""How long an epoch keeps an element from its work, as the element itself counts it."""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.runtime.element.epochs.pauses import EpochPauses


def test_time_spent_on_an_epoch_counts_and_other_time_does_not() -> None:
    clock = ManualClock()
    pauses = EpochPauses(clock)
    with pauses.during(epoch=True):
        clock.advance(0.25)
    clock.advance(10)
    with pauses.during(epoch=False):
        clock.advance(1)
    with pauses.during(epoch=True):
        clock.advance(0.5)
    pauses.pinned()
    pauses.working()
    assert list(pauses.seconds) == [0.75]


def test_an_epoch_is_over_when_work_goes_on_after_its_pin() -> None:
    clock = ManualClock()
    pauses = EpochPauses(clock)
    for seconds in (1.0, 2.0):
        with pauses.during(epoch=True):
            clock.advance(seconds)
        pauses.working()
        assert len(pauses.seconds) == int(seconds) - 1, "without a pin it goes on"
        pauses.pinned()
        pauses.working()
    assert list(pauses.seconds) == [1.0, 2.0]


def test_a_reset_is_no_pause() -> None:
    clock = ManualClock()
    pauses = EpochPauses(clock)
    with pauses.during(epoch=True):
        clock.advance(1)
    pauses.forget()
    pauses.pinned()
    pauses.working()
    assert list(pauses.seconds) == [0.0]
