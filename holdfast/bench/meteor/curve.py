"""The true size of an application's state behind so many rows, and what an oracle and a profile know from it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.ids import ElementName
from holdfast.protocol.size_curves import average, lowest, settled
from holdfast.protocol.timing.aware_timing import AwareSettings, Occasion, Profile, profile_of
from holdfast.protocol.turning_points import TurnDetector

PROFILED = 4
"""Periods of the true sizes of which a profile is made."""


@dataclass(frozen=True)
class Curve:
    """(rows, bytes) step by step."""

    points: tuple[tuple[int, int], ...]

    @property
    def least_over_average(self) -> float:
        """Without the beginning, when nothing was kept yet, and the end of the input, when everything leaves."""
        last = 0.9 * self.points[-1][0]
        known = settled([(float(rows), float(size)) for rows, size in self.points if rows <= last])
        return lowest(known) / average(known)

    @property
    def mean(self) -> float:
        return sum(size for _, size in self.points) / len(self.points)

    def minima(self, begin: float, rows_per_period: float, periods: int) -> list[int]:
        """The rows at which the state is least, in each of some periods behind the first `begin` rows."""
        return [rows for _, rows in self._least(begin, rows_per_period, periods)]

    def least(self, begin: float, rows_per_period: float, periods: int) -> list[int]:
        """How small it is there."""
        return [size for size, _ in self._least(begin, rows_per_period, periods)]

    def _least(self, begin: float, rows_per_period: float, periods: int) -> list[tuple[int, int]]:
        found = []
        for number in range(periods):
            low = begin + number * rows_per_period
            inside = [(size, rows) for rows, size in self.points if low < rows <= low + rows_per_period]
            if inside:
                found.append(min(inside))
        return found

    def profile(self, kernel: str, rate: float, period_s: float) -> Profile:
        """What profiling finds after enough periods: a window has too few for it."""
        curve = [(0.0, 0.0), *((rows / rate, float(size)) for rows, size in self.points)]
        periods = max(1, min(PROFILED, int(curve[-1][0] / period_s)))
        bounds = [number * period_s for number in range(periods + 1)]
        element, detector, occasions = ElementName(kernel), TurnDetector(), []
        for at, size in curve:
            for turn in (detector.sample(at, size), detector.foreseen):
                if turn is not None and turn.halved and detector.latest is not None and at <= bounds[-1]:
                    occasions.append(Occasion(at, element, {element: detector.latest}))
        return profile_of({element: curve}, bounds, AwareSettings(period_s), occasions, fresh=True)
