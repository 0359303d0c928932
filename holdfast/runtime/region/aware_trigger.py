"""The rim of `protocol/timing/aware_timing.py`: gives it time and sizes, and lets epochs begin when it says so.

All methods but `status` are called by the region's thread. What is decided is announced; so is, once in each period, how the
sizes changed: at most MOST_POINTS turning points, so that the event log stays bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.clock import Clock
from holdfast.compiler.plan import RegionPlan
from holdfast.ids import ElementName, RegionName
from holdfast.protocol.size_curves import Point, thinned, total
from holdfast.protocol.timing import aware_timing as timing
from holdfast.protocol.turning_points import Size, Turn
from holdfast.runtime.element.epochs.size_watch import SizeWatch
from holdfast.runtime.region.triggers import PeriodicTrigger, Trigger, Wake
from holdfast.runtime.telling.events import EpochDecided, StateSizes, TimingProfiled
from holdfast.runtime.telling.feed import Announce

MOST_POINTS = 400
"""Of all elements together, in one event: stores leave larger ones out."""
LEAST_POINTS = 4
"""Of each element."""
TOLD_DECISIONS, TOLD_POINTS = 5, 40
"""In the status."""


class AwareTrigger(Trigger):
    """Of one region. `due` asks for an epoch, if something is new; `is_idle`: nothing is."""

    def __init__(
        self,
        region: RegionName,
        period_s: float,
        clock: Clock,
        announce: Announce,
        due: Callable[[], None],
        wake: Wake,
        is_idle: Callable[[], bool],
    ) -> None:
        self.watches: dict[ElementName, SizeWatch] = {}
        """Of the elements that have state."""
        self._region = region
        self._clock = clock
        self._announce = announce
        self._due = due
        self._wake = wake
        self._is_idle = is_idle
        self._policy = timing.AwareTiming(timing.AwareSettings(period_s))
        self._at_work = False
        self._asked = False
        """An epoch was decided that has not begun yet."""
        self._points: dict[ElementName, list[Point]] = {}
        self._newest_points: dict[ElementName, Point] = {}
        """The last point of each element that was announced."""
        self._decided: deque[EpochDecided] = deque(maxlen=TOLD_DECISIONS)

    def know(self, profile: timing.Profile) -> None:
        """Take over what profiling found elsewhere; before the region works. For benchmarks, whose windows are short."""
        self._policy.profile = profile

    # --- what happens in the region -----------------------------------------------------------------------------

    def go_on(self) -> None:
        self._at_work, self._asked = True, False
        sizes = self._sizes()
        self._points = {name: [(size.at, size.size)] for name, size in sizes.items()}
        self._feed(timing.Began(self._clock.monotonic(), sizes, self._is_idle()))

    def halt(self) -> None:
        if self._at_work:
            self._at_work = False
            self._tell_sizes(self._sizes())

    def turned(self, element: ElementName, turn: Turn) -> None:
        if self._at_work:
            sizes = self._sizes()
            point = (turn.at, turn.size)
            if not turn.foreseen and point != self._newest_points.get(element):
                self._points.setdefault(element, []).append(point)
            self._feed(timing.Turned(self._clock.monotonic(), element, turn, sizes, self._is_idle()))

    def epoch_begun(self) -> None:
        if self._asked:
            self._asked = False
        elif self._at_work:
            self._feed(timing.EpochBegun(self._clock.monotonic()))

    def _period_over(self) -> None:
        if self._at_work:
            sizes, is_idle = self._sizes(), self._is_idle()
            if not is_idle:
                self._tell_sizes(sizes)
            self._feed(timing.PeriodOver(self._clock.monotonic(), sizes, is_idle))

    # --- what the policy decides --------------------------------------------------------------------------------

    def _feed(self, event: timing.TimingEvent) -> None:
        for decision in self._policy.handle(event):
            match decision:
                case timing.Checkpoint():
                    self._decide(decision)
                case timing.Profiled(at, profile):
                    s_max, s_min, average = map(round, (profile.s_max, profile.s_min, profile.average))
                    names = tuple(sorted(profile.dynamic))
                    profiled = TimingProfiled(self._region, self._wall(at), s_max, s_min, average, names)
                    self._announce(profiled)
        if not isinstance(event, timing.Turned):
            self._wake(max(0.0, self._policy.period_ends - self._clock.monotonic()), self._period_over)

    def _decide(self, chosen: timing.Checkpoint) -> None:
        if self._asked:  # the one before takes longer than a period: that is the next one
            return
        event = EpochDecided(
            self._region,
            chosen.reason,
            self._wall(chosen.at),
            round(chosen.size),
            round(chosen.whole),
            None if chosen.s_max is None else round(chosen.s_max),
        )
        self._decided.append(event)
        self._announce(event)
        self._asked = True
        self._due()

    # --- what is told -------------------------------------------------------------------------------------------

    def _tell_sizes(self, sizes: Mapping[ElementName, Size]) -> None:
        points, self._points = self._points, {}
        for name, size in sizes.items():
            point, curve = (size.at, size.size), points.setdefault(name, [])
            if point not in (self._newest_points.get(name), *curve[-1:]):
                curve.append(point)
            self._newest_points[name] = point
        most = max(LEAST_POINTS, MOST_POINTS // max(1, len(points)))
        curves = {
            str(name): [[self._wall(at), round(size)] for at, size in thinned(curve, most)]
            for name, curve in points.items()
        }
        names, each = list(curves), MOST_POINTS // LEAST_POINTS
        for begin in range(0, len(names), each):
            some = names[begin : begin + each]
            self._announce(StateSizes(self._region, {name: curves[name] for name in some}))

    def status(self) -> dict[str, Any]:
        """Newest sizes, threshold, alert, the last decisions, the recent curve."""
        sizes, profile = self._sizes(), self._policy.profile
        watches, curve = list(self.watches.values()), total(self._policy.curves().values())
        looks = sum(watch.looks for watch in watches)
        dynamic = frozenset() if profile is None else profile.dynamic
        timing = {
            "state_bytes": round(sum(size.size for size in sizes.values())),
            "dynamic_bytes": round(sum(size.size for name, size in sizes.items() if name in dynamic)),
            "dynamic": sorted(dynamic),
            "s_max": round(profile.s_max) if profile is not None and dynamic else None,
            "alert": self._policy.alert,
            "profiling": profile is None,
            "decisions": [[each.reason, each.size, each.at] for each in list(self._decided)],
            "curve": [[self._wall(at), round(size)] for at, size in thinned(curve, TOLD_POINTS)],
            "look_us": round(1e6 * sum(watch.spent_s for watch in watches) / looks, 1) if looks else None,
        }
        return {"timing": timing}

    def _sizes(self) -> dict[ElementName, Size]:
        found = {name: watch.latest for name, watch in list(self.watches.items())}
        return {name: size for name, size in found.items() if size is not None}

    def _wall(self, at: float) -> float:
        return round(self._clock.wall() - (self._clock.monotonic() - at), 3)


def trigger_of(
    plan: RegionPlan,
    clock: Clock,
    announce: Announce,
    due: Callable[[], None],
    wake: Wake,
    is_idle: Callable[[], bool],
) -> Trigger:
    """What the user chose for a region."""
    period_s = plan.settings.period_s
    match plan.settings.trigger:
        case "periodic":
            return PeriodicTrigger(period_s, clock, due, wake, scattered=plan.group is not None)
        case "aware":
            return AwareTrigger(plan.name, period_s, clock, announce, due, wake, is_idle)
        case _:
            return Trigger()
