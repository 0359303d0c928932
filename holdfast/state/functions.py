"""The names of the aggregate functions, and what about them matters outside the arithmetic.

A quantile carries its share in its name: `quantile[0.99]`. Names are part of fingerprints: added, never changed.
"""

from __future__ import annotations

import re

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
"""How the name of the function behind `top_n` begins (top.py). It is offered by no name of its own."""

POSITION = ("__hf_ordinal", "__hf_row")
"""Where a row stands in its source: the columns by which `ORDERED` functions order. The source's own number is not
among them: it may change when sources are added, and rows of several sources are refused."""

_QUANTILE = re.compile(r"quantile\[(\d[\d.e+-]*)\]")


def family(function: str) -> str:
    """The function without what it carries in its name: `quantile[0.5]` is a quantile."""
    return function if share_of(function) is None else "quantile"


def is_ordered(function: str) -> bool:
    """Whether the function is given positions."""
    return function in ORDERED or function.startswith(TOP)


def is_function(function: str) -> bool:
    return family(function) in FUNCTIONS and function != "quantile"


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
