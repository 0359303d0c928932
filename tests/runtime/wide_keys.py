"""Inputs of memory tests: files of keys that never repeat, each row with the file's number as its value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def random_keys(number: int, rows: int, key_bytes: int) -> pa.Array:
    """The keys of one file."""
    letters = np.random.default_rng(number).integers(97, 123, size=rows * key_bytes, dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * key_bytes, key_bytes, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), rows, [None, offsets, pa.py_buffer(letters)])


def feed(here: Path, number: int, keys: pa.Array) -> None:
    """Add the file to `here / "in"`."""
    (here / "in").mkdir(exist_ok=True)
    values = pa.array(np.full(len(keys), number, dtype=np.int64))
    path = here / "in" / f"part-{number:03}.parquet"
    pq.write_table(pa.table({"k": keys, "v": values}), path, use_dictionary=False)
