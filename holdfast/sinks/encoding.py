"""Which columns of a Parquet file get a dictionary.

A writer that builds dictionaries for columns whose values hardly repeat gives them up half-way: it takes twice the time
and leaves a larger file.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FEW_ROWS = 1 << 14
"""For so few rows it is not worth looking."""
SAMPLED_ROWS = 1 << 12
MOSTLY_DISTINCT = 0.95


def dictionary_columns(table: pa.Table) -> bool | list[str]:
    """For `use_dictionary` of PyArrow's writer: all columns, or the names of those whose values repeat.

    Looks at rows chosen at random, always the same ones: neighbours are often alike.
    """
    if table.num_rows < FEW_ROWS or any(pa.types.is_nested(field.type) for field in table.schema):
        return True
    rows = np.random.default_rng(0).integers(0, table.num_rows, SAMPLED_ROWS)
    sample = table.take(pa.array(np.sort(rows)))
    distinct = len(np.unique(rows))  # some rows were chosen twice
    repeating = [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if pc.count_distinct(column, mode="all").as_py() <= MOSTLY_DISTINCT * distinct
    ]
    return True if len(repeating) == table.num_columns else repeating
