"""The k-th rows of several inputs, put side by side, key by key.

What is kept of a key are its rows that wait, a list per input, in the order of positions: an aggregate that collects
whole rows. When rows have come, as many as the shortest list has leave from the front of every list. A key whose lists
are all empty is as good as none: it is not written where nothing older could come up, and merging with the base drops it.

Without keys, rows are numbered, and every `CHUNK_ROWS` of them are a key of their own: whoever is far ahead does not
make a step touch more than the chunks it adds to or empties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, combine, partial, single
from holdfast.state.aggregates.function_names import POSITION
from holdfast.state.columns import arrays
from holdfast.state.columns.arrays import row_type, whole_rows
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN, I64, KEY_GROUPS, key_hash
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.segment import Segment

CHUNK = "__hf_chunk"
CHUNK_ROWS = 1 << 12
"""Part of the stored format."""
_PARTS = 3
"""Of each input: lists of rows, ordinals, row numbers."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows that leave together, of each input, and the positions of those of the first; changed state rows."""

    rows: tuple[pa.Array, ...]
    positions: tuple[I64, I64]
    changed: pa.Table


def collecting(by: Sequence[str], schemas: Sequence[pa.Schema]) -> Aggregation:
    """What is kept. `by` is empty: chunks are the keys."""
    fields = [schemas[0].field(name) for name in by] or [pa.field(CHUNK, pa.int64())]
    whole = [pa.field(_whole(port), row_type(schema)) for port, schema in enumerate(schemas)]
    aggregates = [(_whole(port), "collect", _whole(port)) for port in range(len(schemas))]
    return Aggregation.plan([field.name for field in fields], aggregates, pa.schema([*fields, *whole]))


def _whole(port: int) -> str:
    return f"__hf_whole{port}"


def in_chunks(rows: pa.Table, first: int) -> pa.Table:
    """Rows in order, of which `first` came before, with their chunks as keys. All chunks are in key group 0."""
    chunks = (np.arange(rows.num_rows, dtype=np.int64) + first) // CHUNK_ROWS
    hashes = key_hash([pa.array(chunks)]) & ~np.int64(KEY_GROUPS - 1)
    if HASH_COLUMN in rows.column_names:
        rows = rows.drop_columns([HASH_COLUMN])
    return rows.append_column(CHUNK, pa.array(chunks)).append_column(HASH_COLUMN, pa.array(hashes))


def match(aggregation: Aggregation, segments: Sequence[Segment], arrived: Mapping[int, pa.Table]) -> Matched:
    """Rows by input, with hashes and positions; at least one."""
    pieces = [partial(aggregation, _lifted(aggregation, port, rows)) for port, rows in arrived.items()]
    keys = combine(aggregation, pieces) if len(pieces) > 1 else pieces[0]
    found = find_rows(segments, keys, aggregation)
    combined = found.combined()
    lists = [single(column) for column in combined.columns[1 + len(aggregation.by) :]]
    sizes = np.stack([arrays.lengths(column) for column in lists[::_PARTS]])
    count = sizes.min(axis=0)
    leave, stay = zip(*(_parted(column, count) for column in lists), strict=True)
    known = np.zeros(len(count), dtype=np.bool_)
    known[found.rows] = True
    columns = [*combined.columns[: 1 + len(aggregation.by)], *stay]
    changed = pa.Table.from_arrays(columns, schema=aggregation.state_schema)
    written = known | (sizes > count).any(axis=0)
    if not written.all():
        changed = changed.take(pa.array(np.flatnonzero(written)))
    return Matched(leave[::_PARTS], (arrays.ints(leave[1]), arrays.ints(leave[2])), changed)


def _lifted(aggregation: Aggregation, port: int, rows: pa.Table) -> pa.Table:
    """The rows of one input as rows of all inputs, in which the others have nothing."""
    kind = aggregation.schema.field(_whole(port)).type
    made = rows.select([HASH_COLUMN, *aggregation.by, *POSITION])
    for field in aggregation.schema:
        if field.name == _whole(port):
            made = made.append_column(field, whole_rows(rows, kind))
        elif field.name not in made.column_names:
            made = made.append_column(field, pa.nulls(rows.num_rows, field.type))
    return made


def _parted(lists: pa.Array, count: I64) -> tuple[pa.Array, pa.Array]:
    """(the first `count` elements of each list one behind the other, lists of the rest)."""
    sizes = arrays.lengths(lists)
    elements = lists.flatten()
    front = arrays.within(sizes) < np.repeat(count, sizes)
    return elements.filter(pa.array(front)), arrays.packed(elements.filter(pa.array(~front)), sizes - count)


def some_wait(aggregation: Aggregation, state: pa.Table) -> Bools:
    """Which state rows have a row in some list."""
    waits = np.zeros(state.num_rows, dtype=np.bool_)
    for ordinals in state.columns[2 + len(aggregation.by) :: _PARTS]:
        waits |= arrays.lengths(single(ordinals)) > 0
    return waits
