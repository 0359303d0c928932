"""What lets the epochs of a region begin by themselves: nothing, the clock, or the size of its state (aware_trigger.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

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


class PeriodicTrigger(Trigger):
    """So long after an epoch, or after the beginning, comes the next one. `scattered`: the first at a random moment, so that
    elements that have epochs of their own do not all have them at the same time."""

    def __init__(self, period_s: float, due: Callable[[], None], wake: Wake, scattered: bool = False) -> None:
        self._period_s = period_s
        self._scattered = scattered
        self._due = due
        self._wake = wake
        self._waits = False

    def go_on(self) -> None:
        self._wait(random.random() if self._scattered else 1.0)

    def epoch_over(self) -> None:
        self._wait(1.0)

    def _wait(self, share: float) -> None:
        self._waits = True
        self._wake(share * self._period_s, self._ring)

    def epoch_begun(self) -> None:
        self._waits = False

    def halt(self) -> None:
        self._waits = False

    def _ring(self) -> None:
        if self._waits:
            self._waits = False
            self._due()
