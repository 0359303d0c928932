"""When to establish an epoch, so that little has to be stored: at minima of the state size. Pure; document 002.

Events in, decisions out: no clock, no I/O. Time is cut into *periods*; each has one epoch.

    profiling    for `profiled` periods, and again every `reprofiled_after`: which elements are *dynamic* (their least size is
                 below half of their average), and how small their sum becomes in each period. The highest of those minima
                 is the threshold `s_max`. Until it is known epochs come at the ends of periods.
    alert        begins when the sum is found at or below `s_max`: asked when a period begins, and when a dynamic element
                 fell by more than half. In alert the sum is only allowed to fall: at the first turning point at which the rates
                 of change add up to more than 0 the epoch comes, and the alert is over.
    patience     as soon as enough minima are remembered, they say at each minimum, and when a period begins, whether a lower one is to be
                 expected in what is left of the period (`waiting.py`): below `s_max` it may be worth waiting for, above it may be in vain.
    otherwise    the epoch comes at the end of the period.
    idle         nothing is new since the newest epoch: no epoch comes, and a period that ends so is not profiled.

Must hold: no period has two epochs; none ends without one, unless it is idle; in alert none comes while the sum is foreseen to
fall, but at the end of the period.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from holdfast.ids import ElementName
from holdfast.protocol.size_curves import Point, average, between, lowest, settled, total
from holdfast.protocol.timing.waiting import Patience, patience_of
from holdfast.protocol.turning_points import Size, Turn

Sizes = Mapping[ElementName, Size]
"""What the elements answer when they are asked for their sizes."""

MOST_OCCASIONS = 200
"""That are remembered."""
MOST_BEHIND = 4
"""Points that may have been noted between a turning point and its report."""

Reason = Literal["foreseen increase", "last minimum", "end of period", "profiling"]
"""A *last minimum* is above `s_max`: a lower one is not to be expected in its period."""


@dataclass(frozen=True, slots=True)
class AwareSettings:
    """How epochs are timed. Seconds; numbers of periods; shares."""

    period_s: float
    profiled: int = 3
    reprofiled_after: int = 10
    remembered: int = 12
    """Periods of whose minima is known what followed them."""
    relaxation: float = 0.2
    """`s_max` is at least so far above the lowest minimum, relative to that."""
    margin: float = 0.1
    """And at least this share of the way from the lowest minimum to the average above it: 20 % of almost nothing is
    nothing, and the next minimum may be found a few samples late."""


# --- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """The run begins, or goes on from another state."""

    at: float
    sizes: Sizes
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Turned:
    """An element reports a turning point, which has become known now; all are asked for their sizes."""

    at: float
    element: ElementName
    turn: Turn
    sizes: Sizes
    idle: bool = False


@dataclass(frozen=True, slots=True)
class PeriodOver:
    """It is `period_ends`, or later."""

    at: float
    sizes: Sizes
    idle: bool = False


@dataclass(frozen=True, slots=True)
class EpochBegun:
    """An epoch begins that was not decided here: somebody asked for it."""

    at: float


TimingEvent = Began | Turned | PeriodOver | EpochBegun


@dataclass(frozen=True, slots=True)
class Occasion:
    """An element has fallen by more than half, is at a minimum or foreseen to be there: an epoch may come now."""

    at: float
    element: ElementName
    sizes: Sizes

    def sum_of(self, some: frozenset[ElementName]) -> float:
        return sum(size.size for name, size in self.sizes.items() if name in some)


# --- decisions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Profile:
    """What profiling found. `average`: of the sum of the dynamic elements. `patience`: None: there are too few minima."""

    dynamic: frozenset[ElementName]
    s_max: float
    s_min: float
    average: float
    patience: Patience | None = None

    def is_small(self, size: float, left_s: float | None = None) -> bool:
        """The sum is small enough for an epoch. `left_s`: it is at a minimum, with so many seconds left of the period."""
        takes = None if left_s is None or self.patience is None else self.patience.takes(size, left_s)
        return size <= self.s_max if takes is None else takes

    def is_small_growing(self, size: float, grew_s: float, left_s: float) -> bool:
        """The same of a sum that has been growing for so long."""
        takes = self.patience is not None and self.patience.takes_growing(size, grew_s, left_s)
        return size <= self.s_max or takes


@dataclass(frozen=True, slots=True)
class Profiled:
    at: float
    profile: Profile


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Establish an epoch now. `size`: of the dynamic elements, or of all while they are not known; `whole`: of all.
    `s_max`: what it was compared with, if there are dynamic elements."""

    at: float
    size: float
    whole: float
    reason: Reason
    s_max: float | None = None


