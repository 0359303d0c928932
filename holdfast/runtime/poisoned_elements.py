"""Elements outside of regions that are parked because of a row that ends, hangs or fails an operator of theirs: `poison="park"`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.compiler.plan import Plan
from holdfast.errors import PoisonFound
from holdfast.ids import ElementName
from holdfast.runtime.failures import story_of
from holdfast.runtime.loss_budgets import parked_by
from holdfast.runtime.telling.feed import Announce
from holdfast.runtime.telling.loss_events import ElementParked, ElementResumed


class PoisonedElements:
    """Of one run. Any thread may call it. `park`: lets an element take nothing, or go on."""

    def __init__(self, plan: Plan, announce: Announce, park: Callable[[ElementName, bool], None]) -> None:
        self._plan, self._announce, self._park = plan, announce, park
        self._lock = threading.Lock()
        self._errors: dict[ElementName, PoisonFound] = {}

    def found(self, element: ElementName, error: PoisonFound) -> None:
        """The element takes nothing more, and neither do those before it all of whose rows lead there only."""
        with self._lock:
            self._errors[element] = error
            for name in self._parked_with(element):
                self._park(name, True)
        self._announce(ElementParked(element, story_of(error)))

    def resume(self) -> None:
        """Somebody has looked."""
        with self._lock:
            resumed, self._errors = list(self._errors), {}
            for element in resumed:
                for name in self._parked_with(element):
                    self._park(name, False)
        for element in resumed:
            self._announce(ElementResumed(element))

    def _parked_with(self, element: ElementName) -> list[ElementName]:
        plan = next(each for each in self._plan.elements if each.name == element)
        return parked_by(self._plan, plan.operators[0].name)

    @property
    def error(self) -> PoisonFound | None:
        """For whoever waits for a run in which an element is parked."""
        return next(iter(self._errors.values()), None)
