"""How small a slice is that the driver may read by itself."""

from __future__ import annotations

import pyarrow as pa

SMALL_BYTES, SMALL_ROWS = 1 << 16, 20_000


def if_small(table: pa.Table) -> pa.Table | None:
    """The table, unless it is large."""
    return table if table.num_rows <= SMALL_ROWS and table.nbytes <= SMALL_BYTES else None
