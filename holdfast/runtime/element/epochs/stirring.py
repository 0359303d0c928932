"""What of an element makes another epoch worth its cost: told to its machine, once behind each pin.

Mostly a step. Besides: threads of operators that had a permit, sources that moved without giving a row, and sinks that would show
something by now. Those are looked at while the element has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.protocol import messages
from holdfast.protocol.element import ElementMachine
from holdfast.runtime.element.loop import ElementLoop

LOOK_S = 0.5
"""Between two looks at sources and sinks."""
SPARE = 200
"""So many times as long as a look takes, nobody looks."""


class Stirring:
    """Called by the element's thread. `feed`: gives the machine an event."""

    def __init__(
        self, loop: ElementLoop, machine: ElementMachine, feed: Callable[[messages.ElementEvent], None]
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._feed = feed
        self._next = float("-inf")

    def stepped(self) -> None:
        """Something happened that the next epoch stores or shows."""
        if not self._machine.has_stirred:
            self._feed(messages.Stirred())

    def look(self) -> None:
        """There is nothing to do."""
        if self._machine.has_stirred or not self._machine.may_step:
            return
        now = self._loop.clock.monotonic()
        if any(run.has_worked for run in self._loop.worker.threaded):
            self._feed(messages.Stirred())
        elif now >= self._next:
            begun = time.perf_counter()
            self._next = now + LOOK_S
            if self._has_moved():
                self._feed(messages.Stirred())
            self._next = now + max(LOOK_S, SPARE * (time.perf_counter() - begun))

    def _has_moved(self) -> bool:
        worker = self._loop.worker
        return any(run.has_moved for run in worker.sources) or any(
            run.sink.wants_epoch() for run in worker.sinks
        )
