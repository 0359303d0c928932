"""Events about loss budgets, and about elements outside of regions that are parked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.runtime.telling.run_event import RunEvent


@dataclass(frozen=True, slots=True)
class BudgetExceeded(RunEvent):
    """More was lost on the way to the stream of an operator than `.may_lose(…)` allows. `then`: what follows: "warn", "park" or "consistent".
    Rows and seconds: since somebody resumed, over all runs."""

    kind: ClassVar[str] = "budget.exceeded"
    operator: str
    then: str
    reasons: tuple[str, ...]
    lost: int = 0
    passed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BudgetResumed(RunEvent):
    """Somebody resumed: the stream flows again, and its budget is whole."""

    kind: ClassVar[str] = "budget.resumed"
    operator: str


@dataclass(frozen=True, slots=True)
class ElementParked(RunEvent):
    """An element outside of regions takes nothing more: a row was found that the user wants to look at."""

    kind: ClassVar[str] = "element.parked"
    element: str
    reason: str


@dataclass(frozen=True, slots=True)
class ElementResumed(RunEvent):
    """Somebody resumed: it goes on."""

    kind: ClassVar[str] = "element.resumed"
    element: str