Decision = Profiled | Checkpoint


class AwareTiming:
    """One region's policy. `period_ends`: when PeriodOver is due; before Began that is never."""

    def __init__(self, settings: AwareSettings) -> None:
        self._settings = settings
        self.profile: Profile | None = None
        self.alert = False
        self.period_ends = float("inf")
        self._taken = False
        """The period has its epoch."""
        self._begins: list[float] = []
        """When the present period began and those before, as far back as is profiled."""
        self._curves: dict[ElementName, list[Point]] = {}
        self._occasions: list[Occasion] = []
        self._periods_since = 0
        """Periods that ended since the last profile."""
        self._began = float("-inf")

    def handle(self, event: TimingEvent) -> list[Decision]:
        match event:
            case Began(at, sizes):
                self._began = at
                self._forget(sizes)
                return self._begin_period(at, sizes, look=not event.idle)
            case Turned():
                return self._on_turn(event)
            case PeriodOver():
                return self._on_period_over(event)
            case EpochBegun():
                self._taken, self.alert = True, False
                return []

    def _forget(self, sizes: Sizes) -> None:
        """What was before says nothing about the periods that come; what profiling found stays."""
        self._begins, self._curves, self._occasions, self._periods_since = [], {}, [], 0
        self._note(sizes)

    def curves(self) -> dict[ElementName, list[Point]]:
        """Sizes of the elements over the last periods, for people; any thread may ask."""
        return {name: list(curve) for name, curve in dict(self._curves).items()}

    # --- periods --------------------------------------------------------------------------------------------------

    def _on_period_over(self, event: PeriodOver) -> list[Decision]:
        at, sizes = event.at, event.sizes
        if at < self.period_ends:
            return []
        if event.idle and not self._taken:
            self._forget(sizes)
            return self._begin_period(at, sizes, look=False)
        self._note(sizes)
        self._periods_since += 1
        forced: list[Decision] = []
        if not self._taken:
            forced = [self._checkpoint(at, sizes, "profiling" if self.profile is None else "end of period")]
        # Right behind an epoch another one would store the same again: the next turning point decides.
        return (
            forced + self._profile_if_due(at) + self._begin_period(at, sizes, look=not (forced or event.idle))
        )

    def _begin_period(self, at: float, sizes: Sizes, look: bool) -> list[Decision]:
        self._begins = [*self._begins[-self._settings.remembered :], at]
        # Periods follow each other without gaps, unless whoever tells the time was away for longer than one.
        planned = self.period_ends + self._settings.period_s
        in_time = self.period_ends <= at < planned and len(self._begins) > 1
        self.period_ends = planned if in_time else at + self._settings.period_s
        self._taken = self.alert = False
        self._check_alert(sizes)
        if self.profile is not None and self.profile.dynamic and self._occasions and self._rates(sizes) > 0:
            grew_s, left_s = at - self._occasions[-1].at, self.period_ends - at
            self.alert = self.profile.is_small_growing(self._sum(sizes), grew_s, left_s)
        return self._decide(at, sizes) if look else []

    # --- turning points -------------------------------------------------------------------------------------------

    def _on_turn(self, event: Turned) -> list[Decision]:
        turn = event.turn
        curve = self._curves.setdefault(event.element, [])
        if not turn.foreseen and (turn.at, turn.size) not in curve[-MOST_BEHIND:]:
            # It may lie before the end of a period that was noted meanwhile.
            insort(curve, (turn.at, turn.size))
        if turn.halved:
            self._occasions.append(Occasion(event.at, event.element, event.sizes))
        if self.profile is None or self._taken or event.element not in self.profile.dynamic:
            return []
        if not self.alert and (turn.halved or turn.rate > 0):
            # The minimum counts, not what has grown since: it became known a sample later.
            least = {**event.sizes, event.element: Size(turn.at, turn.size)}
            self._check_alert(least, self.period_ends - event.at if turn.halved else None)
        if event.idle:
            return []
        return self._decide(event.at, {**event.sizes, event.element: _after(turn, event)})

    def _check_alert(self, sizes: Sizes, left_s: float | None = None) -> None:
        """`left_s`: of the period, at a minimum."""
        if self.profile is not None and self.profile.dynamic:
            self.alert = self.profile.is_small(self._sum(sizes), left_s)

    def _decide(self, at: float, sizes: Sizes) -> list[Decision]:
        if not self.alert or self._taken:
            return []
        assert self.profile is not None
        if self._rates(sizes) <= 0:
            return []
        is_high = self._sum(sizes) > self.profile.s_max
        return [self._checkpoint(at, sizes, "last minimum" if is_high else "foreseen increase")]

    def _checkpoint(self, at: float, sizes: Sizes, reason: Reason) -> Checkpoint:
        self._taken, self.alert = True, False
        s_max = self.profile.s_max if self.profile is not None and self.profile.dynamic else None
        return Checkpoint(at, self._sum(sizes), sum(size.size for size in sizes.values()), reason, s_max)

    def _sum(self, sizes: Sizes) -> float:
        known = None if self.profile is None else self.profile.dynamic
        return sum(size.size for element, size in sizes.items() if known is None or element in known)

    def _rates(self, sizes: Sizes) -> float:
        """How fast the sum changes."""
        known = frozenset() if self.profile is None else self.profile.dynamic
        return sum(size.rate for element, size in sizes.items() if element in known)

    # --- profiling ------------------------------------------------------------------------------------------------

    def _note(self, sizes: Sizes) -> None:
        """Sizes at a period's end belong to the curves as turning points do."""
        since = self._begins[0] if self._begins else float("-inf")
        for element, size in sizes.items():
            curve = self._curves.setdefault(element, [])
            if not curve or size.at > curve[-1][0]:
                curve.append((size.at, size.size))
            # One point before what is profiled, to know how it began.
            old = sum(at < since for at, _ in curve)
            del curve[: max(0, old - 1)]
        self._occasions = [one for one in self._occasions[-MOST_OCCASIONS:] if one.at >= since]

    def _profile_if_due(self, at: float) -> list[Decision]:
        settings, bounds = self._settings, [*self._begins[-self._settings.remembered :], at]
        fresh = bounds[0] <= self._began
        wait = settings.profiled if self.profile is None else settings.reprofiled_after
        if self._periods_since < max(wait, settings.profiled):
            if self.profile is not None:
                patience = patience_in(
                    self._curves, bounds, settings, self._occasions, self.profile.dynamic, fresh=fresh
                )
                self.profile = replace(self.profile, patience=patience)
            return []
        self._periods_since = 0
        self.profile = profile_of(self._curves, bounds, settings, self._occasions, fresh=fresh)
        return [Profiled(at, self.profile)]


