"""What sources say of where they are: slices, positions beside rows, what waits, what goes into an epoch.

A *position* is any value made of int, str, bool, None, list and dict: it is written into epochs as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

POSITION_COLUMNS: tuple[str, ...] = ("__hf_source", "__hf_ordinal", "__hf_row")
"""Columns of a stamped stream: index of the source, file or segment ordinal, row in it. Users never see them."""

TIME_COLUMN = "__hf_time"
"""Column of times that travel beside rows: event time in microseconds."""

POSITION_FIELDS = pa.schema(
    [
        pa.field("__hf_source", pa.int32()),
        pa.field("__hf_ordinal", pa.int64()),
        pa.field("__hf_row", pa.int64()),
    ]
)

TIMES = pa.schema([*POSITION_FIELDS, pa.field(TIME_COLUMN, pa.int64())])
"""What travels beside the rows of a stream with event time: how far time was at some positions."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of a source's rows, the same rows on every read. `rows` and `bytes` are for people; None if not known."""

    start: Any
    end: Any
    rows: int | None = None
    bytes: int | None = None
    boundary: bool = False
    """True if a logical unit (a file) ends here: with trigger="operator" an epoch follows the slice."""
    detail: Any = None
    """Plain data by which `count_rows` finds the rows of the slice again, also in a later run."""


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits in a source, as far as it knows without looking: rows, bytes, and for how many seconds the first of them has been
    there. None: not known."""

    rows: int | None = None
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Stamp:
    """Ask for position columns; `source_index` fills `__hf_source`."""

    source_index: int

    def put_on(self, table: pa.Table, numbers: int | Sequence[int], ordinal: int = 0) -> pa.Table:
        """A table with position columns. `numbers`: of its rows within the part `ordinal` of the source (a file, say), or of
        the first one if none is left out. They grow from row to row and slice to slice, however slices are cut."""
        if isinstance(numbers, int):
            numbers = range(numbers, numbers + table.num_rows)
        rows = np.asarray(numbers, dtype=np.int64)
        columns = (np.full_like(rows, self.source_index, dtype=np.int32), np.full_like(rows, ordinal), rows)
        for field, column in zip(POSITION_FIELDS, columns, strict=True):
            table = table.append_column(field, pa.array(column))
        return table


class Capture(Protocol):
    """A position that what follows does not change. Two of one source are equal if it has not moved between them."""

    def plain(self) -> Any:
        """As `Source.seek` takes it. Any thread may call it."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Plain data as it is."""

    snapshot: Any

    def plain(self) -> Any:
        return self.snapshot
