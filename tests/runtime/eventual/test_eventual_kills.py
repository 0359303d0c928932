"""Aggregates and joins with eventual checkpoints, killed at every failpoint and by the clock: results are in the log once, no row is lost."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import eventual_program
import pytest
from faults import DRIVER_KILLED, fired
from killed import killed_and_finished
from sampling import Extent

import holdfast as hf
from holdfast import failpoints
from holdfast.errors import StepFailed
from holdfast.log.look.printer import print_segment
from holdfast.runtime.element.eventual import life, recording
from holdfast.testing import run_local

PROGRAM = Path(eventual_program.__file__)
WHATS = ("rows", "sliding", "time", "sessions", "marks", "apart", "near", "join", "narrow")
POINTS = (
    "eventual.note", "eventual.noted", "eventual.scanned", "eventual.replayed", "log.write", "log.written", "log.synced",
    "log.acknowledged", "step.begin", "step.end",
)  # fmt: skip


def written(here: Path) -> int:
    """Bytes of the results' log."""
    return sum(path.stat().st_size for path in (here / "output").glob("p*/*.tail"))


@contextmanager
def armed(failpoint: str) -> Iterator[None]:
    """With a failpoint that must fire."""
    failpoints.arm(failpoint)
    try:
        yield
    finally:
        assert all(failpoints.disarm().values()), f"{failpoint} did not fire"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[Any]]:
    found = {}
    for what in WHATS:
        here = tmp_path_factory.mktemp(what)
        eventual_program.fill(here)
        run_local(eventual_program.topology(here, what, 23 if what == "narrow" else 1000), partitions=1)
        found[what] = eventual_program.results(here)
        assert len(found[what]) > 50
        assert set(found[what].values()) == {1}
    return found


def test_killed_at_any_failpoint(extent: Extent, tmp_path: Path, golden: dict[str, Counter[Any]]) -> None:
    cases = list(itertools.product(WHATS, POINTS))
    for number, (what, point) in enumerate(extent.of(cases, 3)):
        here = tmp_path / f"{number}"
        here.mkdir()
        eventual_program.fill(here)
        again = 1 if point in ("eventual.scanned", "eventual.replayed") else 6
        first = "eventual.noted=kill@4"  # so that there is something to restore
        killed_and_finished(PROGRAM, here, [first, f"{point}=kill@{again}"], what)
        assert eventual_program.results(here) == golden[what], (what, point)


def test_killed_when_the_log_was_told_what_to_keep(tmp_path: Path, golden: dict[str, Counter[Any]]) -> None:
    """Before the first record is written."""
    eventual_program.fill(tmp_path)
    killed_and_finished(PROGRAM, tmp_path, ["eventual.pinned=kill@1"], "rows")
    assert eventual_program.results(tmp_path) == golden["rows"]


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("what", WHATS)
def test_killed_by_the_clock(tmp_path: Path, golden: dict[str, Counter[Any]], what: str) -> None:
    eventual_program.fill(tmp_path)
    seed = random.randrange(1 << 30)
    chance, killed = random.Random(seed), 0
    for _ in range(5):
        before = written(tmp_path)
        life = subprocess.Popen([sys.executable, str(PROGRAM), what, str(tmp_path)])
        while life.poll() is None and written(tmp_path) == before:
            time.sleep(0.002)  # it has not written yet
        time.sleep(chance.uniform(0, 0.3))
        if life.poll() is None:
            life.send_signal(signal.SIGKILL)
            killed += 1
        life.wait()
    fired(DRIVER_KILLED, killed)
    run_local(eventual_program.topology(tmp_path, what))
    assert eventual_program.results(tmp_path) == golden[what], f"seed {seed}"
    assert killed, f"seed {seed}: no life was killed"


@pytest.mark.parametrize("what", ["rows", "narrow"])
@pytest.mark.parametrize("point", ["eventual.note", "eventual.noted", "step.end"])
def test_a_step_that_fails_is_done_again_and_nothing_twice(
    tmp_path: Path, golden: dict[str, Counter[Any]], point: str, what: str
) -> None:
    eventual_program.fill(tmp_path)
    events: list[Any] = []
    with armed(f"{point}=raise@5"):
        status = run_local(eventual_program.topology(tmp_path, what), subscribers=[events.append])
    assert sum(element.failures for element in status.elements.values()) == 1
    assert eventual_program.results(tmp_path) == golden[what]
    kinds = [event.kind for event in events]
    assert "operator.windows_restored" in kinds
    assert "rows.lost" not in kinds


