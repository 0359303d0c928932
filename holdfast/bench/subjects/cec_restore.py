"""The document's worked example: 100 windows of 10,000 rows, 90 % full, rows of 100 bytes. What a restore reads and replays with eventual
checkpoints, and, beside it, with incremental ones in a region."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import holdfast as hf
from holdfast.checkpoint import manifest
from holdfast.checkpoint.look.epochs import choose_epoch, choose_region, open_reader
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.job import Job
from holdfast.runtime.telling.window_events import WindowsRestored
from holdfast.store.urls import open_store

if TYPE_CHECKING:
    from holdfast.bench.subjects.cec import Work

ROW_BYTES = 100
Engines = Callable[[], Engine]


def worked_example(here: Path, work: Work, engines: Engines, console: Console) -> dict[str, Any]:
    """Bytes of state read and of rows replayed, both ways."""
    rows = fill(here / "input", work)
    eventual = topology(here, work, "eventual")
    run(eventual, engines, None, [])
    found: list[Any] = []
    begun = time.perf_counter()
    again = run(topology(here, work, "eventual"), engines, None, found)
    took = time.perf_counter() - begun
    (restored,) = [event for event in found if isinstance(event, WindowsRestored)]
    begun = time.perf_counter()
    run(topology(here, work, "incremental"), engines, here / "store", [])
    rate = rows / (time.perf_counter() - begun)
    # Replayed into windows, and read again behind the newest note: both had been read before.
    replayed = restored.rows + again
    state = state_bytes(here / "store")
    shutil.rmtree(here)
    report = {
        "windows": restored.windows,
        "rows": rows,
        "state_bytes_read": restored.bytes,
        "bytes_replayed": replayed * ROW_BYTES,
        "restore_and_run_s": round(took, 2),
        "incremental_state_bytes_read": state,
        "incremental_bytes_replayed_at_most": round(min(rows, rate * PERIOD_S) * ROW_BYTES),
    }
    console.print(f"worked example: {report}")
    return report


PERIOD_S = 2.0
"""Of the region beside it: a failure replays at most what came since its last epoch."""


def fill(here: Path, work: Work) -> int:
    """Rows of 100 bytes: a key, a number, and text. All windows are as full."""
    here.mkdir(parents=True)
    rows = round(work.windows * work.window_rows * work.full)
    text = "x" * (ROW_BYTES - 20)
    for number, first in enumerate(range(0, rows, work.step_rows)):
        ids = np.arange(first, min(rows, first + work.step_rows))
        table = pa.table({"item": ids % work.windows, "price": ids % 97, "text": [text] * len(ids)})
        pq.write_table(table, here / f"{number:05}.parquet")
    return rows


def topology(here: Path, work: Work, form: str) -> hf.Topology:
    made = hf.Topology("worked_example")
    source = hf.Files(here / "input", format="parquet", max_files_per_step=1)
    rows = made.source(source, name="items")
    if form == "incremental":
        rows = rows.consistent("r", period=PERIOD_S)
    window = hf.tumbling(rows=work.window_rows)
    average = rows.aggregate("item", window=window, average=hf.avg("price"), name="average")
    kept = average.checkpoint(form=hf.eventual(None) if form == "eventual" else hf.incremental())
    kept.sink(hf.LogSink(here / form), name="log")
    return made


def run(made: hf.Topology, engines: Engines, store: Path | None, events: list[Any]) -> int:
    """To the end of the input; how many rows were read in steps."""
    opened = None if store is None else open_store(f"file:{store}")
    job = Job(made.graph(), engines(), opened, until="available", subscribers=[events.append]).start()
    try:
        while not job.await_termination(timeout=3600):
            pass
        return sum(element.rows for element in job.status().elements.values())
    finally:
        job.close()


def state_bytes(store: Path) -> int:
    """What a restore of the newest epoch would read of the aggregate."""
    reader = open_reader(f"file:{store}")
    region = choose_region(reader, None)
    epoch = choose_epoch(reader, region)
    found = manifest.decode(reader.manifest(region, epoch), str(store))
    return sum(
        part.operators["average"].bytes for part in found.parts.values() if "average" in part.operators
    )
