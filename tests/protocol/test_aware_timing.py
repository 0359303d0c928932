"""Epochs at minima of the state size: the figures of document 002 with their numbers, and thousands of random curves."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import pytest

from holdfast.ids import ElementName
from holdfast.protocol.size_curves import average, between, lowest, settled, sizes_at, thinned, total
from holdfast.protocol.timing.aware_timing import (
    AwareSettings,
    AwareTiming,
    Began,
    Checkpoint,
    EpochBegun,
    PeriodOver,
    Profile,
    Profiled,
    Turned,
    profile_of,
)
from holdfast.protocol.turning_points import Size, Turn, TurnDetector

HAU1, HAU2, STEADY = ElementName("HAU1"), ElementName("HAU2"), ElementName("steady")


def turns(sizes: list[float], step: float = 1.0) -> list[Turn]:
    detector = TurnDetector()
    found = [detector.sample(number * step, size) for number, size in enumerate(sizes)]
    return [turn for turn in found if turn is not None]


# --- figure 10: turning points, the sum, the threshold ---

FIGURE_10 = [100.0, 150.0, 200.0, 250.0, 200.0, 150.0, 100.0, 150.0]


def test_turning_points_of_figure_10() -> None:
    assert [(turn.size, turn.at) for turn in turns(FIGURE_10)] == [(250, 3), (100, 6)]
    fall, rise = turns(FIGURE_10)
    assert (fall.rate, rise.rate) == (-50, 50), "the rate shortly after the turning point"
    assert (fall.halved, rise.halved) == (False, True), "100 is less than half of 250"


def test_sizes_between_turning_points_are_recovered_by_interpolation() -> None:
    found = [(turn.at, turn.size) for turn in turns(FIGURE_10)]
    curve = [(0.0, 100.0), *found, (7.0, 150.0)]
    assert sizes_at(curve, range(8)) == FIGURE_10


def test_the_sum_is_a_polyline_with_a_point_at_every_turning_point() -> None:
    one, two = [(0.0, 0.0), (10.0, 100.0)], [(0.0, 50.0), (4.0, 10.0), (10.0, 40.0)]
    assert total([one, two, []]) == [(0, 50), (4, 50), (10, 140)]
    assert between(total([one, two]), 2.0, 7.0) == [(2, 50), (4, 50), (7, 95)]
    assert average([(0.0, 0.0), (2.0, 10.0), (4.0, 0.0)]) == 5
    assert total([]) == []
    assert sizes_at([], [1.0, 2.0]) == [0, 0]


def test_the_threshold_is_the_highest_of_the_minima_of_periods_with_room_above_the_lowest() -> None:
    settings = AwareSettings(10.0, margin=0.0)
    low = {HAU1: [(0.0, 400.0), (5.0, 80.0), (9.0, 500.0), (15.0, 130.0), (20.0, 400.0)]}
    found = profile_of(low, [0.0, 10.0, 20.0], settings)
    assert (found.s_min, found.s_max, found.dynamic) == (80, 130, {HAU1})
    near = {HAU1: [(0.0, 400.0), (5.0, 100.0), (9.0, 500.0), (15.0, 105.0), (20.0, 400.0)]}
    assert profile_of(near, [0.0, 10.0, 20.0], settings).s_max == 120, "at least 20 % above the lowest"
    empty = {HAU1: [(0.0, 400.0), (5.0, 0.0), (9.0, 500.0), (15.0, 0.0), (20.0, 400.0)]}
    found = profile_of(empty, [0.0, 10.0, 20.0], AwareSettings(10.0))
    assert found.s_max == pytest.approx(found.average / 10), "20 % of nothing would be nothing"


def test_dynamic_elements_have_a_minimum_below_half_of_their_average() -> None:
    curves = {
        HAU1: [(0.0, 100.0), (5.0, 40.0), (10.0, 100.0)],
        HAU2: [(0.0, 100.0), (5.0, 20.0), (10.0, 100.0)],
        STEADY: [(0.0, 1000.0)],
        ElementName("none"): [],
    }
    found = profile_of(curves, [0.0, 10.0], AwareSettings(10.0))
    assert found.dynamic == {HAU2}
    assert (found.s_min, found.average) == (20, 60), "of the dynamic ones alone"
    assert profile_of({STEADY: [(0.0, 5.0)]}, [0.0, 10.0], AwareSettings(10.0)).dynamic == frozenset()


# --- figure 11: when ---


def profiled(s_max: float, period: float, *dynamic: ElementName) -> AwareTiming:
    policy = AwareTiming(AwareSettings(period))
    policy.profile = Profile(frozenset(dynamic), s_max, 0.0, 2 * s_max)
    return policy


def test_the_choice_of_figure_11() -> None:
    policy = profiled(250.0, 5.0, HAU1, HAU2)
    at_0 = {HAU1: Size(0, 240, -50), HAU2: Size(0, 300, -100)}
    assert policy.handle(Began(0, at_0)) == []
    assert not policy.alert, "the sum is larger than s_max when the period begins"
    at_2 = {HAU1: Size(2, 140, -50), HAU2: Size(2, 100, 30)}
    assert policy.handle(Turned(2, HAU2, Turn(2, 100, 30, halved=True), at_2)) == []
    assert policy.alert, "the sum is below s_max; it is foreseen to fall by 20"
    at_4 = {HAU1: Size(4, 40, 60), HAU2: Size(4, 160, 30)}
    (chosen,) = policy.handle(Turned(4, HAU1, Turn(4, 40, 60, halved=True), at_4))
    assert chosen == Checkpoint(4, 200, 200, "foreseen increase", 250), "60 + 30 = 90"
    assert not policy.alert
    # the second period: 32.5 at once
    high = {HAU1: Size(5, 200, 60), HAU2: Size(5, 190, 30)}
    assert policy.handle(PeriodOver(5, high)) == []
    at_6 = {HAU1: Size(6, 130, -22.5), HAU2: Size(6, 60, 55)}
    (chosen,) = policy.handle(Turned(6, HAU2, Turn(6, 60, 55, halved=True), at_6))
    assert (chosen.at, chosen.size) == (6, 190)
    # a better minimum later in the period is skipped
    assert (
        policy.handle(Turned(8, HAU1, Turn(8, 10, 60, True), {HAU1: Size(8, 10, 60), HAU2: Size(8, 60, 9)}))
        == []
    )


def test_a_curve_is_settled_from_its_first_fall_on() -> None:
    assert settled([(0.0, 1.0), (1.0, 5.0), (2.0, 5.0), (3.0, 2.0), (4.0, 6.0)]) == [
        (2.0, 5.0),
        (3.0, 2.0),
        (4.0, 6.0),
    ]
    assert settled([(0.0, 1.0), (1.0, 5.0)]) == [(1.0, 5.0)]
    assert settled([(0.0, 3.0), (1.0, 1.0)]) == [(0.0, 3.0), (1.0, 1.0)]


def test_how_sizes_rise_from_a_fresh_state_is_no_minimum() -> None:
    """The state is empty once; afterwards it never falls below 30. Of the empty one the threshold would be made too low."""
    bounds, settings = [0.0, 10.0, 20.0, 30.0], AwareSettings(10.0)
    curve = [(0.0, 0.0), (8.0, 100.0), (9.0, 30.0), (18.0, 100.0), (19.0, 32.0), (28.0, 100.0), (29.0, 31.0)]
    found = profile_of({ElementName("a"): curve}, bounds, settings, fresh=True)
    assert (found.dynamic, found.s_min) == ({ElementName("a")}, 30)
    assert found.s_max > 35
    assert profile_of({ElementName("a"): curve}, bounds, settings).s_max < 33


def test_an_element_that_only_grows_is_not_dynamic() -> None:
    curve = [(0.0, 0.0), (30.0, 100.0)]
    fresh = profile_of({ElementName("a"): curve}, [0.0, 10.0, 20.0, 30.0], AwareSettings(10.0), fresh=True)
    assert fresh.dynamic == frozenset()


def test_without_an_alert_the_epoch_comes_at_the_end_of_the_period() -> None:
    policy = profiled(50.0, 10.0, HAU1)
    policy.handle(Began(0, {HAU1: Size(0, 300)}))
    assert policy.handle(Turned(5, HAU1, Turn(5, 100, 20, True), {HAU1: Size(5, 100, 20)})) == []
    assert policy.handle(PeriodOver(9.9, {HAU1: Size(9.9, 200, 20)})) == [], "it is not over yet"
    assert policy.handle(PeriodOver(10.1, {HAU1: Size(10, 200, 20)})) == [
        Checkpoint(10.1, 200, 200, "end of period", 50)
    ]
    assert policy.period_ends == 20, "periods follow each other without gaps"
    policy.handle(PeriodOver(57.0, {HAU1: Size(57, 200, 20)}))
    assert policy.period_ends == 67, "but nobody catches up with those that were slept through"


def test_a_minimum_that_did_not_halve_is_asked_about_too_a_maximum_is_not() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    policy.handle(Began(0, {HAU1: Size(0, 150)}))
    assert policy.handle(Turned(4, HAU1, Turn(3, 95, -5), {HAU1: Size(4, 90, -5)})) == []
    assert not policy.alert
    (chosen,) = policy.handle(Turned(6, HAU1, Turn(5, 85, 20), {HAU1: Size(6, 90, 20)}))
    assert (chosen.size, chosen.reason) == (90, "foreseen increase")


def test_elements_that_are_not_dynamic_do_not_count() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    policy.handle(Began(0, {HAU1: Size(0, 150), STEADY: Size(0, 10**6)}))
    small = {HAU1: Size(5, 90, 20), STEADY: Size(5, 10**6, -(10**6))}
    assert policy.handle(Turned(5, STEADY, Turn(5, 9, 20, True), small)) == []
    assert not policy.alert
    (chosen,) = policy.handle(Turned(6, HAU1, Turn(6, 60, 20, True), small))
    assert (chosen.size, chosen.whole) == (90, 90 + 10**6)


def test_an_epoch_that_somebody_asked_for_is_the_one_of_its_period() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    policy.handle(Began(0, {HAU1: Size(0, 150)}))
    policy.handle(EpochBegun(1))
    assert policy.handle(Turned(6, HAU1, Turn(6, 60, 20, True), {HAU1: Size(6, 60, 20)})) == []
    assert policy.handle(PeriodOver(10, {HAU1: Size(10, 150, 20)})) == []


def test_after_a_reset_the_threshold_stays_and_the_curves_begin_anew() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    policy.handle(Began(0, {HAU1: Size(0, 150)}))
    assert policy.handle(Began(3, {HAU1: Size(3, 20, 5)})) == [
        Checkpoint(3, 20, 20, "foreseen increase", 100)
    ]
    assert policy.period_ends == 13
    fresh = AwareTiming(AwareSettings(10.0, profiled=1))
    fresh.handle(Began(0, {HAU1: Size(0, 0)}))
    fresh.handle(Began(9, {HAU1: Size(9, 70)}))
    assert fresh.handle(PeriodOver(18.5, {})) == [], "what was seen before is forgotten"
    assert [type(each) for each in fresh.handle(PeriodOver(19, {HAU1: Size(19, 70)}))] == [
        Checkpoint,
        Profiled,
    ]


def test_while_nothing_is_new_no_epoch_is_decided() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    small = {HAU1: Size(0, 20, 5)}
    assert policy.handle(Began(0, small, idle=True)) == [], (
        "the state that was restored is small and seems to grow"
    )
    assert policy.handle(Turned(5, HAU1, Turn(5, 20, 5, True), small, idle=True)) == []
    assert policy.handle(PeriodOver(10, small, idle=True)) == []
    assert policy.handle(PeriodOver(20, small, idle=True)) == []
    assert policy.period_ends == 30
    assert policy.handle(Turned(25, HAU1, Turn(25, 90, 5), {HAU1: Size(25, 90, 5)})) == [
        Checkpoint(25, 90, 90, "foreseen increase", 100)
    ], "what happens now is decided upon as ever"


def test_what_comes_after_idle_periods_has_its_epoch_within_a_period() -> None:
    policy = profiled(100.0, 10.0, HAU1)
    large = {HAU1: Size(0, 500)}
    policy.handle(Began(0, large, idle=True))
    policy.handle(PeriodOver(10, large, idle=True))
    (chosen,) = policy.handle(PeriodOver(20, large))
    assert chosen == Checkpoint(20, 500, 500, "end of period", 100)


def test_idle_periods_are_not_profiled() -> None:
    """They would say that the state never falls, or that it is always small."""
    policy = AwareTiming(AwareSettings(10.0, profiled=2))
    policy.handle(Began(0, {HAU1: Size(0, 0)}))
    for at in (10, 20, 30):
        assert policy.handle(PeriodOver(at, {HAU1: Size(at, 70)}, idle=True)) == []
    assert policy.profile is None
    decided = [*policy.handle(PeriodOver(40, {HAU1: Size(40, 70)})), *policy.handle(PeriodOver(50, {}))]
    assert [type(each) for each in decided] == [Checkpoint, Checkpoint, Profiled]
    assert policy.profile is not None


def test_points_are_thinned_to_the_extremes_of_stretches() -> None:
    chance = random.Random(3)
    curve = [(float(at), chance.random()) for at in range(1000)]
    few = thinned(curve, 50)
    assert len(few) <= 50
    assert lowest(few) == lowest(curve)
    assert max(size for _, size in few) == max(size for _, size in curve)
    assert few == sorted(few)
    assert thinned(curve[:7], 50) == curve[:7]


def test_noise_is_no_turning_point() -> None:
    chance = random.Random(1)
    sizes = [1000 * (1 - abs(n % 200 - 100) / 100) + chance.uniform(-4, 4) for n in range(2000)]
    found = turns(sizes)
    assert len(found) == 20 - 1, "a maximum and a minimum in each of ten waves; where it begins is none"


# --- random curves ---

Curve = Callable[[float], float]


def sawtooth(chance: random.Random, length: float) -> Curve:
    """Grows, and is thrown away within a moment."""
    phase, top, base = chance.random() * length, chance.uniform(100, 1000), chance.uniform(0, 20)
    return lambda at: base + top * ((at + phase) % length) / length


def triangle(chance: random.Random, length: float) -> Curve:
    phase, top = chance.random() * length, chance.uniform(100, 1000)
    return lambda at: top * abs((at + phase) % length / length - 0.5) * 2


def steps(chance: random.Random, length: float) -> Curve:
    levels = [chance.choice([0.0, 1.0, chance.random()]) * 500 for _ in range(97)]
    return lambda at: levels[int(at / length * 4) % 97]


def walk(chance: random.Random, length: float) -> Curve:
    levels = [chance.expovariate(1) * 100 for _ in range(97)]

    def size(at: float) -> float:
        place = at / length * 3
        low, share = int(place) % 97, place % 1
        return levels[low] * (1 - share) + levels[(low + 1) % 97] * share

    return size


def level(chance: random.Random, length: float) -> Curve:
    height = chance.uniform(0, 1000)
    return lambda at: height


def growing(chance: random.Random, length: float) -> Curve:
    return lambda at: at * 10


@dataclass
class Played:
    """What a policy did over curves that are sampled `dt` apart."""

    period: float
    chosen: list[Checkpoint] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    profiles: list[Profiled] = field(default_factory=list)
    totals: list[tuple[float, float]] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0])
    """Epochs of each period."""
    wrong: list[str] = field(default_factory=list)
    reports: int = 0


def play(
    curves: list[Curve], period: float, dt: float, until: float, settings: AwareSettings | None = None
) -> Played:
    policy, played = AwareTiming(settings or AwareSettings(period)), Played(period)
    names = [ElementName(f"e{number}") for number in range(len(curves))]
    detectors = {name: TurnDetector() for name in names}

    def sizes() -> dict[ElementName, Size]:
        return {name: each.latest for name, each in detectors.items() if each.latest is not None}

    def take(event: Began | Turned | PeriodOver) -> None:
        was_alert, known = policy.alert, policy.profile
        played.counts += [0] * isinstance(event, PeriodOver)
        for decision in policy.handle(event):
            if isinstance(decision, Profiled):
                played.profiles.append(decision)
                continue
            played.chosen.append(decision)
            # One that the end forces belongs to the period that ends; one that is chosen then, to the next.
            is_next = isinstance(event, PeriodOver) and decision.reason in (
                "foreseen increase",
                "last minimum",
            )
            played.counts[-1 if is_next or not isinstance(event, PeriodOver) else -2] += 1
            if decision.reason in ("foreseen increase", "last minimum"):
                profile = policy.profile if isinstance(event, PeriodOver) else known
                assert profile is not None
                rates = {name: size.rate for name, size in event.sizes.items() if name in profile.dynamic}
                if isinstance(event, Turned):
                    rates[event.element] = event.turn.rate
                if sum(rates.values()) <= 0:
                    played.wrong.append(f"at {event.at} the sum falls: {rates}")
                below = decision.size
                if isinstance(event, Turned):
                    below += event.turn.size - event.sizes[event.element].size
                left_s = (
                    policy.period_ends - event.at if isinstance(event, Turned) and event.turn.halved else None
                )
                grows = left_s is None and decision.reason == "last minimum" and profile.patience is not None
                if not was_alert and not grows and not profile.is_small(below * (1 - 1e-9), left_s):
                    played.wrong.append(f"at {event.at} {below} is above {profile.s_max}")

    at = 0.0
    for number in range(int(until / dt)):
        at = number * dt
        now = [curve(at) for curve in curves]
        for name, size in zip(names, now, strict=True):
            for turn in (detectors[name].sample(at, size), detectors[name].foreseen):
                if turn is not None and number:
                    played.reports += 1
                    take(Turned(at, name, turn, sizes()))
        if not number:
            take(Began(at, sizes()))
        if at >= policy.period_ends:
            played.ends.append(at)
            take(PeriodOver(at, sizes()))
        played.totals.append((at, sum(now)))
    return played


def check_rules(played: Played) -> None:
    """One epoch in each period that ended; at its end at the latest; never while the sum is foreseen to fall."""
    assert not played.wrong, played.wrong
    assert played.counts[:-1] == [1] * len(played.ends)
    assert played.counts[-1] <= 1
    for begin, end in pairwise(played.ends):
        assert end - begin == pytest.approx(played.period, rel=0.2)


KINDS = [sawtooth, triangle, steps, walk, level, growing]


@pytest.mark.parametrize("seed", range(20))
def test_the_rules_hold_for_random_curves(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        period = chance.uniform(5, 20)
        curves = [
            chance.choice(KINDS)(chance, period * chance.uniform(0.1, 3)) for _ in range(chance.randint(1, 5))
        ]
        played = play(curves, period, period / chance.choice([20, 50]), period * 16)
        check_rules(played)
        assert len(played.profiles) == 2, "after three periods, and again after ten more"


def outcome(played: Played) -> tuple[float, float, float]:
    """Of the periods behind the first profile: what was stored, what periodic epochs store on average, what an oracle does."""
    since = played.profiles[0].at
    ends = [end for end in played.ends if end >= since]
    aware = [each.size for each in played.chosen if since < each.at <= ends[-1]]
    spans = [[size for at, size in played.totals if begin <= at < end] for begin, end in pairwise(ends)]
    periodic = sum(sum(span) / len(span) for span in spans)
    return sum(aware), periodic, sum(map(min, spans))


@pytest.mark.parametrize("seed", range(6))
def test_of_sawtooth_curves_less_is_stored_than_by_periodic_epochs_and_hardly_more_than_by_an_oracle(
    seed: int,
) -> None:
    chance = random.Random(1000 + seed)
    sums = [0.0, 0.0, 0.0]
    for _ in range(20):
        period = chance.uniform(5, 20)
        curve = sawtooth(chance, period * chance.uniform(0.15, 0.95))
        played = play([curve], period, period / 200, period * 16)
        check_rules(played)
        aware, periodic, oracle = outcome(played)
        assert aware <= periodic * 0.4, f"{aware} instead of {periodic}; the least is {oracle}"
        sums = [one + other for one, other in zip(sums, (aware, periodic, oracle), strict=True)]
    assert sums[0] <= sums[1] * 0.08
    assert sums[0] - sums[2] <= 0.01 * sums[1], "near to the oracle, measured by what periodic epochs store"


@pytest.mark.parametrize("seed", range(6))
def test_of_several_sawtooth_curves_less_is_stored_too(seed: int) -> None:
    chance = random.Random(2000 + seed)
    sums = [0.0, 0.0, 0.0]
    for _ in range(8):
        period = chance.uniform(5, 20)
        curves = [sawtooth(chance, period * chance.uniform(0.15, 1.5)) for _ in range(chance.randint(2, 5))]
        played = play(curves, period, period / 200, period * 16)
        check_rules(played)
        sums = [one + other for one, other in zip(sums, outcome(played), strict=True)]
    assert sums[0] < sums[1] * 0.6
    assert sums[0] < sums[2] * 1.7


def teeth(lengths: list[float], slope: float = 100.0) -> Curve:
    """Grows for so long, falls to almost nothing, grows for the next length, and again from the first."""
    ends = list(accumulate(lengths))

    def size(at: float) -> float:
        at %= ends[-1]
        begun = max((end for end in ends if end <= at), default=0.0)
        return 5 + slope * (at - begun)

    return size


def test_where_no_minimum_is_to_come_the_epoch_comes_when_its_period_begins() -> None:
    """After many short teeth a long one: every fifth period sees growth only, and none of them is profiled."""
    played = play([teeth([*[5] * 5, 20, 5])], 10.0, 0.1, 900.0, AwareSettings(10.0, remembered=20))
    check_rules(played)
    assert all(each.profile.s_max < 100 for each in played.profiles)
    high = [each for each in played.chosen if each.at > 200 and each.size > 400]
    assert len(high) >= 12
    assert all(each.size < 600 and each.reason == "last minimum" for each in high), "as the period began"


def test_below_the_threshold_a_minimum_is_let_go_if_a_lower_one_is_to_come() -> None:
    """Low and not so low minima take turns; one of each in every period. The threshold is above both."""

    def low_and_lower(at: float) -> float:
        return (30 if (at + 7) % 10 < 5 else 21) + 100 * ((at + 7) % 5)

    played = play([low_and_lower], 10.0, 0.1, 400.0)
    check_rules(played)
    profile = played.profiles[-1].profile
    assert profile.s_max > 30
    known = [each for each in played.chosen if each.at > 100]
    assert sum(each.size < 26 for each in known) >= 0.9 * len(known), "nearly all at the lower one"


def test_reports_are_few() -> None:
    chance = random.Random(5)
    played = play([sawtooth(chance, 10.0)], 20.0, 0.01, 400.0)
    assert len(played.totals) == 40_000
    assert played.reports <= 3 * 40, "two turning points per tooth, and a minimum that is foreseen"
