"""A log and a replay of it: `python replay_program.py DIRECTORY`. The log is made by `make_log`, before."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.runtime.engines.local import LocalEngine

ROWS, STEP = 600, 25
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])


class Doubled:
    """State: how many it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"n": 2 * row.n, "seen": self.seen}


def make_log(path: Path, rows: int = ROWS) -> None:
    """A row every 10 ms, in appends of 7; some of an epoch that was withdrawn; the older half is merged."""
    with hf.Log(path, schema=SCHEMA, time="at", upkeep_every=None) as log:
        for first in range(0, rows, 7):
            numbers = range(first, min(first + 7, rows))
            log.append([row(n) for n in numbers])
            if first % 5 == 0:
                log.append([row(-1)], epoch=first + 1)
                log.withdraw_after(first)
            if first == 35 * (rows // 70):
                log.compact()


def row(n: int) -> dict[str, Any]:
    return {"n": n, "k": f"k{n % 5}", "at": BEGIN + timedelta(milliseconds=10 * n)}


class Trap(hf.Sink):
    """A real sink, which a replay must not open."""

    def open(self, context: Any) -> None:
        raise AssertionError("a real sink was opened")

    def write_spark(self, frame: Any, step: Any) -> int | None:
        raise AssertionError

    def write_arrow(self, table: Any, step: Any) -> int | None:
        raise AssertionError


class Live(hf.Source):
    """A real source, which a replay must not open."""

    replayable = False

    def schema(self) -> pa.Schema:
        return SCHEMA

    def open(self, wake: Any) -> None:
        raise AssertionError("a real source was opened")

    seek = next_slice = snapshot = read_spark = read_arrow = open  # type: ignore[assignment]


def topology() -> hf.Topology:
    """Partly in a region, partly not; unnamed operators; changes that depend on how steps are cut."""
    made = hf.Topology("shop")
    rows = made.source(Live(), name="orders")
    rows.aggregate("k", times=hf.count(), total=hf.sum("n")).sink(Trap(), name="changes")
    kept = rows.replayable(name="kept").consistent("shop")
    kept.aggregate("k", times=hf.count(), emit="each", name="counted").sink(Trap(), name="each")
    kept.autonomous().apply(Doubled, "n long, seen long").sink(Trap())
    return made


def replay(here: Path, into: str = "into", **options: Any) -> hf.Replayed:
    return hf.replay(
        topology(),
        here / "log",
        into=here / into,
        rows_per_step=STEP,
        format="parquet",
        engine=LocalEngine(2),
        period_s=0.02,
        **options,
    )


if __name__ == "__main__":
    replay(Path(sys.argv[1]))
