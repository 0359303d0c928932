"""Which Python values a flat Arrow type holds as they are, family by family of types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

_NULL = type(None)
_INTS = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
_FLOATS = frozenset({float, np.float16, np.float32, np.float64})
_BYTES = frozenset({bytes, bytearray, memoryview})
_MIDNIGHT = time()
_DIGITS = 40
"""More than any column has."""
_NOT_WHOLE = "it is not whole; round it, or declare the column double or decimal"
_ZONE_LOST = "its zone would be lost; convert it to UTC, or take the zone away"


class Refused(Exception):
    """Why a value does not fit."""


@dataclass(frozen=True, slots=True)
class Family:
    """A sort of columns. `plain`: types whose values Arrow takes as they are, or refuses by itself. `faithful`: another value as one
    of those; Refused if none is the same. `made`: values of these types as an array. `changed`: the first row that is not what
    was given after all, and `why`; asked where there are values of `doubtful` types (None: always)."""

    plain: frozenset[type]
    faithful: Callable[[Any], Any]
    made: Callable[[Sequence[Any], pa.DataType], pa.Array] = pa.array
    changed: Callable[[Sequence[Any], pa.Array], int | None] = lambda values, found: None
    why: str = ""
    doubtful: frozenset[type] | None = frozenset()


def standing_for(value: Any) -> Any:
    """The Python value that a scalar of NumPy or Arrow stands for."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _moment(value)
    return value.item() if isinstance(value, np.generic) else value


def _moment(value: Any) -> Any:
    if np.isnat(value):
        raise Refused("it is no time; give None")
    unit = "datetime64[us]" if isinstance(value, np.datetime64) else "timedelta64[us]"
    micros = value.astype(unit)
    if micros != value:
        raise Refused("its nanoseconds would be lost; round it to microseconds")
    found = micros.item()
    if isinstance(found, int):
        raise Refused("Python has no such time")
    return found


@cache
def family(kind: pa.DataType) -> Family:
    """What fits into columns of the type."""
    for has, of in _FAMILIES:
        if has(kind):
            return of
    return _OTHER


# --- numbers ---


def _whole(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        raise Refused("a truth value is no number; give int(value)")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal):
        if _is_whole(value):
            return int(value)
        raise Refused(_NOT_WHOLE)
    raise _no("number", value)


def _cut(values: Sequence[Any], found: pa.Array) -> int | None:
    """Where a float lost what is behind its point."""
    return next(
        (row for row, value in enumerate(values) if type(value) in _FLOATS and not value.is_integer()), None
    )


def _is_whole(value: float | Decimal) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return value.is_finite() and value.adjusted() < _DIGITS and value == value.to_integral_value()


