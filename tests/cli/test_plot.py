"""`holdfast plot STORE --state-size`: a picture of what the event log tells, run by run, or a sentence why there is none."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import run_command
from holdfast.cli.state_picture import lives_of
from holdfast.runtime.telling import events as e
from holdfast.runtime.telling.stored_events import encode
from holdfast.store.urls import open_store

TOLD: list[e.RunEvent] = [
    e.RunStarted("t"),
    e.StateSizes("r", {"a": [[1.0, 0], [2.0, 5000]], "b": [[1.0, 100], [2.0, 100]]}),
    e.EpochDecided("r", "profiling", 2.0, 5100, 5100),
    e.TimingProfiled("r", 2.0, 900, 100, 2500, ("a",)),
    e.StateSizes("r", {"a": [[2.5, 6000], [2.6, 50], [3.0, 800]], "b": [[3.0, 100]]}),
    e.EpochDecided("r", "foreseen increase", 2.7, 200, 300, 900),
    e.StateSizes("other", {"c": [[1.0, 7]]}),
    e.RunStarted("t"),
    e.StateSizes("r", {"a": [[60.0, 50], [61.0, 70]]}),
]


def written(path: Path, told: list[e.RunEvent]) -> str:
    store = open_store(f"file:{path}/store")
    store.open("t")
    store.acquire(take_over=False)
    store.append_events([encode(event) for event in told])
    store.release()
    return store.url


def test_the_picture_shows_what_the_log_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, out = written(tmp_path, TOLD), tmp_path / "pictures" / "sizes.png"
    assert run_command(["plot", url, "--state-size", "--out", str(out), "--region", "r"]) == 0
    data = out.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1080, 480)
    assert "region r, 10 turning points, 2 epochs" in capsys.readouterr().out
    drawn = tmp_path / "sizes.svg"
    assert run_command(["plot", url, "--state-size", "--out", str(drawn), "--region", "r"]) == 0
    said = drawn.read_text()
    for label in ("turning points", "s_max", "epoch at a minimum", "State of region r"):
        assert f"<!-- {label}" in said or label in said, label


def test_sizes_are_summed_within_a_run_and_not_across_runs() -> None:
    first, second = lives_of(TOLD, "r")
    assert first.total == [(1, 100), (2, 5100), (2.5, 6100), (2.6, 150), (3, 900)]
    assert second.total == [(60, 50), (61, 70)]
    assert [epoch.reason for epoch in first.epochs] == ["profiling", "foreseen increase"]
    assert not second.epochs


@pytest.mark.parametrize(
    ("told", "given", "sentence"),
    [
        (TOLD, [], "there is nothing to draw"),
        (TOLD, ["--state-size"], "several regions tell sizes: other, r"),
        (TOLD, ["--state-size", "--region", "x"], "region 'x' tells no sizes"),
        (TOLD[:1], ["--state-size"], "tells the size of state"),
    ],
)
def test_what_cannot_be_drawn_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: Any, given: list[str], sentence: str
) -> None:
    url = written(tmp_path, told)
    assert run_command(["plot", url, "--out", str(tmp_path / "x.png"), *given]) != 0
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = written(tmp_path, TOLD[:2])
    assert run_command(["plot", url, "--state-size", "--out", str(tmp_path / "x.doc")]) != 0
    assert "cannot be drawn" in capsys.readouterr().err
