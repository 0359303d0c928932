"""The names of the aggregate functions, and what about them matters outside the arithmetic.

A quantile carries its share in its name: `quantile[0.99]`. Names are part of fingerprints: added, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self

import pyarrow as pa

FUNCTIONS = (
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "variance",
    "stddev",
    "first",
    "last",
    "count_distinct",
    "collect",
    "collect_set",
    "quantile",
)

ORDERED = frozenset({"first", "last", "collect"})
"""Functions whose result depends on the order of rows: they need positions."""

GROWING = frozenset({"count_distinct", "collect", "collect_set", "quantile"})
"""Functions that keep lists. A list per input row would cost the square of the rows: they do not go with emit='each'."""

TOP = "top["
"""How the name of the function behind `top_n` begins (ordered_values.py). It is offered by no name of its own."""

POSITION = ("__hf_ordinal", "__hf_row")
"""Where a row stands in its source: the columns by which `ORDERED` functions order. The source's own number is not
among them: it may change when sources are added, and rows of several sources are refused."""

USER = "udaf["
"""How the name of a function begins that the user wrote."""

_QUANTILE = re.compile(r"quantile\[(\d[\d.e+-]*)\]")


class UserFunction(str):
    """The name of an aggregate that the user wrote, `udaf[price,volume]`, which carries the function itself wherever it
    goes, also by pickle. Names are equal if the columns are: what the function does is no part of fingerprints."""

    fn: Callable[..., Any]
    columns: tuple[str, ...]
    result: pa.DataType

    def __new__(cls, fn: Callable[..., Any], columns: tuple[str, ...], result: pa.DataType) -> Self:
        made = super().__new__(cls, f"{USER}{','.join(columns)}]")
        made.fn, made.columns, made.result = fn, columns, result
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return UserFunction, (self.fn, self.columns, self.result)


def columns_of(function: str, column: str | None) -> tuple[str, ...]:
    """The input columns of a function that was given `column`."""
    if isinstance(function, UserFunction):
        return function.columns
    return () if column is None else (column,)


def family(function: str) -> str:
    """The function without what it carries in its name: `quantile[0.5]` is a quantile."""
    if isinstance(function, UserFunction):
        return "udaf"
    return function if share_of(function) is None else "quantile"


def is_ordered(function: str) -> bool:
    """Whether the function is given positions."""
    return function in ORDERED or function.startswith((TOP, USER))


def is_growing(function: str) -> bool:
    """Whether the function keeps lists."""
    return family(function) in GROWING or function.startswith(USER)


def is_function(function: str) -> bool:
    return isinstance(function, UserFunction) or (family(function) in FUNCTIONS and function != "quantile")


def quantile_name(share: float) -> str:
    """The name of the quantile below which `share` (0 to 1) of the values lie."""
    return f"quantile[{float(share)!r}]"


def share_of(function: str) -> float | None:
    """What `quantile_name` was given; None if it is another function."""
    match = _QUANTILE.fullmatch(function)
    try:
        share = float(match[1]) if match else None
    except ValueError:
        return None
    return share if share is not None and 0 <= share <= 1 else None
