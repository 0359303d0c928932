"""How large an element's state is, looked at behind each step, and its turning points as they become known.

Must hold: looking takes at most about 2 % of the time: after a look that took long the next one comes later. A look between two steps never takes
the place of the one behind the next: there the state falls, and an epoch that is decided upon at once finds it small.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.clock import Clock
from holdfast.protocol.turning_points import Size, Turn, TurnDetector
from holdfast.runtime.runs.operator_runs import Remembering

LEAST_S = 0.02
"""Between two looks."""
SPARE = 50
"""So many times as long as a look takes, nobody looks."""
RECENT = 3
"""The shortest of so many looks counts: one that was long because the machine was busy says nothing about the next."""


class SizeWatch:
    """Of one element. Its thread calls `look`, `look_again` and `anew`; others may read `latest`, `looks` and `spent_s`. `by_itself`: the state
    may change between steps too."""

    def __init__(
        self,
        runs: Sequence[Remembering],
        clock: Clock,
        report: Callable[[Turn], None],
        by_itself: bool = False,
        measure: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._runs = runs
        self._clock = clock
        self._report = report
        self._by_itself = by_itself
        self._stepped = False
        """Since the last look."""
        self._measure = measure
        self._detector = TurnDetector()
        self._next = 0.0
        self._took: deque[float] = deque(maxlen=RECENT)
        self.looks = 0
        self.spent_s = 0.0
        """For looking, in all."""

    @property
    def latest(self) -> Size | None:
        return self._detector.latest

    def anew(self) -> None:
        """The element has another state now."""
        self._detector.forget()
        self._next = float("-inf")
        self.look()

    def look_again(self) -> None:
        """There is nothing to do: look if there was no time for it behind the last step."""
        if self._stepped or self._by_itself:
            self.look()

    def look(self) -> None:
        """Behind a step: sample the size, if it is time."""
        now = self._clock.monotonic()
        self._stepped = now < self._next
        if self._stepped:
            return
        begun = self._measure()
        size = sum(run.state_size() for run in self._runs)
        took = self._measure() - begun
        self.looks, self.spent_s = self.looks + 1, self.spent_s + took
        self._took.append(took)
        self._next = now + max(LEAST_S, SPARE * min(self._took))
        for turn in (self._detector.sample(now, size), self._detector.foreseen):
            if turn is not None:
                self._report(turn)
