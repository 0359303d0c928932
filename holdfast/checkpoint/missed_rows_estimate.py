"""How many rows an operator that runs without replay missed between its checkpoint and its restore: an estimate.

What was taken after the checkpoint is not in the restored state. A window of the last n rows would therefore still hold
rows that the missed ones would have pushed out: they are *stale*. Rows that came in so many seconds are estimated from
how fast they came before. An estimate is all there is: the rate of a stream varies.

Pure: times are handed in, in seconds of a clock that goes on while nobody runs. A clock that jumps makes the estimate
worse, nothing else; one that went back means that nothing was missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

RECENT_S = 60.0
"""Rows so long ago weigh 1/e as much as those of now."""
LEAST_S = 1.0
"""A shorter look says too little: it counts as so long."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the inputs of an operator came, as of a moment. Stored with the operator's own checkpoints.

    `rows` and `seconds` are sums over the past in which the older weighs less; their quotients are the rates. Time
    during which the operator did not run is in neither.
    """

    at_s: float
    had: tuple[int, ...]
    """Rows of each input so far."""
    rows: tuple[float, ...]
    seconds: float

    @staticmethod
    def begin(at_s: float, had: Sequence[int]) -> Pace:
        """Nothing is known yet: all rates are 0."""
        return Pace(at_s, tuple(had), (0.0,) * len(had), 0.0)

    def looked(self, at_s: float, had: Sequence[int]) -> Pace:
        """As of a later moment of the same run, at which the inputs have had so many rows."""
        passed = max(at_s - self.at_s, 0.0)
        weight = math.exp(-passed / RECENT_S)
        came = [max(now - then, 0) for now, then in zip(had, self.had, strict=True)]
        rows = tuple(old * weight + new for old, new in zip(self.rows, came, strict=True))
        return Pace(at_s, tuple(had), rows, self.seconds * weight + passed)

    def resumed(self, at_s: float, had: Sequence[int]) -> Pace:
        """As of the moment of a restore: what passed in between says nothing about the rates."""
        return replace(self, at_s=at_s, had=tuple(had))

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(rows / max(self.seconds, LEAST_S) for rows in self.rows)

    def missed(self, until_s: Sequence[float | None]) -> tuple[int, ...]:
        """How many rows each input is estimated to have had since, up to a moment of its own; None: it missed none."""
        return tuple(
            0 if until is None else missed_rows(rate, until - self.at_s)
            for rate, until in zip(self.rates, until_s, strict=True)
        )


def missed_rows(rate: float, seconds: float) -> int:
    """Rows that came in so many seconds at so many a second: whole ones, never more than that."""
    return int(rate * seconds) if rate > 0 and seconds > 0 else 0
