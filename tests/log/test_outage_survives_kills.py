"""Streams that are persisted for outages only, under kills of the process, and with a reader that is down: each row comes out once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import persist_program
import pyarrow as pa
import pytest
from faults import fired
from killed import killed_and_finished, lived
from sampling import Extent

import holdfast as hf
from holdfast import failpoints
from holdfast.errors import ConfigError, MismatchError, TopologyError
from holdfast.log.look.verify import verify
from holdfast.runtime.persisted.outage import shared
from holdfast.testing import MemorySink, run_local, submit_local

PROGRAM = Path(persist_program.__file__)
KILLS = (
    "persist.held=kill@3",
    "persist.taken=kill@3",
    "persist.appended=kill@5",
    "persist.released=kill@2",
    "persist.to_log=kill",
    "persist.to_log=kill@2",
    "persist.in_log=kill",
    "persist.in_log=kill@3",
    "log.written=kill@2",
    "log.synced=kill",
    "log.acknowledged=kill@2",
    "step.begin=kill@8",
    "step.end=kill@9",
    "ckpt.epoch.published=kill@2",
    "sink.commit.applied=kill",
    "sink.prepared=kill@2",
)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    held = shared.HELD_BYTES
    yield
    shared.HELD_BYTES = held
    failpoints.disarm()


def rows(path: Path) -> list[dict[str, Any]]:
    log = hf.Log(path)
    return log.reader().read_all().to_pylist() if log.exists else []


def check(here: Path) -> None:
    assert rows(here / "out") == persist_program.expected()
    if hf.Log(here / "store/logs/middle").exists:
        assert verify(hf.Log(here / "store/logs/middle").facts).problems == []


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


def test_an_undisturbed_run_and_another_one(tmp_path: Path) -> None:
    persist_program.run("or", tmp_path)
    check(tmp_path)
    again = persist_program.run("or", tmp_path)
    check(tmp_path)
    assert not sum(again.lost_rows.values())


def test_killed_anywhere_exactly_once(extent: Extent, tmp_path: Path) -> None:
    for number, kill in enumerate(extent.of(KILLS, 2)):
        here = tmp_path / str(number)
        killed_and_finished(PROGRAM, here, [kill], "or")
        check(here)


def test_killed_again_and_again_exactly_once(tmp_path: Path) -> None:
    for kill in (
        "persist.in_log=kill",
        "persist.taken=kill@2",
        "persist.held=kill@4",
        "ckpt.epoch.published=kill",
    ):
        lived(PROGRAM, tmp_path, kill, "or")
    assert lived(PROGRAM, tmp_path, "", "or") == 0
    check(tmp_path)


def test_a_reader_outside_of_regions_gets_rows_at_most_once_and_in_order(tmp_path: Path) -> None:
    for kill in ("persist.taken=kill@3", "persist.to_log=kill"):
        lived(PROGRAM, tmp_path, kill, "ob")
    status = persist_program.run("ob", tmp_path)
    numbers = [row["n"] for row in rows(tmp_path / "out")]
    assert numbers == sorted(set(numbers))
    assert len(set(persist_program.kept()) - set(numbers)) <= status.lost_rows["out"]


def wide(table: pa.Table) -> pa.Table:
    return table.append_column("text", pa.array([f"{n:06d}" * 200 for n in table.column("n").to_pylist()]))


def test_the_log_is_used_while_the_reader_is_down_and_not_after_it_caught_up(tmp_path: Path) -> None:
    flag, log, total = tmp_path / "down", tmp_path / "store/logs/middle", 4000
    shared.HELD_BYTES = 1_000_000
    made = hf.Topology("t")
    data = hf.Beacon(rows=total, rate=1000, rows_per_step=10)
    numbers = made.source(data, name="numbers").map_arrow(renamed, "n long, text string", name="wide")
    behind = numbers.persist("middle", when="outage").consistent("second", period=0.05)
    behind.apply(lambda: persist_program.Broken(str(flag)), "n long, count long", name="counted").sink(
        hf.LogSink(tmp_path / "out"), name="out"
    )
    job = submit_local(made, f"file:{tmp_path}/store")

    def at() -> dict[str, Any]:
        return dict(job.status().as_dict()["logs"]["middle"])

    try:
        wait(lambda: len(rows(tmp_path / "out")) > 50, "the first rows")
        assert not hf.Log(log).exists, "the reader is there: nothing is written"
        flag.touch()
        wait(lambda: job.status().regions["second"].phase == "parked", "the reader to be parked")
        fired("reader parked")
        wait(lambda: hf.Log(log).exists and hf.Log(log).bounds().end > 300, "rows in the log")
        wait(lambda: at()["in_memory"] == 0, "all of them there")
        flag.unlink()
        job.resume()
        wait(lambda: at()["now_by"] == "memory", "the reader to catch up")
        end = hf.Log(log).bounds().end
        reached = len(rows(tmp_path / "out"))
        wait(lambda: len(rows(tmp_path / "out")) > min(total - 1, reached + 200), "more rows")
        assert hf.Log(log).bounds().end == end, "nothing more is written"
        wait(lambda: len(rows(tmp_path / "out")) == total, "all rows")
        job.stop()
    finally:
        job.close()
    found = rows(tmp_path / "out")
    assert [row["n"] for row in found] == list(range(total))
    assert [row["count"] for row in found] == list(range(1, total + 1))


def renamed(table: pa.Table) -> pa.Table:
    return wide(table.select(["id"]).rename_columns(["n"]))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.consistent("r").persist("m", when="outage"), "could not make its rows again"),
        (lambda s: s.apply(persist_program.Passed, "n long", name="p").persist("m", when="outage"), "could not make"),
        (lambda s: s.persist("m", when="outage", keep="1 day"), "keeps nothing else"),
        (lambda s: s.persist("m", when="never"), "when must be"),
    ],
)  # fmt: skip
def test_what_could_not_be_made_again_is_refused(
    build: Callable[[Any], Any], said: str, tmp_path: Path
) -> None:
    made = hf.Topology("t")
    with pytest.raises(TopologyError, match=said):
        build(made.source(hf.Rows([(1,)], "n long"), name="s")).sink(MemorySink("x"), name="x")
        run_local(made, store=f"file:{tmp_path}/store")


def test_without_a_store_nobody_knows_what_was_read(tmp_path: Path) -> None:
    made = hf.Topology("t")
    rows = made.source(hf.Rows([(1,)], "n long"), name="s").persist("m", when="outage", path=tmp_path / "log")
    rows.sink(MemorySink("x"), name="x")
    with pytest.raises(ConfigError, match="no store"):
        run_local(made)


def test_a_stream_stays_one_that_is_persisted_for_outages(tmp_path: Path) -> None:
    persist_program.run("or", tmp_path)
    with pytest.raises(MismatchError, match="was persisted for outages only"):
        persist_program.run("sr", tmp_path)
    check(tmp_path)
