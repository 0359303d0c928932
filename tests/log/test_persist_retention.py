"""Logs of persisted streams stay small in the long run, whatever reads them: bytes are counted after each of many lives of a program.

Each life brings as many rows as the one before, and at least three epochs. What a log holds at the end of a life must not grow with their number."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import persist_program
import pytest

import holdfast as hf
from holdfast.log import owner
from holdfast.runtime.runs import source_seats
from holdfast.sinks import log_sink
from holdfast.testing import run_local

LIVES, ROWS = 10, 200
SEGMENT_BYTES = 4_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "at timestamp, n long, family long, text string"
ROW_BYTES = 224

CASES = (
    ("stateless", "eventual"),
    ("region", "region and another"),
    ("stateless", "best effort and another"),
)
MORE = (
    ("stateless", "region"), ("stateless", "best effort"), ("stateless", "region and another"), ("stateless", "eventual and another"),
    ("region", "region"), ("region", "best effort"), ("region", "best effort and another"),
)  # fmt: skip


def program(here: Path, before: str, behind: str, rows: int) -> hf.Topology:
    made = hf.Topology("long")
    data = [
        (BEGIN + timedelta(seconds=n), n, n % 5, random.Random(n).randbytes(100).hex()) for n in range(rows)
    ]
    stream = made.source(hf.Rows(data, COLUMNS, rows_per_step=20), name="rows").event_time("at", delay=5)
    if before == "region":
        stream = stream.consistent("first", period=0.01)
    stream = stream.persist("middle", path=here / "middle")
    first, _, other = behind.partition(" and ")
    if first == "region":
        stream = stream.consistent("second", period=0.01)
        stream.apply(persist_program.Numbered, "n long, count long, total long", name="numbered").sink(
            hf.LogSink(here / "out", keep_bytes=0), name="out"
        )
    elif first == "best effort":
        stream.autonomous().isolate().sink(hf.LogSink(here / "out", keep_bytes=0), name="out")
    else:
        windows = stream.aggregate("family", window=hf.tumbling(10), n=hf.count(), name="windows")
        form = hf.eventual(every=5, slow_after=2, shots=2)
        windows.checkpoint(form=form).sink(hf.LogSink(here / "out", keep_bytes=0), name="out")
    if other and (here / "middle").exists():  # it comes when there is a log to be read
        again = made.source(hf.LogSource(here / "middle", consumer="another"), name="second_rows")
        again.consistent("third", period=0.01).sink(hf.LogSink(here / "copy", keep_bytes=0), name="copy")
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_sink, "Log", partial(hf.Log, segment_bytes=SEGMENT_BYTES, upkeep_every=0.02))
    monkeypatch.setattr(source_seats, "LET_GO_S", 0.01)


def stored(path: Path) -> int:
    """Bytes of all files of the log, when all that may go has gone."""
    with hf.Log(path, upkeep_every=None) as log:
        log.retain()
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


@pytest.mark.parametrize(
    ("before", "behind"), [*CASES, *(pytest.param(*case, marks=pytest.mark.chaos) for case in MORE)]
)
def test_what_a_log_holds_does_not_grow_with_the_number_of_epochs(
    tmp_path: Path, before: str, behind: str
) -> None:
    held = []
    for life in range(1, LIVES + 1):
        run_local(program(tmp_path, before, behind, life * ROWS), store=f"file:{tmp_path}/store")
        bounds = hf.Log(tmp_path / "middle").bounds()
        assert bounds.end == life * ROWS
        held.append(stored(tmp_path / "middle"))
    log = hf.Log(tmp_path / "middle")
    needed = {each.name: each.positions[0] for each in log.consumers()}
    assert len(needed) == (2 if "another" in behind else 1)
    assert min(needed.values()) >= (LIVES - 3) * ROWS, needed  # three epochs are kept
    assert max(held) < 4 * max(held[:3]), held
    assert log.bounds().low >= (LIVES - 4) * ROWS, (log.bounds(), needed)


def test_upkeep_does_not_merge_rows_that_nobody_needs_with_rows_that_somebody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged again and again with new ones, old rows would stay as long as rows come."""
    monkeypatch.setattr(owner, "MERGE_FROM_SEGMENTS", 2)
    with hf.Log(tmp_path / "log", segment_bytes=1, upkeep_every=None) as log:
        for done in range(8):
            for n in range(10):
                log.append([{"n": 100 * done + 10 * n + row} for row in range(10)])
            log.consumer("reader", max(0, 100 * done - 45))
            log.owner().look_after()
            assert log.bounds().low > 100 * (done - 3), "what was needed a while ago stays"
            assert len(log.ranges(log.bounds().low, log.bounds().end)) < 8, "what is needed is merged"
        rest = log.reader(655).read_all().column("n").to_pylist()
        assert rest == list(range(655, 800))
