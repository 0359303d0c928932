"""What `holdfast.tumbling` and `holdfast.sliding` give: immutable values, a part of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Event-time windows of `size_us`, one every `slide_us`, over the column `on`. A window is complete when the
    watermark has passed its end, and forgotten `lateness_us` later. `delays_us`: by source; "" for all others.
    `idle_us`: for so long of processing time the watermark waits for a source without rows; None: for ever."""

    size_us: int
    slide_us: int
    on: str
    delays_us: tuple[tuple[str, int], ...] = (("", 0),)
    lateness_us: int = 0
    idle_us: int | None = None


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last `size` rows of a key, or as many as there were, after every `every`-th row of the key."""

    size: int
    every: int


@dataclass(frozen=True, slots=True)
class DeltaWindow:
    """Rows of a key whose attribute `of` is near enough. Without `every`, windows one behind the other: one ends before
    the row that exceeds its first row by more than `delta`. With it, one after every `every`-th row of the key, over the
    rows that are at most `delta` behind."""

    delta: int | float | Decimal | timedelta
    of: str
    every: int | None = None


@dataclass(frozen=True, slots=True)
class MarkedWindow:
    """Rows of a key, up to and with the one whose boolean column `until` is true."""

    until: str


RowWindow = CountWindow | DeltaWindow | MarkedWindow
"""Windows over rows of a key in the order of their positions."""
