"""What `sort` is told."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.language.annotations import Duration
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import event_time
from holdfast.language.operators.windows import Delay, delays_us, idle_us


@dataclass(frozen=True, slots=True)
class SortSpec(Spec):
    """Rows leave in the order of the event time `on`, as far as the watermark has passed. `delays_us`, `idle_us`: as in
    windows."""

    on: str
    delays_us: tuple[tuple[str, int], ...] = (("", 0),)
    idle_us: int | None = None


def sort_spec(on: str, delay: Delay, idle: Duration | None) -> SortSpec:
    """The spec of a sort; refuses what can be refused without knowing the columns."""
    return SortSpec(event_time(on), delays_us(delay), idle_us(idle))
