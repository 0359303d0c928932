"""How the rows of a sink can be compared at all, found from two undisturbed runs. Pure.

The two runs cut their input otherwise, as a run under faults does. What is the same in both depends on the input alone:

    rows      the same rows, each as often
    merged    the last row of each key: a running result is told as often as there are steps
    columns   the same, without the columns that differ although nothing happened (clocks, random numbers)
    count     so many rows
    nothing   not even that
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.testing.golden import frozen, merge_by_key

Row = Mapping[str, Any]
Rows = Sequence[Row]
How = Literal["rows", "merged", "count", "nothing"]
DIGITS = 9
"""Sums of fractions depend on their order in the digits behind these."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What is compared of one sink."""

    how: How
    key: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Columns that are left out, since they differ between undisturbed runs."""

    @property
    def told(self) -> str:
        what = {
            "rows": "rows",
            "merged": f"last row per {', '.join(self.key)}",
            "count": "number of rows",
        }.get(self.how, "nothing")
        return f"{what}, without {', '.join(self.without)}" if self.without else what

    def of(self, rows: Rows) -> Counter[Any]:
        """The rows as they are compared, each with how often it is there."""
        if self.how == "merged":
            rows = list(merge_by_key(rows, self.key).values())
        return Counter(plain(row, self.without) for row in rows)


def plain(row: Row, without: Sequence[str] = ()) -> Any:
    """A row that can be counted."""
    return frozen({name: _rounded(value) for name, value in row.items() if name not in without})


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def basis_of(one: Rows, two: Rows, keys: Iterable[Sequence[str]], running: bool = False) -> Basis:
    """`keys`: of operators before the sink, the nearest first. `running`: a running result is told again and again, so that rows that happen
    to agree in two runs need not in a third."""
    columns = sorted({name for row in (*one[:1], *two[:1]) for name in row})
    merged = [Basis("merged", tuple(key)) for key in keys if key and set(key) <= set(columns)]
    ways = [*merged, Basis("rows")] if running else [Basis("rows"), *merged]
    for way in ways:
        if way.of(one) == way.of(two):
            return way
    for way in ways:
        odd = tuple(
            name for name in columns if name not in way.key and _differs(way, name, columns, one, two)
        )
        narrow = Basis(way.how, way.key, odd)
        if odd and len(odd) < len(columns) and narrow.of(one) == narrow.of(two):
            return narrow
    return Basis("count") if len(one) == len(two) else Basis("nothing")


def _differs(way: Basis, name: str, columns: Sequence[str], one: Rows, two: Rows) -> bool:
    """Whether the values of one column, by themselves, are others in both runs."""
    alone = Basis(way.how, way.key, tuple(other for other in columns if other not in (name, *way.key)))
    return alone.of(one) != alone.of(two)
