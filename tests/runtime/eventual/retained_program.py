"""An aggregate with eventual checkpoints between two logs that let go of what nobody needs: `python retained_program.py WHAT DIRECTORY`.

WHAT: `time` tumbling windows over time, `rows` tumbling and `sliding` windows over rows, `unchecked` as rows, but no window is ever checked,
`held` as that, but one window is opened by the row HELD and stays open. Segments are small, merged ones too, and upkeep never rests. The first keys fill one
window each and are never seen again. In a life with PIN_S seconds nobody is told before what is needed no more."""

from __future__ import annotations

import os
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.log.owner import Owner
from holdfast.runtime.element.eventual import recording
from holdfast.runtime.persisted import connectors
from holdfast.sinks import log_sink
from holdfast.testing import run_local

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS, SILENT, PER_WINDOW = 4000, 20, 7
HELD = 2000
SEGMENT_BYTES = 20_000
OFTEN = hf.eventual(every=0.001, slow_after=0, shots=1)
WINDOWS: dict[str, Any] = {
    "time": (hf.tumbling(10), hf.eventual(every=5, slow_after=2, shots=2)),
    "rows": (hf.tumbling(rows=PER_WINDOW), OFTEN),
    "sliding": (hf.sliding(rows=8, every=2), OFTEN),
    "unchecked": (hf.tumbling(rows=PER_WINDOW), hf.eventual(every=None)),
    "held": (hf.tumbling(rows=PER_WINDOW), hf.eventual(every=None)),
}


def row(number: int, what: str) -> tuple[datetime, int, int]:
    key = 100 + number // PER_WINDOW if number < SILENT * PER_WINDOW else number % 5
    key = 99 if what == "held" and number == HELD else key
    return BEGIN + timedelta(seconds=number // 6), key, number


def topology(here: Path, what: str) -> hf.Topology:
    made = hf.Topology("retained")
    rows = hf.Rows([row(n, what) for n in range(ROWS)], "at timestamp, k long, v long", rows_per_step=20)
    stream = made.source(rows, name="rows").event_time("at", delay=5).persist("middle", path=here / "middle")
    window, form = WINDOWS[what]
    found = stream.aggregate("k", window=window, n=hf.count(), total=hf.sum("v"), name="windows")
    found.checkpoint(form=form).sink(hf.LogSink(here / "out", keep_bytes=0), name="out")
    return made


def run(here: Path, what: str) -> None:
    recording.PIN_S = float(os.environ.get("PIN_S", "0"))
    connectors.FEW, connectors.ROWS_PER_STEP = 0, 25  # many steps, also of a run that begins far behind
    plain, log_sink.Log = log_sink.Log, partial(hf.Log, segment_bytes=SEGMENT_BYTES, upkeep_every=0.01)  # type: ignore[assignment, misc]
    compact, Owner.compact = Owner.compact, partialmethod(Owner.compact, SEGMENT_BYTES)  # type: ignore[method-assign, assignment]
    try:
        run_local(topology(here, what))
    finally:
        log_sink.Log, Owner.compact = plain, compact  # type: ignore[misc, method-assign]


def results(path: Path) -> Counter[tuple[Any, ...]]:
    """Those that are still there."""
    return Counter(tuple(each.values()) for each in hf.Log(path).reader().read_all().to_pylist())


def stored(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("p*/*"))


if __name__ == "__main__":
    run(Path(sys.argv[2]), sys.argv[1])
