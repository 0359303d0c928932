"""Shorter ways to what `lift` and `fold` of the common accumulators give: counts, sums and extremes of whole numbers.

Of a batch the general way makes each row a state first, and brings states together by copying them beside each other.
Where numbers are there and small enough, neither is needed. Each function gives exactly what the general way gives, or
None where it must be taken: nulls, other types, sums that might leave 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.state.aggregates.accumulator import Accumulator, Columns
from holdfast.state.aggregates.accumulators import Count, DecimalSum, Extreme, Mean
from holdfast.state.columns.grouping import Runs
from holdfast.state.columns.hashing import I64

_DIGITS_OF_64_BITS = 19
_FAR_FROM_OVERFLOW = 1 << 62


@dataclass(frozen=True)
class OrderedInts:
    """Columns of a batch in the order of their groups, each taken once: sum and max often share one."""

    order: I64
    _taken: dict[int, tuple[pa.Array, I64]] = field(default_factory=dict)

    def of(self, column: pa.Array) -> I64:
        """Values of a column that `is_plain`."""
        known = self._taken.get(id(column))
        if known is None:
            known = column, _values(column)[self.order]  # the column is kept: so its id stays its own
            self._taken[id(column)] = known
        return known[1]


def batch_states(acc: Accumulator, column: pa.Array, ordered: OrderedInts, runs: Runs) -> Columns | None:
    """States of the runs of a batch's rows: `fold` of `lift` in their order. Runs are not running ones."""
    if isinstance(acc, Mean):
        total, count = (batch_states(part, column, ordered, runs) for part in (acc.total, Count(True)))
        return None if total is None or count is None else [*total, *count]
    if not runs.rows or (column is not None and column.null_count):
        return None
    if isinstance(acc, Count):
        return [pa.array(np.diff(runs.starts, append=runs.rows))]
    if column is None or not _is_plain(column.type):
        return None
    if isinstance(acc, Extreme):
        reduce = np.maximum.reduceat if acc.largest else np.minimum.reduceat
        return [_typed(np.asarray(reduce(ordered.of(column), runs.starts)), acc.kind)]
    if not isinstance(acc, DecimalSum) or acc.kind.scale or pa.types.is_timestamp(column.type):
        return None
    if acc.kind.precision < _DIGITS_OF_64_BITS:
        return None
    values = ordered.of(column)
    if max(int(values.max()), -int(values.min())) * runs.rows >= _FAR_FROM_OVERFLOW:
        return None
    return [_decimals(np.asarray(np.add.reduceat(values, runs.starts)), acc.kind)]


def paired_states(acc: Accumulator, own: Columns, rows: I64, found: Columns) -> Columns | None:
    """States `own`, those at `rows` (each once) folded with the ones `found` for them, which came before."""
    if isinstance(acc, Mean):
        total = paired_states(acc.total, own[:-1], rows, found[:-1])
        count = paired_states(Count(True), own[-1:], rows, found[-1:])
        return None if total is None or count is None else [*total, *count]
    if any(column.null_count for column in (*own, *found)):
        return None
    if isinstance(acc, Count):
        counts = _values(own[0]).copy()
        counts[rows] += _values(found[0])
        return [pa.array(counts)]
    if isinstance(acc, Extreme) and _is_plain(acc.kind):
        best = _values(own[0]).copy()
        better = np.maximum if acc.largest else np.minimum
        best[rows] = better(best[rows], _values(found[0]))
        return [_typed(best, acc.kind)]
    return _paired_sums(acc.kind, own[0], rows, found[0]) if isinstance(acc, DecimalSum) else None


def _paired_sums(kind: pa.DataType, own: pa.Array, rows: I64, found: pa.Array) -> Columns | None:
    if kind.precision < _DIGITS_OF_64_BITS:
        return None
    sums, others = _small(_words(own)), _small(_words(found))
    if sums is None or others is None:
        return None
    sums[rows] += others
    return [_decimals(sums, kind)]


def _small(words: npt.NDArray[np.uint64]) -> I64 | None:
    """The numbers, if sums of two of them stay within 64 bits."""
    low = words[:, 0].copy().view(np.int64)
    if not len(low) or (int(low.min()) > -_FAR_FROM_OVERFLOW and int(low.max()) < _FAR_FROM_OVERFLOW):
        return low if np.array_equal(words[:, 1].view(np.int64), low >> np.int64(63)) else None
    return None


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values are their own order codes in 64 bits."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind))


def _values(column: pa.Array) -> I64:
    """As 64-bit integers; there are no nulls."""
    plain = column if pa.types.is_int64(column.type) else column.cast(pa.int64())
    return np.asarray(plain.to_numpy(zero_copy_only=False))


def _typed(values: I64, kind: pa.DataType) -> pa.Array:
    return pa.array(values).cast(kind)


def _decimals(sums: I64, kind: pa.DataType) -> pa.Array:
    words = np.empty((len(sums), 2), dtype=np.uint64)
    words[:, 0], words[:, 1] = sums.view(np.uint64), (sums >> np.int64(63)).view(np.uint64)
    return pa.Array.from_buffers(kind, len(sums), [None, pa.py_buffer(words)])


def _words(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Both words of each decimal, as they lie in memory."""
    words = np.frombuffer(array.buffers()[1] or b"", dtype=np.uint64)
    return words[2 * array.offset :][: 2 * len(array)].reshape(-1, 2)
