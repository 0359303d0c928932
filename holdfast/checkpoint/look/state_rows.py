"""Which rows of an operator's segments count: what restoring an epoch would find, without the topology.

The segments of an operator are of one or several *parts*, told apart by their names and first columns: the state itself,
kept rows of each side of a join, entries of the index of wake-ups. For each part one *rule* holds:

- newest: a key's row in the newest segment that has the key; a row whose state is null deletes the key;
- sums: rows of the same key are added up (panes of windows);
- rows: every row counts, except those that were used up below a time that the operator's meta tells.

All work is done on Arrow tables in ranges of hashes, so that no more than some hundred thousand rows are in memory at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from holdfast.checkpoint.look.fingerprint_reader import Described
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, combine, joined_columns, single
from holdfast.state.columns.grouping import group_rows
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.joins.pairs import AT
from holdfast.state.keyed.opaque_values import STATE, present
from holdfast.state.variables.wakeups import WAKE
from holdfast.state.windows.count_windows import SLOT
from holdfast.state.windows.time_windows import FROM, PANE, key_hashes
from holdfast.state.windows.waiting_rows import TIME

Rule = Literal["newest", "sums", "rows"]

STATE_PART = "state"
RANGE_ROWS = 1 << 18
"""About so many rows are taken at once."""

_INNER_KEYS = frozenset({PANE, FROM, SLOT, "__hf_all", "__hf_chunk"})
_SIDE = re.compile(r"-k([0-3])\Z")
_SIDES = ("left", "right", "left waiting", "right waiting")


@dataclass(frozen=True)
class Part:
    """One kind of rows an operator keeps, and how to read them. Plain data: travels to executors."""

    name: str
    rule: Rule
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    """By which rows are told apart; none where the rule is rows."""
    aggregation: Aggregation | None = None
    """How sums are added up."""
    used_up: tuple[str, int] | None = None
    """Rows whose time in this column is below that number have left."""

    @property
    def values(self) -> list[str]:
        """The columns that are not the key."""
        return [name for name in self.schema.names if name != HASH_COLUMN and name not in self.keys]


def part_name(key: str, schema: pa.Schema, described: Described) -> str:
    """The part that a segment belongs to, by its stored name and its columns."""
    first = schema.names[0]
    if first == WAKE:
        return "wake-ups"
    if first == TIME:
        return "waiting"
    side = _SIDE.search(key)
    if side is None or AT not in schema.names:
        return STATE_PART
    return _SIDES[2 if described.is_asof and side[1] == "0" else int(side[1])]


def make_part(
    name: str, schema: pa.Schema, described: Described, meta: Any, known: Aggregation | None = None
) -> Part:
    """How to read segments of that part. `meta`: what the operator stored beside them, or None; `known`: the
    aggregation, if somebody has the topology."""
    meta = meta if isinstance(meta, Mapping) else {}
    if name == "wake-ups":
        mark = meta.get("mark")
        return Part(name, "rows", schema, used_up=None if mark is None else (WAKE, mark + 1))
    if name == "waiting":
        mark = meta.get("watermark")
        return Part(name, "rows", schema, used_up=None if mark is None else (TIME, mark))
    if name != STATE_PART:
        return Part(name, "rows", schema)
    keys = tuple(field.name for field in schema if _is_key(field.name))
    if PANE not in schema.names:
        return Part(name, "newest", schema, keys)
    fits = known is not None and known.state_schema.equals(schema)
    aggregation = known if fits else described.aggregation(schema)
    if aggregation is None:  # a function of the user's own: nobody here knows how to add up
        return Part(name, "rows", schema)
    return Part(name, "sums", schema, keys, aggregation)


def _is_key(name: str) -> bool:
    return name in _INNER_KEYS or not name.startswith("__hf_")


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
