"""A run for a page: beats until it is killed; its operator refuses rows as soon as a file says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing.local import run_local

HERE = Path(sys.argv[1])


def refuse(batch: Any) -> Any:
    if (HERE / "broken").exists():
        raise ValueError("<img id=evil src=x onerror=alert(1)> is no number")
    return batch


beats = hf.Topology("beats")
rows = beats.source(hf.Beacon(rate=200, rows_per_step=50), name="rows").consistent(
    "heart", period=0.3, max_consecutive_resets=2
)
checked = rows.map_arrow(refuse, "id long, timestamp timestamp", name="check").persist("kept")
checked.aggregate("id", n=hf.count(), name="counts").sink(
    hf.FileSink(HERE / "out", format="json"), name="out"
)
rows.sink(hf.LogSink(HERE / "log"), name="beats_log")
run_local(beats, store=f"file:{HERE}/store", until=None)
