"""Logs for benchmarks: rows of 256 bytes, one per millisecond of the log's own time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.bench.logs.append import make_batch
from holdfast.log.log import Log

WIDTH = 256
BATCH_ROWS = 4096
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_BEGIN_US = int(BEGIN.timestamp() * 1_000_000)


def moment(row: int) -> datetime:
    return BEGIN + timedelta(milliseconds=row)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """The texts repeat after a while, numbers and times do not."""
    texts = [make_batch(WIDTH, WIDTH * BATCH_ROWS, seed) for seed in range(16)]
    schema = texts[0].schema
    for number, first in enumerate(range(0, rows, BATCH_ROWS)):
        count = min(BATCH_ROWS, rows - first)
        made = texts[number % len(texts)].slice(0, count)
        ids = np.arange(first, first + count)
        at = pa.array(_BEGIN_US + 1000 * ids, schema.field("at").type)
        yield pa.RecordBatch.from_arrays([pa.array(ids), at, *made.columns[2:]], schema=schema)


def fill(path: Path, rows: int, *, merge: bool) -> None:
    """`merge`: into Parquet segments, as upkeep does it in the background."""
    schema = next(batches(1)).schema
    with Log(path, schema=schema, time="at", upkeep_every=None) as log:
        writer = log.writer("bench")
        for batch in batches(rows):
            writer.append(batch)
        writer.flush()
    if merge:
        with Log(path, upkeep_every=None) as log:
            log.compact()
