"""Chains of stateless operators, one or several side by side: what markers on their way cost (document 004, figure 7c).

Every eight operators are an element of their own, and so are source and sink, as in the document. What reaches the sink is one row in a
thousand, so that it hardly writes anything.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.bench.regions.apps import RegionsApp, same_lines
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

LENGTHS, WIDTHS = (8, 16, 32, 64), (1, 4)
FUSED = 8
PERIOD_S = 8.0
ROWS_PER_FILE, FILES_PER_COPY = 100_000, 5
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])


def make_chain(here: Path, copies: int) -> int:
    (here / "in").mkdir(parents=True)
    chance = np.random.default_rng(4)
    for number in range(FILES_PER_COPY * copies):
        ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
        values = chance.integers(0, 1_000_000, ROWS_PER_FILE)
        table = pa.table({"id": ids, "value": values}, schema=SCHEMA)
        pq.write_table(table, here / "in" / f"rows-{number:05}.parquet")
    return FILES_PER_COPY * copies * ROWS_PER_FILE


def build_chain(length: int, width: int, here: str) -> Topology:
    """`width` chains of `length` operators, to which rows are dealt out."""
    made = Topology("chain")
    files = Files(f"{here}/in", "parquet", schema=SCHEMA, max_files_per_step=1)
    rows = made.source(files, name="rows").consistent("chain")
    dealt = [rows] if width == 1 else rows.split(*(f"id % {width} = {n}" for n in range(width)))
    ends = [_chain(stream.isolate(), length) for stream in dealt]
    together = ends[0] if width == 1 else ends[0].union(*ends[1:])
    together.isolate().filter("id % 1000 = 0").sink(FileSink(f"{here}/out/chain", "csv"), name="out")
    return made


def _chain(stream: Stream, length: int) -> Stream:
    for number in range(length):
        if number and number % FUSED == 0:
            stream = stream.isolate()
        stream = stream.with_columns(value="value + 1") if number % 2 else stream.filter("value >= 0")
    return stream


def chain(length: int, width: int) -> RegionsApp:
    return RegionsApp(f"chain-{length}x{width}", make_chain, partial(build_chain, length, width), same_lines)
