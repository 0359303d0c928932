"""What lets the epochs of a region begin by themselves: nothing, the clock, or the size of its state (aware_trigger.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock
from holdfast.ids import ElementName
from holdfast.protocol.turning_points import Turn

Wake = Callable[[float, Callable[[], None]], None]
"""Calls a function after so many seconds, in the region's thread; a call of before is off."""


class Trigger:
    """Nothing: somebody asks for epochs, a source or a person. Called by the region's thread, `status` by any."""

    def go_on(self) -> None:
        """All elements have their state and go on."""

    def epoch_begun(self) -> None:
        """An epoch begins, whoever wanted it."""

    def epoch_over(self) -> None:
        """An epoch is visible."""

    def halt(self) -> None:
        """The region is reset, or ends."""

    def turned(self, element: ElementName, turn: Turn) -> None:
        """An element reports a turning point of its size."""

    def status(self) -> dict[str, Any]:
        """For people."""
        return {}


REST_SHARE = 0.5
"""Of the time that an epoch took, for steps before the next one: also if epochs take longer than their period."""


def until_next(period_s: float, took_s: float) -> float:
    """How long after an epoch that took so long the next one begins."""
    return max(period_s - took_s, min(period_s, REST_SHARE * took_s))


class PeriodicTrigger(Trigger):
    """So long after the beginning of an epoch begins the next one; but not before that one is visible, and steps had half of the time
    that it took. `scattered`: the first at a random moment, so that elements that have epochs of their own do not all have them at the
    same time."""

    def __init__(
        self, period_s: float, clock: Clock, due: Callable[[], None], wake: Wake, scattered: bool = False
    ) -> None:
        self._period_s = period_s
        self._clock = clock
        self._began: float | None = None
        self._scattered = scattered
        self._due = due
        self._wake = wake
        self._waits = False

    def go_on(self) -> None:
        self._began = None
        self._wait(self._period_s * (random.random() if self._scattered else 1.0))

    def epoch_over(self) -> None:
        took = 0.0 if self._began is None else self._clock.monotonic() - self._began
        self._wait(until_next(self._period_s, took))

    def _wait(self, seconds: float) -> None:
        self._waits = True
        self._wake(seconds, self._ring)

    def epoch_begun(self) -> None:
        self._waits = False
        self._began = self._clock.monotonic()

    def halt(self) -> None:
        self._waits = False

    def _ring(self) -> None:
        if self._waits:
            self._waits = False
            self._due()
