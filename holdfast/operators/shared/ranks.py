"""The place of each row among all rows of its stream in a step, where mapping tasks have only some of them each.

A mapping task sends its positions to everybody, as runs of consecutive rows; who has the runs of all tasks knows how
many rows come before any position.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.shared.timed import as_bytes, longs
from holdfast.state.columns.hashing import I64

_RUNS = b"holdfast.runs"


def note_of(rows: pa.Table) -> dict[bytes, bytes]:
    """What a mapping task tells of its rows, which are in position order."""
    sources, ordinals, numbers = (longs(rows, name) for name in POSITION_COLUMNS)
    new = np.ones(len(numbers), dtype=np.bool_)
    new[1:] = (
        (sources[1:] != sources[:-1]) | (ordinals[1:] != ordinals[:-1]) | (numbers[1:] != numbers[:-1] + 1)
    )
    starts = np.flatnonzero(new)
    lengths = np.diff(starts, append=len(numbers))
    columns = (sources[starts], ordinals[starts], numbers[starts], lengths)
    names = ("source", "ordinal", "row", "length")
    return {_RUNS: as_bytes(pa.table({n: pa.array(c) for n, c in zip(names, columns, strict=True)}))}


def ranks_of(shares: Sequence[pa.Table]) -> tuple[pa.Table, I64, int]:
    """(the rows of all shares, the place of each among all rows of the step, how many those are)."""
    runs = pa.concat_tables([pa.ipc.open_stream(share.schema.metadata[_RUNS]).read_all() for share in shares])
    rows = pa.concat_tables([share.replace_schema_metadata(None) for share in shares])
    starts = [longs(runs, name) for name in ("source", "ordinal", "row")]
    lengths = longs(runs, "length")
    order = np.lexsort(starts[::-1])
    ahead = np.cumsum(lengths[order]) - lengths[order]
    mine = [longs(rows, name) for name in POSITION_COLUMNS]
    place = _last_not_after([start[order] for start in starts], mine)
    return rows, ahead[place] + (mine[2] - starts[2][order][place]), int(lengths.sum())


def _last_not_after(starts: Sequence[I64], sought: Sequence[I64]) -> I64:
    """For each position the last start, of ascending ones, that is not after it."""
    count = len(starts[0])
    together = [np.concatenate(pair) for pair in zip(starts, sought, strict=True)]
    is_sought = np.repeat((0, 1), (count, len(sought[0])))
    order = np.lexsort((is_sought, *together[::-1]))
    upto = np.cumsum(order < count) - 1
    place = np.empty(len(order), dtype=np.int64)
    place[order] = upto
    return place[count:]
