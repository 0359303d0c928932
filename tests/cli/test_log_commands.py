"""`holdfast logs`: what it prints, as tables and as JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app, run_command
from holdfast.runtime.persisted.streams import unread
from holdfast.testing.log_interface import some


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two partitions, three segments each, a consumer and a pin."""
    root = tmp_path / "clicks"
    for start in (0, 10, 20):
        with hf.Log(root, partitions=2, upkeep_every=None) as opened:
            opened.append(some(start, 10))
            opened.append(some(start + 100, 10), partition=1)
    opened = hf.Log(root)
    opened.consumer("report", {0: 25, 1: 12}, epoch=4, expires="1 hour")
    opened.pin("keep", {0: 5, 1: 0})
    return root


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["logs", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def told(*words: object) -> Any:
    return json.loads(said(*words, "--json"))


def test_logs_are_found_and_listed(log: Path) -> None:
    (found,) = told("list", log.parent)
    assert found["path"] == str(log)
    assert [part["next"] for part in found["partitions"]] == [30, 30]
    assert "consumer report" not in said("list", log.parent)
    assert "pin keep" in said("list", log.parent)
    assert "there is no log" in said("list", log / "p00000")


def test_positions_of_withdrawn_rows_are_not_told_as_rows(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "some") as opened:
        opened.append([{"n": n} for n in range(4)], epoch=1)
        opened.seal_epoch(1)
        opened.append([{"n": n} for n in range(3)], epoch=2)
        opened.withdraw_after(1)
        opened.append([{"n": 9}], epoch=2)
        opened.seal_epoch(2)
    (found,) = told("list", tmp_path)
    (part,) = found["partitions"]
    assert (part["next"], part["rows"]) == (8, 5)
    assert unread(tmp_path / "some", "nobody") == 5
    hf.Log(tmp_path / "some").consumer("report", {0: 5})
    assert unread(tmp_path / "some", "report") == 1


def test_a_log_is_shown(log: Path) -> None:
    found = told("show", log)
    assert found["columns"] == {"n": "int64", "word": "string"}
    assert [part["writers"] for part in found["partitions"]] == [{"append": 3}, {"append": 3}]
    assert [each["form"] for each in found["segments"]] == ["frames", "frames", "tail"] * 2
    text = said("show", log)
    assert "n int64, word string" in text
    assert "00000000000000000010-0000000002.tail" in text


def test_a_segment_is_printed(log: Path) -> None:
    said("compact", log)
    tail = max((log / "p00000").glob("*.tail"))
    assert [each["kind"] for each in told("show", tail)["frames"]] == ["end"]
    assert "whole up to its end" in said("show", tail)
    (parquet,) = (log / "p00000").glob("*.parquet")
    assert told("show", parquet)["frames"][0]["rows"] == 30
    assert "the checksum matches its name" in said("show", parquet)
    data = bytearray(parquet.read_bytes())
    data[10] ^= 1
    parquet.write_bytes(data)
    assert "the checksum DOES NOT MATCH its name" in said("show", parquet)
    data[-20] ^= 1
    parquet.write_bytes(data)
    assert run_command(["logs", "show", str(parquet)]) == 7
    assert run_command(["logs", "show", str(tail.with_name("low.txt"))]) == 3


def test_rows_are_printed(log: Path) -> None:
    lines = said("tail", log, "--partition", 0, "--rows", 2).splitlines()
    assert [line.split()[:2] for line in lines] == [["0", "28"], ["0", "29"]]
    with hf.Log(log.parent / "one") as one:
        one.append(some(0, 9))
    rows = [
        json.loads(line)
        for line in said("tail", log.parent / "one", "--rows", 3, "--from", 4, "--json").splitlines()
    ]
    assert [(row["position"], row["row"]) for row in rows] == [(n, some(n, 1)[0]) for n in (4, 5, 6)]
    assert len(said("tail", log.parent / "one", "--from", "2020-01-01").splitlines()) == 9
    assert said("tail", log.parent / "one", "--from", "now") == ""


def test_rows_of_an_epoch_are_printed_when_it_is_sealed_or_all_are_asked_for(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as opened:
        opened.append(some(0, 1))
        opened.append(some(1, 1), epoch=1)
    assert len(said("tail", tmp_path / "log").splitlines()) == 1
    assert len(said("tail", tmp_path / "log", "--all").splitlines()) == 2


def test_damage_is_told(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told("verify", log) == {
        "segments": 6,
        "rows": 60,
        "bytes": told("verify", log)["bytes"],
        "notes": 0,
        "problems": [],
    }
    assert "all of it is what was written" in said("verify", log)
    path = min((log / "p00001").glob("*.tail"))
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    done = CliRunner().invoke(app, ["logs", "verify", str(log)])
    assert done.exit_code == 1
    assert "position 0" in done.output


def test_segments_are_merged(log: Path) -> None:
    assert told("compact", log)["before"] == 6
    assert said("compact", log) == "nothing to merge\n"
    assert told("verify", log)["rows"] == 60


def test_trimming_heeds_those_who_need_rows(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["logs", "trim", str(log), "10"]) == 6
    assert "pin keep" in capsys.readouterr().err
    found = told("consumers", log, "--unpin", "keep")
    assert [(each["kind"], each["name"], each["behind"], each["epoch"]) for each in found] == [
        ("consumer", "report", 23, 4)
    ]
    assert "report" in said("consumers", log)
    assert told("trim", log, 11) == {"0": 11, "1": 11}
    assert run_command(["logs", "trim", str(log), "20", "--partition", "1"]) == 6
    assert told("trim", log, 20, "--partition", 1, "--force") == {"1": 20}
    assert told("trim", log, "2020-01-01") == {"0": 11, "1": 20}
    assert told("consumers", log, "--forget", "report") == []
    assert "nobody has registered" in said("consumers", log)


def test_what_is_wrong_is_said(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["logs", "show", str(tmp_path / "nothing")]) == 3
    assert run_command(["logs", "trim", str(log), "soon"]) == 3
    assert run_command(["logs", "consumers", str(log), "--forget", "nobody"]) == 6
    assert "There are: report" in capsys.readouterr().err


def test_a_log_that_is_being_written_is_not_taken_away(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hf.Log(log) as opened:
        opened.append(some(30, 1))
        assert run_command(["logs", "compact", str(log)]) == 8
        assert "being written by process" in capsys.readouterr().err
        assert told("show", log)["writer"]["pid"] > 0
        assert told("show", log)["partitions"][0]["next"] == 31
        said("compact", log, "--take-over")