def test_an_element_that_fails_again_and_again_gives_up_and_loses_nothing(
    tmp_path: Path, golden: dict[str, Counter[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "RETRY_S", 0.001)
    eventual_program.fill(tmp_path)
    with armed("step.end=raise@7+"), pytest.raises(StepFailed, match="6 times in a row"):
        run_local(eventual_program.topology(tmp_path, "rows"))
    run_local(eventual_program.topology(tmp_path, "rows"))
    assert eventual_program.results(tmp_path) == golden["rows"]


def test_a_full_disk_is_waited_for(tmp_path: Path, golden: dict[str, Counter[Any]]) -> None:
    eventual_program.fill(tmp_path)
    events: list[Any] = []
    with armed("eventual.note=enospc@5"):
        run_local(eventual_program.topology(tmp_path, "rows"), subscribers=[events.append])
    assert "element.paused" in [event.kind for event in events]
    assert eventual_program.results(tmp_path) == golden["rows"]


def test_readers_of_the_log_never_see_records(tmp_path: Path) -> None:
    eventual_program.fill(tmp_path)
    run_local(eventual_program.topology(tmp_path, "rows"))
    log = hf.Log(tmp_path / "output")
    assert log.reader().read_all().column_names == ["k", "window_rows", "n", "total", "top"]
    assert log.reader().read_all().num_rows == log.bounds().end
    assert next(log.notes("output")).payload


def test_the_printer_shows_records(tmp_path: Path) -> None:
    eventual_program.fill(tmp_path, 100)
    run_local(eventual_program.topology(tmp_path, "rows"))
    (tail,) = (tmp_path / "output").rglob("*.tail")
    told = print_segment(tail, hf.Log(tmp_path / "output").facts)["notes"]
    assert "note 1: 0 records, 0 windows open" in told[0]
    assert any(line.startswith("  opened") and "k=" in line for line in told)
    assert any(line.startswith("  closed") for line in told)
    last = [line for line in told if ": note " in line][-1]
    assert "windows open, rows up to 0:99" in last


def test_others_read_on_behind_a_persisted_stream(tmp_path: Path, golden: dict[str, Counter[Any]]) -> None:
    """The log of a persisted stream has the records too: what follows reads each result once, though the aggregate fails."""
    eventual_program.fill(tmp_path)
    made = hf.Topology("windows")
    rows = made.source(hf.LogSource(tmp_path / "input", rows_per_step=23, consumer="windows"), name="input")
    computed = {"n": hf.count(), "total": hf.sum("v"), "top": hf.max("v")}
    found = rows.aggregate("k", window=hf.tumbling(rows=7), **computed, name="windows")
    kept = found.checkpoint(form=eventual_program.FORM).persist("results", path=tmp_path / "results")
    kept.sink(hf.LogSink(tmp_path / "output"), name="output")
    with armed("eventual.noted=raise@5"):
        run_local(made)
    assert eventual_program.results(tmp_path) == golden["rows"]


def test_retention_keeps_what_a_restore_needs(
    tmp_path: Path, golden: dict[str, Counter[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the results' log nor the input lets go what an open window needs, however short both are kept."""
    monkeypatch.setattr(recording, "PIN_S", 0.0)
    monkeypatch.setattr(life, "RETRY_S", 0.001)
    eventual_program.fill(tmp_path)

    def made() -> hf.Topology:
        made = hf.Topology("windows")
        rows = made.source(hf.LogSource(tmp_path / "input", rows_per_step=23, consumer="w"), name="input")
        computed = {"n": hf.count(), "total": hf.sum("v"), "top": hf.max("v")}
        found = rows.aggregate("k", window=hf.tumbling(rows=7), **computed, name="windows")
        found.checkpoint(form=hf.eventual(every=0.001, slow_after=0, shots=1)).sink(
            hf.LogSink(tmp_path / "output", keep_bytes=0), name="output"
        )
        return made

    with armed("step.end=raise@21+"), pytest.raises(StepFailed):
        run_local(made())
    output, given = hf.Log(tmp_path / "output", keep_bytes=0), hf.Log(tmp_path / "input")
    (pin,) = output.pins()
    (consumer,) = given.consumers()
    assert 0 < pin.positions[0] <= output.bounds().end
    assert 0 < consumer.positions[0] < 600
    before = output.reader().read_all().num_rows
    for log in (output, given):
        log.retain()
        log.close()
    run_local(made())
    assert before + hf.Log(tmp_path / "output").reader(before).read_all().num_rows == sum(
        golden["rows"].values()
    )


def test_streams_of_a_join_let_go_of_what_its_windows_do_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a join that goes on behind them has all that its windows held."""
    monkeypatch.setattr(recording, "PIN_S", 0.0)
    monkeypatch.setattr(life, "RETRY_S", 0.001)

    def made() -> hf.Topology:
        made = hf.Topology("joined")
        one, other = (
            made.source(hf.LogSource(tmp_path / name, rows_per_step=20, consumer="j"), name=name)
            for name in ("input", "others")
        )
        keep = {"keep": hf.latest(rows=40), "other_keep": hf.latest(rows=10)}
        met = one.join(other, by="k", **keep, name="windows").checkpoint(form=eventual_program.FORM_OF_JOINS)
        met.sink(hf.LogSink(tmp_path / "output", keep_bytes=0), name="output")
        return made

    eventual_program.fill(tmp_path)
    with armed("step.end=raise@6+"), pytest.raises(StepFailed):
        run_local(made())
    logs = {name: hf.Log(tmp_path / name) for name in ("input", "others")}
    held = {name: log.consumers()[0].positions[0] for name, log in logs.items()}
    assert 0 < held["input"] <= 100
    assert 0 < held["others"] <= 100
    for log in logs.values():
        log.retain()
        log.close()
    events: list[Any] = []
    run_local(made(), subscribers=[events.append])
    restored = next(event for event in events if event.kind == "operator.windows_restored")
    assert restored.windows == 2
    assert 50 <= restored.rows <= 250  # of 370: a life of one step checks nothing
