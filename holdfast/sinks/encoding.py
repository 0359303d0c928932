"""How the columns of a Parquet file are encoded.

A writer that builds dictionaries for columns whose values hardly repeat gives them up half-way: it takes twice the time
and leaves a larger file. Whole numbers among them are stored as differences in as few bits as they need: that takes
less time than compressing them, and half the space.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FEW_ROWS = 1 << 14
"""For so few rows it is not worth looking."""
SAMPLED_ROWS = 1 << 12
MOSTLY_DISTINCT = 0.95
NEAR_BITS = 40
"""Differences of numbers that are further apart save nothing."""


class Encodings(TypedDict):
    """Arguments of PyArrow's writer."""

    use_dictionary: bool | list[str]
    column_encoding: dict[str, str] | None


DEFAULT = Encodings(use_dictionary=True, column_encoding=None)


def encodings(table: pa.Table) -> Encodings:
    """For a file of these rows. Looks at rows chosen at random, always the same ones: neighbours are often alike."""
    if table.num_rows < FEW_ROWS or any(pa.types.is_nested(field.type) for field in table.schema):
        return DEFAULT
    rows = np.random.default_rng(0).integers(0, table.num_rows, SAMPLED_ROWS)
    sample = table.take(pa.array(np.sort(rows)))
    distinct = len(np.unique(rows))  # some rows were chosen twice
    columns = dict(zip(sample.column_names, sample.columns, strict=True))
    repeating = [
        name
        for name, column in columns.items()
        if pc.count_distinct(column, mode="all").as_py() <= MOSTLY_DISTINCT * distinct
    ]
    if len(repeating) == table.num_columns:
        return DEFAULT
    near = [name for name, column in columns.items() if name not in repeating and _is_near(column)]
    return Encodings(
        use_dictionary=repeating, column_encoding=dict.fromkeys(near, "DELTA_BINARY_PACKED") or None
    )


def _is_near(column: pa.ChunkedArray) -> bool:
    """Whether these are whole numbers of which none is far from the others."""
    if column.type not in (pa.int32(), pa.int64()):
        return False
    least, most = pc.min_max(column).values()
    return bool(most.as_py() - least.as_py() < 1 << NEAR_BITS)
