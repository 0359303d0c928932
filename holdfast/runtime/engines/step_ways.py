"""Where a small keyed step is done: in the driver at once, or by a job of Spark's. Pure: costs are told, and answered from.

Both ways run the same code on the same state and may follow each other in any order. A job costs many times what a few rows cost, until
there are too many of them, or the state has grown so that one process is slower than several.

    cost of a way = what it costs without rows, as measured lately + rows × what a row costs
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Way = Literal["driver", "job"]

ROW_S: dict[Way, float] = {"driver": 10e-6, "job": 2e-6}
"""What a row costs, about."""
BEGIN_S: dict[Way, float] = {"driver": 0.005, "job": 0.15}
"""What a step without rows costs, until it is measured."""
NEWS = 0.2
"""The weight of a measurement against those before it."""
FORGETTING = 0.02
"""Of what is known about the driver, with each job: what was slow once is tried again some day."""
MUCH_CHEAPER = 0.7
"""What the other way must cost at most, of this one: figures waver, ways should not."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What is known about one operator's steps. `now`: the way they take."""

    driver_s: float = BEGIN_S["driver"]
    job_s: float = BEGIN_S["job"]
    now: Way = "driver"

    def cost(self, way: Way, rows: int) -> float:
        return (self.driver_s if way == "driver" else self.job_s) + rows * ROW_S[way]

    def chosen(self, rows: int) -> Ways:
        """With the way that a step of so many rows should take."""
        other: Way = "job" if self.now == "driver" else "driver"
        is_better = self.cost(other, rows) < MUCH_CHEAPER * self.cost(self.now, rows)
        return replace(self, now=other) if is_better else self

    def measured(self, way: Way, rows: int, seconds: float) -> Ways:
        """After a step that took so long."""
        alone = max(0.0, seconds - rows * ROW_S[way])
        if way == "driver":
            return replace(self, driver_s=_after(self.driver_s, alone, NEWS))
        driver_s = _after(self.driver_s, BEGIN_S["driver"], FORGETTING)
        return replace(self, job_s=_after(self.job_s, alone, NEWS), driver_s=driver_s)


def _after(known: float, news: float, weight: float) -> float:
    return known + weight * (news - known)
