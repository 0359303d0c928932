"""What an element of a region does for its Python operators between two steps: threads, and points at which they may be
checkpointed."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.ids import OperatorName
from holdfast.protocol import messages
from holdfast.protocol.element import ElementMachine
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.region.region_side import RegionSide


class PythonCare:
    """Called by the element's thread; `unready` by any. `guarded`: runs what may break the element; `feed`: gives the
    machine an event."""

    def __init__(
        self,
        loop: ElementLoop,
        machine: ElementMachine,
        region: RegionSide,
        guarded: Callable[[Callable[[], object]], None],
        feed: Callable[[messages.ElementEvent], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._region = region
        self._guarded = guarded
        self._feed = feed

    def turn(self) -> bool:
        """True if the machine was told something."""
        if self._loop.worker.conditional and self._is_ready():
            return True
        for run in self._loop.worker.threaded:
            # They have permits while the machine allows it; what they raised breaks the element.
            if self._machine.may_step:
                self._guarded(run.raise_failure)
            run.let(self._machine.may_run_threads)
            if run.take_wish():
                self._region.epoch_wanted()
        return False

    def _is_ready(self) -> bool:
        """If the machine waits for operators that can be checkpointed at certain points only: True if they came to one."""
        awaited, runs = self._machine.awaits_operators, self._loop.worker.conditional
        for run in runs:
            run.stops_when_ready = awaited is not None
        found: list[bool] = []
        if awaited is not None:
            self._guarded(lambda: found.append(all(run.may_checkpoint() for run in runs)))
        if awaited is None or found != [True]:
            return False
        self._feed(awaited)
        self._loop.ends.signals.notify()  # others need not wait for space any more
        return True

    @property
    def unready(self) -> tuple[OperatorName, ...]:
        """For people: operators that an epoch waits for."""
        is_awaited = self._machine.awaits_operators is not None
        return tuple(run.name for run in self._loop.worker.conditional) if is_awaited else ()
