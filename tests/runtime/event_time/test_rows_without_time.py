"""Rows without an event time belong to no window and to no order: they are left out, counted once and told of."""

from __future__ import annotations

import datetime as dt
import logging
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.testing import FAILPOINTS, MemorySink, arm, disarm, run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [(f"k{n % 3}", None if n % 5 == 2 else BEGIN + dt.timedelta(seconds=n), n) for n in range(40)]
TIMELESS = sum(at is None for _, at, _ in ROWS)


class Seen(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> Any:
        return {"n": row.n}


VERBS: dict[str, Any] = {
    "window": lambda s: s.aggregate("k", n=hf.count(), window=hf.tumbling("5 seconds"), name="verb"),
    "session": lambda s: s.aggregate("k", n=hf.count(), window=hf.session("2 seconds"), name="verb"),
    "top_n": lambda s: s.top_n(99, by="k", order="n", window=hf.tumbling("5 seconds"), name="verb"),
    "sort": lambda s: s.sort(name="verb"),
    "sort by": lambda s: s.sort(by="k", name="verb"),
    "keyed": lambda s: s.keyed("k", Seen, "n long", order="event_time", name="verb"),
}


def run(verb: str, store: Path, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    topology = hf.Topology("timeless")
    MemorySink.clear("timeless")
    source = hf.Rows(ROWS, "k string, at timestamp, n long", rows_per_step=7)
    stream = topology.source(source, name="rows").consistent(name="r", period=0.02)
    VERBS[verb](stream.event_time("at", delay=0)).sink(MemorySink("timeless"), name="out")
    status = run_local(topology, store=f"file:{store}", close=True, **options)
    return status, MemorySink.rows("timeless")


def counted(status: Any) -> list[int]:
    counts = [found for element in status.elements.values() for found in element.counts.values()]
    return [found["without_time"] for found in counts if "without_time" in found]


@pytest.mark.parametrize("verb", VERBS)
def test_they_are_counted_once_and_told_of(
    verb: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        status, rows = run(verb, tmp_path)
    assert counted(status) == [TIMELESS]
    found = sum(row["n"] for row in rows) if verb in ("window", "session") else len(rows)
    assert found == len(ROWS) - TIMELESS
    said = [record.getMessage() for record in caplog.records]
    assert any("rows without an event time" in text for text in said), said
    assert any(f"{TIMELESS} without time in all runs" in text for text in said), said


@pytest.mark.parametrize("verb", ["window", "sort"])
def test_a_step_that_is_done_again_counts_them_once(verb: str, tmp_path: Path) -> None:
    assert "step.end" in FAILPOINTS
    arm("step.end=raise@4")
    try:
        status, _ = run(verb, tmp_path)
    finally:
        fired = disarm()
    assert fired == {"step.end": 1}
    assert counted(status) == [TIMELESS]
