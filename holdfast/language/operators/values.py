"""What users say about windows, lifetimes and what joins keep: immutable values, a part of the graph.

`str()` of each is how `explain()` tells it. `frame` of a window is what must not change while its state is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

Delays = tuple[tuple[str, int], ...]
"""Microseconds by source; "" for all others. None at all: those that were declared with the event time."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Event-time windows of `size_us`, one every `slide_us`, over the column `on`. A window is complete when the
    watermark has passed its end, and forgotten `lateness_us` later. `delays_us`: by source; "" for all others.
    `idle_us`: how much processing time the watermark waits for a source without rows; None: for ever."""

    size_us: int
    slide_us: int
    on: str
    delays_us: Delays = (("", 0),)
    lateness_us: int = 0
    idle_us: int | None = None

    def with_times(self, on: str, delays: Delays | None, idle_us: int | None) -> TimeWindow:
        """The same window with what the stream knows about event time."""
        if delays is None:
            return replace(self, on=on)
        return replace(self, on=on, delays_us=delays, idle_us=self.idle_us or idle_us)

    def __str__(self) -> str:
        length = f"of {self.size_us / 1e6:g} s every {self.slide_us / 1e6:g} s of {self.on}"
        return length + idle_text(self.idle_us)

    @property
    def frame(self) -> Mapping[str, str | int]:
        return {"size_us": self.size_us, "slide_us": self.slide_us, "on": self.on}


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Rows of a key that follow each other within `gap_us` of the event time in the column `on`. A session is complete when
    the watermark has passed its last row by the gap. `delays_us`, `idle_us`: as in windows of time."""

    gap_us: int
    on: str
    delays_us: Delays = (("", 0),)
    idle_us: int | None = None

    def with_times(self, on: str, delays: Delays | None, idle_us: int | None) -> SessionWindow:
        """The same with what the stream knows about event time."""
        if delays is None:
            return replace(self, on=on)
        return replace(self, on=on, delays_us=delays, idle_us=self.idle_us or idle_us)

    def __str__(self) -> str:
        return f"while {self.on} goes on within {self.gap_us / 1e6:g} s{idle_text(self.idle_us)}"

    @property
    def frame(self) -> Mapping[str, str | int]:
        return {"gap_us": self.gap_us, "on": self.on}


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The last `size` rows of a key, or as many as there were, after every `every`-th row of the key."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"of {self.size} rows every {self.every}"

    @property
    def frame(self) -> Mapping[str, str | int]:
        return {"rows": self.size, "every": self.every}


@dataclass(frozen=True, slots=True)
class DeltaWindow:
    """Rows of a key whose attribute `of` is near enough. Without `every`, windows one behind the other: one ends before
    the row that exceeds its first row by more than `delta`. With it, one after every `every`-th row of the key, over the
    rows that are at most `delta` behind."""

    delta: int | float | Decimal | timedelta
    of: str
    every: int | None = None

    def __str__(self) -> str:
        return f"of {self.delta} of {self.of}" + ("" if self.every is None else f" every {self.every} rows")

    @property
    def frame(self) -> Mapping[str, str | int]:
        every = {} if self.every is None else {"every": self.every}
        return {"delta": str(self.delta), "of": self.of, **every}


@dataclass(frozen=True, slots=True)
class MarkedWindow:
    """Rows of a key, up to and with the one whose boolean column `until` is true."""

    until: str

    def __str__(self) -> str:
        return f"until {self.until}"

    @property
    def frame(self) -> Mapping[str, str | int]:
        return {"until": self.until}


EventWindow = TimeWindow | SessionWindow
"""Windows over event time."""

RowWindow = CountWindow | DeltaWindow | MarkedWindow
"""Windows over rows of a key in the order of their positions."""


@dataclass(frozen=True, slots=True)
class Ttl:
    """A key is forgotten when the watermark over the column `on` has passed its time by `length_us`. Without `on`: when
    the driver's clock has."""

    length_us: int
    on: str | None = None
    delay_us: int | None = None
    """None: the one that was declared with the event time."""
    aside: bool = False
    """Time is what travels beside the rows; the compiler finds out."""

    def __str__(self) -> str:
        return f"forgotten after {self.length_us / 1e6:g} s of {self.on or 'processing time'}"


@dataclass(frozen=True, slots=True)
class Latest:
    """What a stream keeps in a join: its last `rows` rows, of all or of each key; or those of the last `size_us`."""

    rows: int | None
    size_us: int | None
    per_key: bool = False

    def __str__(self) -> str:
        if self.size_us is not None:
            return f"{self.size_us / 1e6:g} s"
        return f"{self.rows} rows{' per key' if self.per_key else ''}"


def idle_text(idle_us: int | None) -> str:
    """How long the watermark waits for sources without rows, as the end of a sentence."""
    return "" if idle_us is None else f", sources idle after {idle_us / 1e6:g} s"
