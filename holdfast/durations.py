"""Lengths of time as people write them: seconds, a timedelta, or text such as "90 seconds" and "1 hour 30 minutes"."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from holdfast.errors import TopologyError

Duration = float | int | timedelta | str
"""Seconds, a timedelta, or text: "5 minutes", "1 hour 30 minutes"."""

_UNITS = {
    1e-6: ("us", "µs", "microsecond"),
    1e-3: ("ms", "millisecond"),
    1.0: ("s", "sec", "second"),
    60.0: ("m", "min", "minute"),
    3600.0: ("h", "hour"),
    86400.0: ("d", "day"),
    604800.0: ("w", "week"),
}
SECONDS = {name: length for length, names in _UNITS.items() for name in names}
_PIECE = re.compile(r"\s*(?:,|and\b)?\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)", re.IGNORECASE)


def seconds(value: Duration, what: str, *, zero: bool = False) -> float:
    """A duration as seconds; refuses what is no finite time above zero, or, with `zero`, not below it."""
    cure = f"Give {what} as seconds, as text such as '5 minutes', or as a datetime.timedelta, above zero."
    if isinstance(value, str):
        value = _parsed(value, what)
    elif isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TopologyError(f"{what} must be a duration, not {value!r}.", cure=cure)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise TopologyError(f"{what} must be more than 0 s, not {value!r}.", cure=cure)
    return float(value)


def _parsed(text: str, what: str) -> float:
    """ "1 hour 30 minutes" as seconds. A bare number is not taken: its unit may be anything."""
    total, at = 0.0, 0
    while at < len(text.rstrip()):
        piece = _PIECE.match(text, at)
        unit = None if piece is None else _unit(piece[2])
        if piece is None or unit is None:
            raise TopologyError(
                f"{what}={text!r} is no duration.",
                cure="Write numbers with units, such as '90 seconds', '5 minutes', '1 hour 30 minutes', '250 ms'.",
            )
        total += float(piece[1]) * unit
        at = piece.end()
    if not text.strip():
        raise TopologyError(f"{what}={text!r} is no duration.", cure="Write '90 seconds'.")
    return total


def _unit(name: str) -> float | None:
    lower = name.lower()
    return SECONDS.get(lower, SECONDS.get(lower.removesuffix("s")) if len(lower) > 2 else None)
