"""Event time through logs where rows alone do not tell it: windows behind a log are those of a run without it, under any kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import persist_time_program as program
import pytest
from killed import killed_and_finished, lived
from sampling import Extent

import holdfast as hf
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.errors import TopologyError
from holdfast.log.format.note import Note
from holdfast.runtime.persisted.stream_notes import StreamNote
from holdfast.testing import MemorySink

PROGRAM = Path(program.__file__)
LOG = (
    "log.written=kill@5",
    "log.synced=kill@7",
    "log.acknowledged=kill@6",
    "step.begin=kill@9",
    "step.end=kill@20",
)
ALONE = ("persist.appended=kill@4", "persist.appended=kill@40")
EPOCHS = ("sink.prepared=kill@6", "ckpt.epoch.published=kill@2", "sink.commit.applied=kill@2", "sink.commit.recorded=kill@3",
          "sink.prepared=kill@3", "reset.source.seek=kill")  # fmt: skip
EVENTUAL = (
    "eventual.noted=kill@3",
    "eventual.note=kill@4",
    "eventual.scanned=kill",
    "eventual.replayed=kill",
)


def rows(path: Path) -> list[str]:
    log = hf.Log(path)
    return (
        sorted(json.dumps(row, default=str) for row in log.reader().read_all().to_pylist())
        if log.exists
        else []
    )


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a shape gives without a log."""
    known: dict[str, tuple[list[str], list[str]]] = {}

    def of(shape: str) -> tuple[list[str], list[str]]:
        kind = {"u": "u", "q": "u", "e": "e"}.get(shape[0], "r")
        if kind not in known:
            here = tmp_path_factory.mktemp(f"golden-{kind}")
            program.run(f"{kind}n", here)
            known[kind] = rows(here / "out"), rows(here / "late")
        return known[kind]

    return of


def made(here: Path) -> tuple[list[str], list[str]]:
    return rows(here / "out"), rows(here / "late")


def test_the_golden_runs_close_windows_by_rows_that_were_left_out_and_find_late_rows(golden: Any) -> None:
    out, late = golden("rr")
    last = max(n for _, _, n in program.EVENTS if n & 3 == 1 and n < program.LAST)
    assert sum(json.loads(row)["n"] for row in out) == sum(range(1, last + 1, 4)) - sum(
        json.loads(row)["n"] for row in late
    )
    assert len(late) > 5
    assert len(golden("ur")[0]) > 40
    assert len(golden("er")[0]) > 20


@pytest.mark.parametrize("shape", ["rr", "sr", "br", "ur", "qr", "er", "rb", "sb", "bb", "ub", "eb"])
def test_windows_behind_a_log_are_those_without_it(shape: str, golden: Any, tmp_path: Path) -> None:
    program.run(shape, tmp_path)
    assert made(tmp_path) == golden(shape)
    program.run(shape, tmp_path)
    assert made(tmp_path) == golden(shape)


@pytest.mark.parametrize("shape", ["rr", "sr", "ur", "qr", "er"])
@pytest.mark.fault("B08", "I10")
def test_killed_with_both_ends_windows_are_the_same(
    extent: Extent, shape: str, golden: Any, tmp_path: Path
) -> None:
    kills = (*LOG, *EPOCHS, *(EVENTUAL if shape == "er" else () if shape in ("rr", "qr") else ALONE))
    for number, kill in enumerate(extent.of(kills)):
        here = tmp_path / str(number)
        first = "eventual.noted=kill@9" if kill == "eventual.replayed=kill" else kill
        killed_and_finished(PROGRAM, here, [first, kill.partition("@")[0]], shape)
        assert made(here) == golden(shape), kill


def test_killed_with_what_follows_outside_of_regions_no_window_is_wrong(golden: Any, tmp_path: Path) -> None:
    """Rows that were on their way are lost: what is there has no more rows than it should, and nothing became late that was not."""
    assert lived(PROGRAM, tmp_path, "persist.appended=kill@20", "sb") != 0
    status = program.run("sb", tmp_path)
    out, late = golden("sb")
    wanted = {(row["window_start"], row["k"]): row["rows"] for row in map(json.loads, out)}
    found = {(row["window_start"], row["k"]): row["rows"] for row in map(json.loads, rows(tmp_path / "out"))}
    assert all(0 < count <= wanted[window] for window, count in found.items())
    assert set(rows(tmp_path / "late")) <= set(late)
    lost = sum(wanted.values()) + len(late) - sum(found.values()) - len(rows(tmp_path / "late"))
    assert lost <= status.lost_rows["out"]


def test_who_reads_behind_a_merge_finds_the_same_times(golden: Any, tmp_path: Path) -> None:
    """The run dies with its first epoch behind the log, so that all of it is read again: from Parquet, with notes beside it."""
    assert lived(PROGRAM, tmp_path, "sink.prepared=kill", "sr-") != 0
    place = tmp_path / "store/logs/middle"
    with hf.Log(place, take_over=True) as log:
        assert log.bounds().low == 0
        assert log.compact().before
    assert list(place.rglob("*.parquet.notes"))
    assert lived(PROGRAM, tmp_path, "", "sr-") == 0
    assert made(tmp_path) == golden("sr")


def test_windows_over_rows_with_eventual_checkpoints_cannot_tell_the_time_of_their_input() -> None:
    topology = hf.Topology("t")
    events = topology.source(hf.Rows(program.EVENTS, program.SCHEMA), name="events").event_time("at", delay=5)
    last = events.aggregate("k", window=hf.tumbling(rows=3), at=hf.max("at"), name="panes").checkpoint(
        form=hf.eventual()
    )
    behind = last.persist("middle").aggregate(
        "k", window=hf.tumbling(10, on="at"), n=hf.count(), name="windows"
    )
    behind.sink(MemorySink("x"), name="x")
    with pytest.raises(
        TopologyError, match=r"not over time.*behind the log of 'middle.log'.*Declare it behind the log"
    ):
        compile_graph(topology.graph(), ArrowAnalyser())


def test_a_note_survives_its_bytes() -> None:
    for note in (
        StreamNote({"a": {"next": 3}}),
        StreamNote(None, ((0, -5), (7, 9)), {"watermark": 9}),
        StreamNote({}),
    ):
        found = StreamNote.of(Note(3, 1, note.encode(), 7))
        assert found is not None
        assert (found.sources or {}, tuple(found.rises), found.clock) == (
            note.sources or {},
            tuple(note.rises),
            note.clock,
        )
    assert StreamNote.of(Note(3, 1, b"somebody else's", 7)) is None
