"""What following changes costs: the pace of steps whose changes were followed, beside that of steps whose were not. Pure.

Both kinds occur by themselves. Nothing is followed before the first base, nor between the last delta of a chain and the
base behind it, nor while deltas do not pay; all other steps are followed. So probing costs nothing: no step is done
twice, and none is followed that would not be.

A step is disturbed by others, never helped by them: the fastest of the last steps is nearest to what the code takes.

Must hold: what is told is never less than nothing, and nothing is told of steps too few or too small to be told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

STEP_ROWS_MIN = 256
"""A smaller step shows what a call takes rather than what a row takes."""
STEPS_MIN = 3
"""Of each kind, before they are compared."""
STEPS_KEPT = 16
"""Of each kind; older ones are forgotten, as rows and state change."""
NOTICEABLE_S = 0.001
"""Less than this for a checkpoint cannot be told from noise."""


@dataclass(frozen=True, slots=True)
class Paces:
    """Seconds per row of the last steps, the newest last."""

    followed: tuple[float, ...] = ()
    plain: tuple[float, ...] = ()

    def after(self, rows: int, seconds: float, *, is_followed: bool) -> Paces:
        """With one more step."""
        if rows < STEP_ROWS_MIN:
            return self
        which = "followed" if is_followed else "plain"
        return replace(self, **{which: (*getattr(self, which), seconds / rows)[-STEPS_KEPT:]})

    @property
    def per_row_s(self) -> float | None:
        """What following adds to a row. None: not known yet."""
        if min(len(self.followed), len(self.plain)) < STEPS_MIN:
            return None
        return max(0.0, min(self.followed) - min(self.plain))


def logging_seconds(paces: Mapping[int, Paces], rows: Mapping[int, int]) -> float | None:
    """What following the changes of so many rows took, both by input port. None: it is not known, or not noticeable."""
    each = {port: paces[port].per_row_s if port in paces else None for port, count in rows.items() if count}
    known = {port: seconds for port, seconds in each.items() if seconds is not None}
    if len(known) < len(each):
        return None
    whole = sum(rows[port] * seconds for port, seconds in known.items())
    return whole if whole >= NOTICEABLE_S else None
