"""What lets the epochs of a region begin by themselves: nothing, the clock, or the size of its state (aware_trigger.py); and what is
done while none comes."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.ids import Attempt, ElementName, Epoch
from holdfast.protocol.controller import RegionController
from holdfast.protocol.messages import ControllerEvent, NewSince
from holdfast.protocol.turning_points import Turn
from holdfast.runtime.element.region_life import RegionLife
from holdfast.runtime.failures import is_fatal
from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.region.restore_budget import RestoreBudget

logger = logging.getLogger("holdfast.region")
SOON_S = 1.0
"""So long after an epoch's time it goes, at the latest."""

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


class IdleTime:
    """What a region does while no epoch comes because nothing is new: old epochs still go when their time is over; and when an epoch has
    to come all the same, its controller is told.

    Besides what elements tell, an epoch has something new for

        sources     that were not told how far they may let go of rows, logs say: they hear of what *all* epochs that are kept by number
                    have behind them, so as many more come as are kept
        the store   where rows that entered by `.replayable()` stay until an epoch behind the one that has them
        a bound     on restore time that what was learned since breaks, and that bases would keep

    Used by the region's thread. `tell`: the controller; `later`: a timer of its own.
    """

    def __init__(
        self,
        controller: RegionController,
        epochs: RegionEpochs,
        lives: Mapping[ElementName, RegionLife],
        budget: RestoreBudget,
        clock: Clock,
        tell: Callable[[ControllerEvent], None],
        later: Wake,
    ) -> None:
        self._controller = controller
        self._epochs = epochs
        self._lives = lives
        self._budget = budget
        self._clock = clock
        self._tell = tell
        self._later = later

    def went_on(self, epoch: Epoch, attempt: Attempt) -> None:
        """All elements have their state."""
        if self._budget.wants_bases or self._keeps_rows:
            self._tell(NewSince(epoch, attempt))
        self._wait()

    def shown(self, epoch: Epoch) -> None:
        """An epoch is visible, and old ones were let go."""
        if self._epochs.owes_positions or self._keeps_rows:
            self._tell(NewSince(epoch, self._controller.record.attempt))
        self._wait()

    @property
    def _keeps_rows(self) -> bool:
        logs = [life.borders.log for life in self._lives.values()]
        return any(log is not None and log.waits_for_epoch for log in logs)

    def _wait(self) -> None:
        left = self._epochs.until_next_goes(self._clock.wall())
        if left is not None:
            self._later(left + SOON_S, self._let_go)

    def _let_go(self) -> None:
        if not self._controller.is_idle:
            return  # the next epoch does it
        try:
            self._epochs.let_old_go(self._clock.wall())
        except HoldfastError as error:
            if is_fatal(error):
                raise
            logger.warning("epochs whose time is over could not be removed: %s", error)
        self._wait()
