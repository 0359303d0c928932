"""When which key wants to be woken: an index by time, so that no step looks at keys for which nothing is due.

An entry is (time, hash, key). Entries lie in segments of their own, whose names end in `-wake`, ascending by time; the
sets of several segments add up. Up to a watermark all entries have been used, later ones wait: so nothing is ever
deleted, what the watermark has passed just counts no more and is left out when segments are rewritten.
An entry too many does no harm: its key is woken, finds nothing due, and goes on sleeping. One too few must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.segment import OPENED, Place, Segment, Segments

WAKE = "__hf_wake"
SUFFIX = "-wake"
SMALL = 4096
"""Segments with fewer live entries are rewritten together with what a step adds."""


def wake_schema(key_fields: Sequence[pa.Field]) -> pa.Schema:
    """Columns of entries: the time in microseconds, then hash and key."""
    return pa.schema([pa.field(WAKE, pa.int64()), pa.field(HASH_COLUMN, pa.int64()), *key_fields])


def parted(segments: Sequence[Segment]) -> tuple[Segments, Segments]:
    """(segments of states, segments of entries)."""
    entries = tuple(segment for segment in segments if segment.name.endswith(SUFFIX))
    return tuple(segment for segment in segments if not segment.name.endswith(SUFFIX)), entries


def due(entries: Sequence[Segment], schema: pa.Schema, after: int | None, upto: int) -> pa.Table:
    """Entries that a watermark passes when it rises from `after` (None: from nowhere) to `upto`."""
    found = [schema.empty_table()]
    for segment in entries:
        rows = _rows(segment, schema)
        first = rows.upto(after)
        found.append(rows.table.slice(first, rows.upto(upto) - first))
    return pa.concat_tables(found)


def advanced(entries: Segments, fresh: pa.Table, upto: int, place: Place) -> Segments:
    """The segments after a step: with the entries it adds, without most of what the watermark `upto` has passed.

    Segments are rewritten when they are small, or not larger than twice what is being written, or mostly passed: an
    entry is rewritten about as often as the number of entries can be doubled."""
    schema = fresh.schema
    waiting = [(segment, len(rows := _rows(segment, schema)) - rows.upto(upto)) for segment in entries]
    kept = [(segment, left) for segment, left in waiting if left]
    passed = [(segment, left) for segment, left in kept if 2 * left < segment.rows]
    count = fresh.num_rows + sum(left for _, left in passed)
    if not count:
        return tuple(segment for segment, _ in kept)
    chosen = [segment for segment, _ in passed]
    for segment, left in sorted(kept, key=lambda pair: pair[1]):
        if segment not in chosen and left <= max(2 * count, SMALL):
            chosen.append(segment)
            count += left
    pieces = [_rows(s, schema).table.slice(_rows(s, schema).upto(upto)) for s in entries if s in chosen]
    written = _write([*pieces, fresh], place)
    OPENED.forget(set(entries).difference(segment for segment, _ in kept if segment not in chosen))
    return (*(segment for segment, _ in kept if segment not in chosen), *written)


def joined(
    entries: Sequence[Segment], schema: pa.Schema, mine: Callable[[I64], Bools], place: Place
) -> Segments:
    """All entries for whose hashes `mine` is true, as one segment."""
    pieces = []
    for segment in entries:
        table = _rows(segment, schema).table
        pieces.append(table.filter(pa.array(mine(as_int64(single(table.column(HASH_COLUMN)))))))
    return _write(pieces, place)


def _write(pieces: Sequence[pa.Table], place: Place) -> Segments:
    table = pa.concat_tables(pieces) if pieces else None
    if table is None or not table.num_rows:
        return ()
    order = np.argsort(as_int64(single(table.column(WAKE))), kind="stable")
    return (place.write(table.take(pa.array(order)), SUFFIX),)


def _rows(segment: Segment, schema: pa.Schema) -> SortedRows:
    """Entries ascend by time as states ascend by hash: the same searches serve both."""
    return OPENED.get(segment, schema)
