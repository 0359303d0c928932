"""Large batches whose keys repeat: Arrow's own grouping sums them up first, and only the sums are hashed and ordered.

The general way hashes and orders every row, which costs ten times as much where ten rows share a key. It gives exactly
what that gives, or None where it must be taken: few rows, keys that hardly repeat (a sample tells), functions and types that
Arrow computes in another way, sums that might leave 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.state.aggregates.accumulator import Accumulator, Columns
from holdfast.state.aggregates.accumulators import Count, DecimalSum, Extreme, Mean
from holdfast.state.columns.hashing import key_hash

ROWS_MIN = 200_000
"""Below, the general way is as quick: each task sums up the rows of all keys here, but orders those of its own there."""
SAMPLE_MAX = 1 << 16
SAMPLED = 6
"""One row in so many tells how often keys repeat."""
DISTINCT_MAX = 0.75
"""Of a sample. Of uniform keys with so many in a sample of 65,536 there are some 100,000."""

_FAR_FROM_OVERFLOW = 1 << 62
_DIGITS_OF_64_BITS = 19
_EQUAL_ALIKE = (
    pa.types.is_signed_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_timestamp,
)
"""Key columns that Arrow compares as we do."""

Asked = tuple[Accumulator, pa.Array | None]
"""A function, and its input column, if it has one."""

Call = tuple[str, str]
"""(column of the table that is grouped, function of Arrow's). Counting rows needs no column."""

_ROWS = "count_all"


def grouped(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> list[pa.Array] | None:
    """Hash, keys and parts of state rows, each key once, ascending by hash; None: this is not for Arrow."""
    if len(keys[0]) < ROWS_MIN or not all(any(alike(key.type) for alike in _EQUAL_ALIKE) for key in keys):
        return None
    calls: list[list[Call]] = []
    for number, (acc, column) in enumerate(asked):
        functions = _functions(acc, column)
        if functions is None:
            return None
        calls.append([("" if each == _ROWS else f"v{number}", each) for each in functions])
    if not _repeat(keys):
        return None
    own, made = _of_groups(
        keys, [column for _, column in asked], list(dict.fromkeys(call for mine in calls for call in mine))
    )
    hashes = key_hash(own)
    order = pa.array(np.argsort(hashes, kind="stable"))
    parts = [
        part
        for (acc, _), mine in zip(asked, calls, strict=True)
        for part in _parts(acc, [made[call] for call in mine])
    ]
    return [column.take(order) for column in (pa.array(hashes), *own, *parts)]


def _of_groups(
    keys: Sequence[pa.Array], inputs: Sequence[pa.Array | None], calls: Sequence[Call]
) -> tuple[list[pa.Array], dict[Call, pa.Array]]:
    """(the keys, each once; what the calls gave for them)."""
    names = [f"k{number}" for number in range(len(keys))]
    columns = {f"v{number}": column for number, column in enumerate(inputs) if column is not None}
    table = pa.table({**dict(zip(names, keys, strict=True)), **columns})
    found = table.group_by(names, use_threads=False).aggregate(
        [(column or [], each) for column, each in calls]
    )
    made = {call: _one(found.column("_".join(filter(None, call)))) for call in calls}
    return [_one(found.column(name)) for name in names], made


def _one(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _functions(acc: Accumulator, column: pa.Array | None) -> tuple[str, ...] | None:
    """Arrow's functions from which the parts of an accumulator come."""
    match acc:
        case Count(of_column):
            return ("count",) if of_column else (_ROWS,)
        case Extreme(kind, largest) if _is_whole(kind) or pa.types.is_timestamp(kind):
            return ("max" if largest else "min",)
        case Mean(_, total, _):
            functions = _functions(total, column)
            return None if functions is None else (*functions, "count")
        case DecimalSum(_, kind) if column is not None and _is_whole(column.type):
            roomy = not kind.scale and kind.precision >= _DIGITS_OF_64_BITS
            return ("sum",) if roomy and _is_small(column) else None
    return None


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind))


def _is_small(column: pa.Array) -> bool:
    """Whether no sum of its values can leave 64 bits."""
    least, most = (value.as_py() or 0 for value in pc.min_max(column).values())
    return max(most, -least) * len(column) < _FAR_FROM_OVERFLOW


def _parts(acc: Accumulator, found: Columns) -> Columns:
    """The parts of an accumulator, from what Arrow gave for its `_functions`."""
    match acc:
        case Mean(_, total, _):
            return [*_parts(total, found[:-1]), found[-1]]
        case DecimalSum(_, kind):
            return [found[0].cast(kind)]
    return [part.cast(kind) for part, (_, kind) in zip(found, acc.parts, strict=True)]


def _repeat(keys: Sequence[pa.Array]) -> bool:
    """Whether keys repeat often enough, by a sample from all over the batch."""
    rows = len(keys[0])
    size = min(SAMPLE_MAX, rows // SAMPLED)
    at = pa.array(np.arange(size, dtype=np.int64) * (rows // size))
    sample = pa.table({str(number): key.take(at) for number, key in enumerate(keys)})
    distinct = sample.group_by(sample.column_names, use_threads=False).aggregate([]).num_rows
    return bool(distinct <= DISTINCT_MAX * size)
