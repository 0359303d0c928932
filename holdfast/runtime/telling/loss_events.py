"""Events about loss budgets."""

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
