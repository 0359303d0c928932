"""An output that is deleted or emptied between two runs although the store says that epochs were shown in it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from killed import lived

import holdfast as hf
from holdfast.errors import MismatchError
from holdfast.sinks.output.missing import Shown
from holdfast.testing import run_local

PROGRAM = Path(__file__).with_name("bad_rows_program.py")


def run(here: Path, rows: int, **settings: Any) -> None:
    topology = hf.Topology("gone")
    source = topology.source(hf.Rows([(n,) for n in range(rows)], "n long", rows_per_step=5), name="rows")
    source.consistent("r", period=0.02).sink(hf.FileSink(str(here / "out"), "json", **settings), name="out")
    run_local(topology, f"file:{here}/store")


def shown(out: Path) -> list[int]:
    return sorted(int(line[5:-1]) for path in out.glob("part-*") for line in path.read_text().splitlines())


def empty(out: Path) -> int:
    files = list(out.glob("part-*"))
    for file in files:
        file.unlink()
    return len(files)


@pytest.mark.parametrize("settings", [{}, {"roll": "1 GB"}], ids=["plain", "rolled"])
@pytest.mark.fault("D06", "X06")
def test_an_output_that_is_gone_as_a_whole_is_refused_until_it_is_back(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    out, away = tmp_path / "out", tmp_path / "away"
    run(tmp_path, 20, **settings)
    out.rename(away)
    for _ in range(2):  # a refused run makes it no better
        with pytest.raises(
            MismatchError, match=r"the output .*/out, into which \d+ files? (was|were)"
        ) as found:
            run(tmp_path, 30, **settings)
        assert "is its disk mounted?" in found.value.cure
        assert not shown(out)
    shutil.rmtree(out)
    away.rename(out)
    run(tmp_path, 30, **settings)
    assert shown(out) == list(range(30))


def test_an_output_that_is_gone_goes_on_in_a_fork(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from holdfast.cli.main import app

    run(tmp_path, 20)
    shutil.rmtree(tmp_path / "out")
    made = CliRunner().invoke(
        app, ["checkpoints", "fork", str(tmp_path / "store"), "1", str(tmp_path / "fork")]
    )
    assert made.exit_code == 0, made.output
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "fork").rename(tmp_path / "store")
    run(tmp_path, 30)
    assert shown(tmp_path / "out")[-10:] == list(range(20, 30))


@pytest.mark.parametrize("settings", [{}, {"roll": "1 GB"}], ids=["plain", "rolled"])
def test_an_output_without_a_file_is_told_once_and_the_run_goes_on_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    run(tmp_path, 20, **settings)
    removed = empty(tmp_path / "out")
    with caplog.at_level(logging.WARNING, "holdfast"):
        run(tmp_path, 30, **settings)
    told = [record.getMessage() for record in caplog.records if record.name == "holdfast.sinks"]
    assert len(told) == 1
    assert str(tmp_path / "out") in told[0]
    if not settings:
        assert told[0].startswith(f"sink 'out': {removed} file")
    assert "none is there any more" in told[0]
    assert shown(tmp_path / "out") == list(range(20, 30))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "holdfast"):
        run(tmp_path, 30, **settings)
    assert not [record for record in caplog.records if record.name == "holdfast.sinks"], "its files are there"


def test_files_of_all_runs_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for rows in (10, 20, 30):
        run(tmp_path, rows)
    removed = empty(tmp_path / "out")
    assert removed >= 3
    with caplog.at_level(logging.WARNING, "holdfast"):
        run(tmp_path, 30)
    assert f"{removed} files were written up to epoch" in caplog.text


def test_nothing_is_told_where_nothing_was_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, 0)
    shutil.rmtree(tmp_path / "out")
    with caplog.at_level(logging.WARNING, "holdfast"):
        run(tmp_path, 5)
    assert not [record for record in caplog.records if record.name == "holdfast.sinks"]
    assert shown(tmp_path / "out") == list(range(5))


@pytest.mark.parametrize("failpoint", ["ckpt.epoch.published=kill", "sink.commit.applied=kill"])
def test_a_first_epoch_that_is_not_visible_yet_is_no_output_that_is_gone(
    tmp_path: Path, failpoint: str
) -> None:
    assert lived(PROGRAM, tmp_path, failpoint) != 0
    assert lived(PROGRAM, tmp_path) == 0


def test_what_an_epoch_of_an_earlier_version_knows() -> None:
    file = ["t1/a0/s1/part-0.json", "part-0.json", 10, 1]
    assert Shown.of(3, {"files": [file]}, 3, False) == Shown(3, 1, True)  # type: ignore[arg-type]
    assert Shown.of(3, {"files": [file]}, 2, False).files == 0  # type: ignore[arg-type]
    assert Shown.of(3, {"files": []}, None, False).files == 0  # type: ignore[arg-type]
