"""Which own checkpoint comes first when several are due. Pure.

Each operator outside of regions has a period of its own. Those whose time has come wait in a queue, ordered by how overdue they are *for
their period*: half a second is nothing for one that is stored every minute, and half of its loss budget for one that is stored every second. So
whoever asked for little loss gets it first, and a large state with a long period, which keeps the store busy, does not hold up the small ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.ids import OperatorName


@dataclass(frozen=True, slots=True)
class Due:
    """When an operator's next checkpoint should be taken."""

    operator: OperatorName
    period_s: float
    at_s: float

    def overdue(self, now_s: float) -> float:
        """In periods; below 0: its time has not come."""
        return (now_s - self.at_s) / max(self.period_s, 1e-9)


def by_priority(dues: Iterable[Due], now_s: float) -> list[OperatorName]:
    """Those whose time has come, the most overdue first; of equals the one with the shorter period."""
    waiting = [due for due in dues if due.at_s <= now_s]
    order = sorted(waiting, key=lambda due: (-due.overdue(now_s), due.period_s, due.operator))
    return [due.operator for due in order]
