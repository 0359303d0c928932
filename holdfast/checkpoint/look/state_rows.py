"""Which rows of an operator's segments count: what restoring an epoch would find, without the topology.

All work is done on Arrow tables in ranges of hashes, so that no more than some hundred thousand rows are in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from holdfast.operators.stored.parts import RANGE_ROWS, Part
from holdfast.state.aggregates.aggregation import as_int64, combine, joined_columns, single
from holdfast.state.columns.grouping import group_rows
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.opaque_values import STATE, present
from holdfast.state.windows.time_windows import PANE, key_hashes


def rows_that_count(part: Part, tables: Sequence[pa.Table], rows: int = RANGE_ROWS) -> Iterator[pa.Table]:
    """The rows of one partition that count, about `rows` at once; `tables`: its segments of this part, oldest first."""
    for low, high in ranges(tables, rows):
        found = counted(part, [between(table, low, high) for table in tables])
        if found.num_rows:
            yield found


def counted(part: Part, tables: Sequence[pa.Table]) -> pa.Table:
    """The same, of tables that hold all rows of their keys."""
    tables = [table.cast(part.schema) if table.schema != part.schema else table for table in tables]
    if part.rule == "sums":
        assert part.aggregation is not None
        return combine(part.aggregation, tables)
    if part.rule == "rows":
        return pa.concat_tables([part.schema.empty_table(), *(_not_used_up(part, each) for each in tables)])
    columns = joined_columns(part.schema, list(tables)[::-1])
    grouping = group_rows(as_int64(columns[0]), [columns[part.schema.get_field_index(k)] for k in part.keys])
    newest = pa.array(grouping.first_rows)
    rows = pa.Table.from_arrays([column.take(newest) for column in columns], schema=part.schema)
    return rows.filter(pa.array(present(rows))) if STATE in part.schema.names else rows


def _not_used_up(part: Part, table: pa.Table) -> pa.Table:
    if part.used_up is None:
        return table
    column, below = part.used_up
    return table.filter(pa.array(as_int64(single(table.column(column))) >= below))


# --- ranges of hashes -------------------------------------------------------------------------------------------------

_LOWEST, _SPAN = -(1 << 63), 1 << 64


def ranges(tables: Sequence[pa.Table], rows: int = RANGE_ROWS) -> list[tuple[int, int]]:
    """Ranges of hashes, both ends within, that share the rows out evenly: hashes are spread evenly. Tables without
    hashes are one range."""
    total = sum(table.num_rows for table in tables)
    if not all(HASH_COLUMN in table.schema.names for table in tables):
        return [(_LOWEST, _LOWEST + _SPAN - 1)]
    count = max(1, -(-total // rows))
    edges = [_LOWEST + _SPAN * number // count for number in range(count + 1)]
    return [(low, high - 1) for low, high in pairwise(edges)]


def between(table: pa.Table, low: int, high: int) -> pa.Table:
    """The rows whose keys have hashes in a range, both ends within. No copy where rows ascend by them."""
    if (low, high) == (_LOWEST, _LOWEST + _SPAN - 1) or not table.num_rows:
        return table
    if PANE in table.schema.names:  # all panes of a key stay together: windows consist of several
        hashes = key_hashes(table)
        return table.filter(pa.array((hashes >= low) & (hashes <= high)))
    hashes = as_int64(single(table.column(HASH_COLUMN)))
    if table.schema.names[0] != HASH_COLUMN:  # ordered by something else
        return table.filter(pa.array((hashes >= low) & (hashes <= high)))
    first = int(np.searchsorted(hashes, low, side="left"))
    return table.slice(first, int(np.searchsorted(hashes, high, side="right")) - first)
