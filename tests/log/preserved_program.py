"""A feed that cannot replay, preserved: `python preserved_program.py DIRECTORY`.

The feed remembers, in a file, what it has been told to be safe (`processed`), as a sender that waits for answers does: after a
death it sends what was not."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.language.connectors import Slice, Stamp
from holdfast.testing import submit_local

ROWS, STEP = 300, 5
SCHEMA = pa.schema([pa.field("n", pa.int64())])


class Feed(hf.Source):
    replayable = False

    def __init__(self, log: Path) -> None:
        self._log = log
        self._next = 0

    def schema(self) -> pa.Schema:
        return SCHEMA

    def open(self, wake: Any) -> None:
        """Asks what arrived: the log is the answer."""
        log = hf.Log(self._log)
        self._first = log.bounds(committed=False).end if log.exists else 0

    def seek(self, state: Any | None) -> None:
        self._next = self._first if state is None else state

    def next_slice(self) -> Slice | None:
        if self._next >= ROWS:
            return None
        time.sleep(0.002)
        start, self._next = self._next, self._next + STEP
        return Slice(start, self._next, STEP)

    def snapshot(self) -> Any:
        return self._next

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        return pa.table({"n": list(range(piece.start, piece.end))}, schema=SCHEMA)

    def read_spark(self, session: Any, piece: Slice, stamp: Stamp | None) -> Any:
        raise NotImplementedError


def main(here: Path) -> None:
    made = hf.Topology("feed")
    feed = hf.Preserved(Feed(here / "log"), here / "log", rows_per_step=20)
    made.source(feed, name="feed").consistent("r", period=0.02).sink(
        hf.FileSink(here / "out", "parquet"), name="out"
    )
    job = submit_local(made, store=f"file:{here}/store")
    while not _all_visible(here):
        time.sleep(0.01)
    job.stop()
    job.close()


def _all_visible(here: Path) -> bool:
    return sum(pq.read_metadata(path).num_rows for path in (here / "out").glob("part-*.parquet")) >= ROWS


if __name__ == "__main__":
    main(Path(sys.argv[1]))
