"""Values that nobody can change in place: what was stored of them stays true until another value takes their place."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

SMALL = frozenset(
    {
        *(type(None), bool, int, float, complex, range, Decimal, Fraction, UUID),
        *(dt.datetime, dt.date, dt.time, dt.timedelta, dt.timezone, ZoneInfo),
    }
)
"""Fixed types whose values take a few bytes."""

_FIXED = SMALL | {str, bytes, np.str_, np.bytes_}
_HOLDERS = frozenset({tuple, frozenset})


def is_fixed_kind(kind: type) -> bool:
    """Whether all values of exactly this type are fixed."""
    if kind in _FIXED or issubclass(kind, enum.Enum):
        return True
    return issubclass(kind, np.generic) and not issubclass(kind, np.void | np.object_)


def is_fixed(value: Any) -> bool:
    """Whether this value is fixed; a tuple is if its elements are."""
    kind = type(value)
    return kind in _FIXED or (all(map(is_fixed, value)) if kind in _HOLDERS else is_fixed_kind(kind))


def is_found_again(key: Any) -> bool:
    """Whether a stored copy of this key equals the key: it is fixed, and there is no NaN in it."""
    if type(key) in _HOLDERS:
        return all(map(is_found_again, key))
    return is_fixed(key) and bool(key == key)
