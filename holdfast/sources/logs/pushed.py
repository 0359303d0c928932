"""What Spark's conditions on a log say about times. Pure.

Spark tells a data source conditions of the form column, sign, value, all of which must hold for the rows that a read is to give. They are
taken as bounds, and Spark looks at each row all the same: so a bound may be too wide, never too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from holdfast.log.query.wanted import Wanted
from holdfast.log.rows import microseconds

Bounds = tuple[int | None, int | None]
"""[since, until) in microseconds since 1970; None: no bound."""

_BY_KIND: Mapping[str, Callable[[Sequence[int]], Bounds]] = {
    "GreaterThan": lambda at: (at[0] + 1, None),
    "GreaterThanOrEqual": lambda at: (at[0], None),
    "LessThan": lambda at: (None, at[0]),
    "LessThanOrEqual": lambda at: (None, at[0] + 1),
    "EqualTo": lambda at: (at[0], at[0] + 1),
    "EqualNullSafe": lambda at: (at[0], at[0] + 1),
    "In": lambda at: (min(at), max(at) + 1),
}
"""By the class of a filter of Spark's."""


def wanted_by(filters: Iterable[Any], column: str | None) -> Wanted:
    """The stretch of time in which all rows lie that conditions on the log's time column let pass. None: it has no such column."""
    since: list[int] = []
    until: list[int] = []
    for each in filters:
        kind = type(each).__name__
        if column is None or kind not in _BY_KIND or tuple(each.attribute) != (column,):
            continue
        values = each.value if isinstance(each.value, list | tuple) else [each.value]
        if values and all(isinstance(value, date) for value in values):
            first, behind = _BY_KIND[kind]([_micros(value) for value in values])
            since += [] if first is None else [first]
            until += [] if behind is None else [behind]
    return Wanted(max(since, default=None), min(until, default=None))


def _micros(value: date) -> int:
    """A moment without a zone is UTC, a day its first moment: as the log's own times are read."""
    return microseconds(value if isinstance(value, datetime) else datetime.combine(value, time(), UTC))


def narrower(one: Wanted, other: Wanted) -> Wanted:
    """What both want; positions are those of `one`."""
    since = [at for at in (one.since, other.since) if at is not None]
    until = [at for at in (one.until, other.until) if at is not None]
    return Wanted(max(since, default=None), min(until, default=None), one.start)
