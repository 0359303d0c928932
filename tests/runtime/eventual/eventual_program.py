"""Aggregates and joins with eventual checkpoints, killed anywhere: the results are in the log once.

    python eventual_program.py rows|sliding|time|sessions|marks|apart|near|join|narrow [spark] DIR

The input is a log of its own, DIR/input, made before; the results are in DIR/output. A join has another one, DIR/others, and windows that hold
all rows: so each pair is there once, whatever the pace of the streams. What meets in narrow ones follows from the steps. Without `spark` it runs without Spark.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.testing import run_local

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("ends", pa.bool_())]
)
ROWS = 600
FORM = hf.eventual(every=0.02, slow_after=0, shots=3)
JOINS = {"join": (ROWS, ROWS), "narrow": (40, 9)}
FORM_OF_JOINS = hf.eventual(every=0.001, slow_after=0, shots=1)
FORM_OF_TIME = hf.eventual(every=5, slow_after=2, shots=2)


def row(number: int) -> dict[str, Any]:
    second = number // 6 - (number % 11 == 0) * 3
    key = (number * 7919) % 5 if number % 3 else 100 + number % 40
    return {"k": key, "v": number % 97, "at": BEGIN + timedelta(seconds=second), "ends": number % 7 == 0}


def fill(here: Path, rows: int = ROWS) -> None:
    for name, every in (("input", 1), ("others", 4)):
        with hf.Log(here / name, schema=SCHEMA) as log:
            for first in range(0, rows, 50 * every):
                log.append([row(number) for number in range(first, min(first + 50 * every, rows), every)])


def topology(here: Path, what: str, rows_per_step: int = 23) -> hf.Topology:
    if what in JOINS:
        return joined(here, what, rows_per_step)
    made = hf.Topology("windows")
    rows = made.source(hf.LogSource(here / "input", rows_per_step=rows_per_step), name="input")
    computed = {"n": hf.count(), "total": hf.sum("v"), "top": hf.max("v")}
    match what:
        case "rows":
            window, form = hf.tumbling(rows=7), FORM
        case "sliding":
            window, form = hf.sliding(rows=8, every=2), FORM
        case "sessions":
            window, form = hf.session("3 seconds", on="at", delay=4), FORM_OF_TIME
        case "marks":
            window, form = hf.tumbling(until="ends"), FORM
        case "apart":
            window, form = hf.tumbling(delta="9 seconds", of="at"), FORM
        case "near":
            window, form = hf.sliding(delta="9 seconds", every=3, of="at"), FORM
        case _:
            window, form = hf.tumbling("10 seconds", on="at", delay=4), FORM_OF_TIME
    found = rows.aggregate("k", window=window, **computed, name="windows")
    found.checkpoint(form=form).sink(hf.LogSink(here / "output"), name="output")
    return made


def joined(here: Path, what: str, rows_per_step: int) -> hf.Topology:
    made = hf.Topology("joined")
    one, other = (
        made.source(hf.LogSource(here / name, rows_per_step=rows_per_step), name=name)
        for name in ("input", "others")
    )
    keep, other_keep = (hf.latest(rows=size) for size in JOINS[what])
    met = one.join(other, by="k", keep=keep, other_keep=other_keep, name="windows")
    met.checkpoint(form=FORM_OF_JOINS).sink(hf.LogSink(here / "output"), name="output")
    return made


def results(here: Path) -> Counter[tuple[Any, ...]]:
    log = hf.Log(here / "output")
    found = log.reader().read_all().to_pylist() if log.exists else []
    return Counter(tuple(row.values()) for row in found)


if __name__ == "__main__":
    *said, directory = sys.argv[1:]
    made = topology(Path(directory), said[0], 100 if "spark" in said else 23)
    if "spark" in said:
        from holdfast.runtime.engines.spark.session import make_session

        made.run(make_session("eventual", "local[2]", {}), until="available")
    else:
        run_local(made)
