"""What a keyed benchmark wrote, merged by key, against what its input comes to.

Keys are the numbers below `keys`, so totals are plain arrays indexed by key. Values are at least 0: count, sum and max
of a key only grow, and the row with the largest count is its newest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VALUE_MAX = 1000
COLUMNS = ("key", "total", "n", "top")
"""Columns both sides write: key, sum, count and max of its values."""

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Totals:
    """Sum, count and max per key. A key that never occurred has count 0."""

    total: I64
    n: I64
    top: I64

    def summary(self) -> dict[str, int]:
        """A few numbers that tell totals apart, for people and for comparing."""
        weights = np.arange(1, len(self.n) + 1, dtype=np.int64)
        mixed = (self.total * 31 + self.n) * 31 + self.top
        return {
            "keys": int((self.n > 0).sum()),
            "rows": int(self.n.sum()),
            "sum": int(self.total.sum()),
            "mixed": int((mixed * weights).sum(dtype=np.int64)),
        }


def nothing(keys: int) -> Totals:
    return Totals(*(np.zeros(keys, dtype=np.int64) for _ in range(3)))


def totals_of(batches: Iterable[tuple[I64, I64]], size: int) -> Totals:
    """What input rows come to, given as (keys, values). One batch after the other: totals of many keys are large."""
    totals = nothing(size)
    for keys, values in batches:
        np.add.at(totals.n, keys, 1)
        np.add.at(totals.total, keys, values)
        np.maximum.at(totals.top, keys, values)
    return totals


def joined(parts: Iterable[Totals], size: int) -> Totals:
    """The totals of several inputs together."""
    result = nothing(size)
    for part in parts:
        np.add(result.total, part.total, out=result.total)
        np.add(result.n, part.n, out=result.n)
        np.maximum(result.top, part.top, out=result.top)
    return result


def merged(tables: Iterable[pa.Table], keys: int) -> Totals:
    """A changelog merged by key: for each key the row with the largest count. Tables may come in any order."""
    result = nothing(keys)
    for table in tables:
        key, total, n, top = (table.column(name).to_numpy() for name in COLUMNS)
        order = np.argsort(n, kind="stable")  # assigning in this order, the largest count of a key stays
        order = order[n[order] > result.n[key[order]]]
        for target, values in ((result.total, total), (result.n, n), (result.top, top)):
            target[key[order]] = values[order]
    return result


def first_difference(found: Totals, wanted: Totals) -> str | None:
    """The first key whose row is not what it should be; None: there is none."""
    wrong = (found.n != wanted.n) | (found.total != wanted.total) | (found.top != wanted.top)
    if not wrong.any():
        return None
    key = int(np.argmax(wrong))
    show = [
        f"(sum {int(t.total[key])}, count {int(t.n[key])}, max {int(t.top[key])})" for t in (found, wanted)
    ]
    return f"key {key} is {show[0]} instead of {show[1]}; {int(wrong.sum())} keys are wrong"