def _double(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        raise Refused("a truth value is no number; give int(value)")
    if isinstance(value, int | float):
        return value
    if isinstance(value, Decimal):
        raise Refused("a decimal is not exact there; give float(value), or declare the column decimal")
    raise _no("number", value)


def _decimal(value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        raise Refused("a truth value is no number; give int(value)")
    if isinstance(value, int | Decimal):
        return value
    if isinstance(value, float):
        raise Refused("a float is not exact there; give Decimal(str(value)), or declare the column double")
    raise _no("number", value)


def _too_large(values: Sequence[Any], found: pa.Array) -> int | None:
    """Where a finite number became infinite."""
    at = np.flatnonzero(np.isinf(found.to_numpy(zero_copy_only=False).astype(np.float64)))
    return next((int(row) for row in at if abs(values[int(row)]) != float("inf")), None)


# --- texts, truth ---


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value
    raise _no("text", value, "; give str(value)" if isinstance(value, int | float) else "")


def _bytes(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return value
    raise _no("sequence of bytes", value)


def _truth(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    raise _no("truth value", value, "; give value != 0" if isinstance(value, int | float) else "")


# --- time ---


def _instant(value: Any) -> Any:
    if isinstance(value, datetime):
        return _to_the_microsecond(value)
    how = "; give datetime.fromtimestamp(seconds, timezone.utc)" if isinstance(value, int | float) else ""
    raise _no("moment", value, how)


def _nanos(value: Any) -> Any:
    """For columns that have room for nanoseconds; always as instants of UTC."""
    if not isinstance(value, datetime) or value != value:
        return _instant(value)
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _has_nanos(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")


def _clock_time(value: Any) -> Any:
    return _without_zone(_instant(value))


def _without_zone(value: Any) -> Any:
    if value.utcoffset():
        raise Refused(_ZONE_LOST)
    return value.replace(tzinfo=None)


def _day(value: Any) -> Any:
    if isinstance(value, datetime):
        if _to_the_microsecond(value).time() != _MIDNIGHT:
            raise Refused("its time of day would be lost; give value.date()")
        return value.date()
    if isinstance(value, date):
        return value
    raise _no("date", value)


def _span(value: Any) -> Any:
    if isinstance(value, timedelta):
        return _to_the_microsecond(value)
    raise _no("span of time", value, "; give a timedelta" if isinstance(value, int | float) else "")


def _time_of_day(value: Any) -> Any:
    if isinstance(value, time):
        return value
    raise _no("time of day", value)


def _to_the_microsecond(value: Any) -> Any:
    """Of pandas' times, which have nanoseconds, and one that is none."""
    if value != value:
        raise Refused("it is no time; give None")
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise Refused("its nanoseconds would be lost; round it to microseconds")
    return value


def _zoned(values: Sequence[Any], found: pa.Array) -> int | None:
    """Where a zone was lost."""
    if {None}.issuperset(map(attrgetter("tzinfo"), filter(None, values))):
        return None
    return next((row for row, value in enumerate(values) if value is not None and value.utcoffset()), None)


def _in_unit(
    micros: Callable[[pa.DataType], pa.DataType],
) -> Callable[[Sequence[Any], pa.DataType], pa.Array]:
    """Made to the microsecond first: Arrow refuses to drop what a coarser unit has no room for."""
    return lambda values, kind: pa.array(values, micros(kind)).cast(kind)


def _no(wanted: str, value: Any, how: str = "") -> Refused:
    return Refused(f"{article(value)} is no {wanted}{how}")


def article(value: Any) -> str:
    """What sort of value it is: "an int", "a str"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _same(values: Sequence[Any], found: pa.Array) -> int | None:
    """Where an array gives something else back. For types that are rare: it looks at each value."""
    back = found.to_pylist()
    return next((row for row, value in enumerate(values) if value is not None and back[row] != value), None)


_FAMILIES: list[tuple[Callable[[pa.DataType], bool], Family]] = [
    (pt.is_integer, Family(_INTS | _FLOATS | {_NULL}, _whole, pa.array, _cut, _NOT_WHOLE, _FLOATS)),
    (pt.is_float64, Family(_INTS | _FLOATS | {_NULL}, _double)),
    (
        pt.is_floating,
        Family(_INTS | _FLOATS | {_NULL}, _double, pa.array, _too_large, "it is too large", None),
    ),
    (pt.is_decimal, Family(frozenset({int, Decimal, _NULL}), _decimal)),
    (
        lambda kind: pt.is_string(kind) or pt.is_large_string(kind),
        Family(_BYTES | {str, np.str_, _NULL}, _text),
    ),
    (
        lambda kind: pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind),
        Family(_BYTES | {str, np.bytes_, _NULL}, _bytes),
    ),
    (pt.is_boolean, Family(frozenset({bool, np.bool_, _NULL}), _truth)),
    (_has_nanos, Family(frozenset({_NULL}), _nanos)),
    (
        lambda kind: pt.is_timestamp(kind) and kind.tz is not None,
        Family(frozenset({datetime, _NULL}), _instant, _in_unit(lambda kind: pa.timestamp("us", kind.tz))),
    ),
    (
        pt.is_timestamp,
        Family(
            frozenset({datetime, _NULL}),
            _clock_time,
            _in_unit(lambda kind: pa.timestamp("us")),
            _zoned,
            _ZONE_LOST,
            frozenset({datetime}),
        ),
    ),
    (pt.is_date32, Family(frozenset({date, _NULL}), _day)),
    (pt.is_duration, Family(frozenset({timedelta, _NULL}), _span, _in_unit(lambda kind: pa.duration("us")))),
    (pt.is_time, Family(frozenset({time, _NULL}), _time_of_day, _in_unit(lambda kind: pa.time64("us")))),
]

_OTHER = Family(frozenset(), lambda value: value, pa.array, _same, "it would be changed", None)
"""Whatever else a log may hold."""
