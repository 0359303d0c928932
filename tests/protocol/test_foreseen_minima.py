"""Minima that are known at their own sample, and minima that are taken since no lower one is to be expected in their period."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from holdfast.ids import ElementName
from holdfast.protocol.size_curves import Point
from holdfast.protocol.timing.aware_timing import (
    AwareSettings,
    AwareTiming,
    Began,
    Checkpoint,
    PeriodOver,
    Profile,
    Turned,
)
from holdfast.protocol.timing.waiting import MOST_MINIMA, Patience, patience_of
from holdfast.protocol.turning_points import Size, Turn, TurnDetector

ONE = ElementName("one")


def foreseen(sizes: list[float]) -> dict[int, Turn]:
    """By the number of the sample at which they were foreseen."""
    detector, found = TurnDetector(), {}
    for number, size in enumerate(sizes):
        detector.sample(float(number), size)
        if detector.foreseen is not None:
            found[number] = detector.foreseen
    return found


# --- minima at their own sample ---


def test_a_minimum_as_low_as_the_one_before_is_foreseen_with_the_rate_of_earlier_rises() -> None:
    tooth = [0.0, 10.0, 20.0, 30.0, 40.0]
    found = foreseen(tooth * 4)
    assert list(found) == [10, 15], "of the first nothing is known"
    assert found[10] == Turn(10.0, 0.0, 10.0, halved=True, foreseen=True)


def test_what_the_element_says_of_itself_then_is_that_it_will_rise() -> None:
    detector = TurnDetector()
    for number, size in enumerate([0.0, 10.0, 20.0, 0.0, 10.0, 20.0, 0.0]):
        detector.sample(float(number), size)
    assert detector.latest == Size(6.0, 0.0, 10.0)
    detector.sample(7.0, 0.0)
    assert detector.foreseen is None, "it has not fallen, so it is not told again"
    assert detector.latest == Size(7.0, 0.0, 0.0)


def test_in_the_middle_of_a_fall_nothing_is_foreseen() -> None:
    wave = [0.0, 30.0, 60.0, 90.0, 60.0, 45.0, 30.0]
    assert [number % 7 for number in foreseen(wave * 4)] == [6, 0] * 2 + [6], (
        "30 is a sample's growth above the usual minimum: waiting would gain no more than it may cost"
    )


def test_a_fall_that_stays_high_above_the_usual_minima_is_not_foreseen() -> None:
    tooth = [0.0, 10.0, 20.0, 30.0, 40.0]
    assert list(foreseen([*tooth * 3, 25.0, 35.0, 45.0])) == [10]


def test_after_a_restore_nothing_is_foreseen_by_what_was_before() -> None:
    detector = TurnDetector()
    for number, size in enumerate([0.0, 10.0, 20.0, 0.0, 10.0, 20.0]):
        detector.sample(float(number), size)
    detector.forget()
    detector.sample(7.0, 20.0)
    detector.sample(8.0, 0.0)
    assert detector.foreseen is None


def test_a_foreseen_minimum_is_no_point_of_the_curve_but_decides() -> None:
    policy = AwareTiming(AwareSettings(10.0))
    policy.profile = Profile(frozenset([ONE]), 100.0, 0.0, 200.0)
    policy.handle(Began(0, {ONE: Size(0, 500)}))
    turn = Turn(5, 60, 20, halved=True, foreseen=True)
    (chosen,) = policy.handle(Turned(5, ONE, turn, {ONE: Size(5, 60, 20)}))
    assert chosen == Checkpoint(5, 60, 60, "foreseen increase", 100)
    assert policy.curves() == {ONE: [(0, 500)]}


# --- patience ---


def saws(lows: list[float], length: float, top: float) -> tuple[list[Point], list[Point]]:
    """A curve that falls to the given minima, `length` apart; and those."""
    curve: list[Point] = [(0.0, top)]
    minima: list[Point] = []
    for number, low in enumerate(lows):
        at = number * length + 0.001
        minima.append((at, low))
        curve += [(at, low), ((number + 1) * length, top)]
    return curve, minima


def patience(lows: list[float], length: float, period: float, top: float = 1000.0) -> Patience:
    curve, minima = saws(lows, length, top)
    found = patience_of(minima, curve, period)
    assert found is not None
    return found


def test_a_minimum_with_another_one_to_come_is_let_go_if_that_is_lower() -> None:
    known = patience([300.0, 100.0] * 5, 4.0, 10.0)
    assert not known.takes(300.0, 9.0), "100 comes in 4 s"
    assert known.takes(300.0, 3.0), "nothing comes in 3 s, but growth"
    assert known.takes(100.0, 9.0)
    assert known.takes(100.0, 0.0)
    assert known.takes(104.0, 9.0), "little is to be gained"


def test_a_minimum_that_is_like_no_other_is_not_taken() -> None:
    known = patience([100.0, 110.0, 105.0, 100.0, 108.0], 4.0, 10.0)
    assert not known.takes(600.0, 1.0)
    assert known.takes(150.0, 1.0)


def test_too_few_minima_tell_nothing() -> None:
    curve, minima = saws([1.0, 2.0], 4.0, 10.0)
    assert patience_of(minima, curve, 10.0) is None
    assert patience_of([], [], 10.0) is None
    assert patience_of(*reversed(saws([1.0] * 9, 4.0, 10.0)), 0.0) is None


def test_it_is_bounded_however_many_minima_there_are() -> None:
    known = patience([float(n % 7) for n in range(500)], 0.01, 10.0)
    assert len(known.followed) == MOST_MINIMA - 1


@pytest.mark.parametrize("seed", range(20))
def test_waiting_never_promises_more_than_there_was(seed: int) -> None:
    """By hand: what is reached from a minimum lies between the least of all and that minimum."""
    chance = random.Random(seed)
    for _ in range(20):
        lows = [chance.uniform(0, 500) for _ in range(chance.randint(6, 40))]
        known = patience(lows, chance.uniform(0.1, 8.0), 10.0)
        for low, reached in zip(lows, known.reached, strict=True):
            assert all(min(lows) - 1e-6 <= size <= low + 1e-6 for size in reached)
        assert known.takes(min(lows), chance.uniform(0, 10)), "nothing lower was ever seen"


def test_a_period_that_begins_before_any_minimum_goes_by_s_max() -> None:
    policy = AwareTiming(AwareSettings(10.0))
    known = patience([300.0] * 6, 20.0, 10.0)
    policy.profile = Profile(frozenset([ONE]), 100.0, 100.0, 500.0, known)
    assert policy.handle(Began(0, {ONE: Size(0, 300, 5)})) == [], "300 is no minimum here, and above s_max"
    turn = Turned(6, ONE, Turn(6, 300, 20, halved=True, foreseen=True), {ONE: Size(6, 300, 20)})
    assert policy.handle(turn) == [Checkpoint(6, 300, 300, "last minimum", 100)]


# --- operators that forget one after the other ---


def cascade(chance: random.Random, steps: int) -> Iterator[list[float]]:
    """Three of them, some steps apart, every 30 to 50 steps: as cars leave one crossing after the other."""
    sizes, falls, next_fall = [0.0, 0.0, 0.0], [-1, -1, -1], 40
    for step in range(steps):
        if step == next_fall:
            falls = [step, step + 2, step + 4]
            next_fall += chance.randint(30, 50)
        for which in range(3):
            grown = sizes[which] + chance.uniform(5, 15)
            sizes[which] = chance.uniform(0, 30) if step == falls[which] else grown
        yield list(sizes)


@pytest.mark.parametrize("joined", [True, False], ids=["one-element", "three-elements"])
def test_epochs_wait_for_the_last_of_those_that_forget_one_after_the_other(joined: bool) -> None:
    stored, best, mean = 0.0, 0.0, 0.0
    for seed in range(10):
        rows = list(cascade(random.Random(seed), 2000))
        rows = [[sum(row)] for row in rows] if joined else rows
        chosen, bounds = played(rows, period=60.0)
        sums = [sum(row) for row in rows]
        spans = list(pairwise(bounds))[3:]
        assert len(chosen) == len(spans)
        stored += sum(chosen)
        best += sum(min(sums[begin:end]) for begin, end in spans)
        mean += sum(sum(sums[begin:end]) / (end - begin) for begin, end in spans)
    print(f"over an oracle {stored / best:.3f}, over periodic epochs {stored / mean:.3f}")
    assert stored <= 1.25 * best
    assert stored <= 0.4 * mean


def played(rows: list[list[float]], period: float) -> tuple[list[float], list[int]]:
    """Sizes at the epochs behind the profile, and where periods end."""
    policy = AwareTiming(AwareSettings(period))
    names = [ElementName(f"e{number}") for number in range(len(rows[0]))]
    detectors = {name: TurnDetector() for name in names}
    chosen, bounds = list[float](), [0]

    def take(event: Began | Turned | PeriodOver) -> None:
        for decision in policy.handle(event):
            if isinstance(decision, Checkpoint) and decision.reason != "profiling":
                chosen.append(decision.size)

    for at, row in enumerate(rows):
        if at >= policy.period_ends:
            bounds.append(at)
            take(PeriodOver(at, sizes_of(detectors)))
        for name, size in zip(names, row, strict=True):
            for turn in (detectors[name].sample(at, size), detectors[name].foreseen):
                if turn is not None:
                    take(Turned(at, name, turn, sizes_of(detectors)))
        if not at:
            take(Began(at, sizes_of(detectors)))
    took = policy._taken
    return chosen[: len(chosen) - took], bounds


def sizes_of(detectors: dict[ElementName, TurnDetector]) -> dict[ElementName, Size]:
    return {name: each.latest for name, each in detectors.items() if each.latest is not None}