def profile_of(
    curves: Mapping[ElementName, list[Point]],
    bounds: list[float],
    settings: AwareSettings,
    occasions: Sequence[Occasion] = (),
    *,
    fresh: bool = False,
) -> Profile:
    """What the curves of elements say about the periods between `bounds`, of which the last ones are profiled. `occasions`: within them. `fresh`: they
    begin with the run, and with a state that does not come again: how sizes rise from there tells nothing about minima."""
    recent = bounds[-settings.profiled - 1 :]
    starts = fresh and len(recent) == len(bounds)
    spans = {name: between(curve, recent[0], recent[-1]) for name, curve in curves.items() if curve}
    known = {name: settled(curve) for name, curve in spans.items()} if starts else spans
    dynamic = frozenset(name for name, curve in known.items() if lowest(curve) < average(curve) / 2)
    if not dynamic:
        return Profile(dynamic, 0.0, 0.0, 0.0)
    summed = _summed(curves, recent, dynamic, starts)
    periods = [(since, until) for since, until in pairwise(recent) if until > summed[0][0]]
    minima = [lowest(between(summed, since, until)) for since, until in periods or [(recent[0], recent[-1])]]
    s_min, mean = min(minima), average(summed)
    s_max = max(*minima, s_min * (1 + settings.relaxation), s_min + settings.margin * (mean - s_min))
    patience = patience_in(curves, bounds, settings, occasions, dynamic, fresh=fresh)
    return Profile(dynamic, s_max, s_min, mean, patience)


def patience_in(
    curves: Mapping[ElementName, list[Point]],
    bounds: list[float],
    settings: AwareSettings,
    occasions: Sequence[Occasion],
    dynamic: frozenset[ElementName],
    *,
    fresh: bool,
) -> Patience | None:
    """What followed the minima of all periods between `bounds`."""
    asked = [(one.at, one.sum_of(dynamic)) for one in occasions if one.element in dynamic]
    return patience_of(asked, _summed(curves, bounds, dynamic, fresh), settings.period_s)


def _summed(
    curves: Mapping[ElementName, list[Point]],
    bounds: list[float],
    dynamic: frozenset[ElementName],
    fresh: bool,
) -> list[Point]:
    found = total(between(curves[name], bounds[0], bounds[-1]) for name in dynamic if curves.get(name))
    return settled(found) if fresh else found


def _after(turn: Turn, event: Turned) -> Size:
    """What an element says of itself behind its turning point."""
    now = event.sizes.get(event.element)
    return Size(turn.at, turn.size, turn.rate) if now is None else Size(now.at, now.size, turn.rate)
