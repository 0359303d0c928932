"""Logs written in every format so far are read, verified, merged and gone on with by this one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import make_log
import pytest

import holdfast as hf
from holdfast import failpoints
from holdfast.errors import MismatchError
from holdfast.failpoints import FaultInjected
from holdfast.log.look.printer import print_segment
from holdfast.log.look.verify import verify
from holdfast.log.place import FORMAT, Origin

HERE = Path(__file__).resolve().parent
FORMATS = sorted(int(path.name.removeprefix("log-")) for path in HERE.glob("log-*"))


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    source = HERE / f"log-{request.param}"
    shutil.copytree(source / "log", tmp_path / "log")
    return tmp_path / "log", json.loads((source / "expected.json").read_text())


def test_every_format_has_a_golden_log_and_none_is_made_again() -> None:
    assert list(range(1, FORMAT + 1)) == FORMATS
    with pytest.raises(SystemExit, match="exists"):
        make_log.main()


def test_a_golden_log_is_read_as_it_was_written(golden: tuple[Path, dict[str, Any]]) -> None:
    root, expected = golden
    assert make_log.content(root) == expected
    assert verify(hf.Log(root).facts).problems == []
    assert hf.Log(root).facts.origin == Origin("shop", "orders", "0")
    log = hf.Log(root)
    assert (log.sealed_epoch, [each.name for each in log.consumers()], [each.name for each in log.pins()]) == (
        2, ["report"], ["before-upgrade"],
    )  # fmt: skip


def test_what_is_expected_is_what_was_appended() -> None:
    """Computed from what was appended alone, not by a log."""
    wanted: dict[str, list[int]] = {"0": list(range(6, 60)), "1": [*range(16), 20, 21]}
    for number in FORMATS:
        found = json.loads((HERE / f"log-{number}/expected.json").read_text())["committed"]
        for partition, positions in wanted.items():
            assert [row[0] for row in found[partition]] == positions
        assert [row[1]["n"] for row in found["0"]] == wanted["0"]
        assert [row[1]["n"] for row in found["1"]] == [*range(100, 116), 116, 117]


def test_the_notes_that_are_expected_are_those_that_were_written() -> None:
    """Those before position 6 were trimmed with the rows; one that came with rows which no seal covers does not count yet."""
    found = json.loads((HERE / "log-2/expected.json").read_text())["notes"]
    assert [note[3] for note in found["feed 0 committed"]] == ["feed 4", "feed 3", "feed 2"]
    assert [note[0] for note in found["feed 0 committed"]] == [16, 12, 8]
    alone = [*range(13, 4, -1), 4, 3, 2, 1]
    assert [note[3] for note in found["clerk 0 all"]] == [f"alone {n}" for n in alone]
    assert [note[0] for note in found["clerk 0 all"]] == [4 * n + 4 for n in alone]
    assert [note[3] for note in found["clerk 1 committed"]] == [bytes(range(256)).decode("latin-1")]
    assert [note[3] for note in found["clerk 1 all"]] == ["open", bytes(range(256)).decode("latin-1")]


@pytest.mark.fault("U03")
def test_a_log_of_format_1_becomes_one_of_format_2_before_its_first_note(tmp_path: Path) -> None:
    root = tmp_path / "log"
    shutil.copytree(HERE / "log-1/log", root)
    expected = json.loads((HERE / "log-1/expected.json").read_text())
    with hf.Log(root, upkeep_every=None) as log:
        log.append(make_log.rows(60), time=make_log.at(30))
    assert hf.Log(root).facts.format == 1  # older programs go on with it as long as nothing new is in it
    failpoints.arm("log.format.raised=raise")
    try:
        with hf.Log(root, upkeep_every=None) as log, pytest.raises(FaultInjected):
            log.writer("clerk").note(b"first")
        assert failpoints.fired() == {"log.format.raised": 1}
    finally:
        failpoints.disarm()
    assert hf.Log(root).facts.format == 2
    assert list(hf.Log(root).notes("clerk")) == []
    with hf.Log(root, upkeep_every=None) as log:
        log.writer("clerk").append(make_log.rows(64), time=make_log.at(31), note=b"second", wait=True)
        log.compact()
    log = hf.Log(root)
    assert [note.payload for note in log.notes("clerk")] == [b"second"]
    assert (
        make_log.content(root)["committed"]["0"][: len(expected["committed"]["0"])]
        == expected["committed"]["0"]
    )
    assert verify(log.facts).problems == []


@pytest.mark.fault("U01")
def test_a_golden_log_goes_on(golden: tuple[Path, dict[str, Any]]) -> None:
    root, expected = golden
    with hf.Log(root, upkeep_every=None) as log:
        assert log.writer("feed").last_sequence == 50
        assert not log.writer("feed").append(make_log.rows(0), sequence=50).result().is_new
        assert log.append(make_log.rows(60), time=make_log.at(30)).position == 60
        log.seal_epoch(3)
        assert log.compact().before >= 5
    found = make_log.content(root)["committed"]
    assert found["0"][:-4] == expected["committed"]["0"]
    assert [row[1]["n"] for row in found["0"][-4:]] == [60, 61, 62, 63]
    assert found["1"] == expected["all"]["1"]
    if "notes" in expected:
        notes = make_log.content(root)["notes"]
        assert notes == {**expected["notes"], "clerk 1 committed": expected["notes"]["clerk 1 all"]}
    assert verify(hf.Log(root).facts).problems == []


def test_files_of_a_golden_log_are_printed(golden: tuple[Path, dict[str, Any]]) -> None:
    root, _ = golden
    facts = hf.Log(root).facts
    ends = [print_segment(path, facts)["end"] for path in sorted(root.glob("p*/*.tail"))]
    assert sum("torn" in end for end in ends) == 1
    assert all("DAMAGED" not in end for end in ends)
    assert all("matches" in print_segment(path, facts)["end"] for path in root.glob("p*/*.parquet"))


@pytest.mark.fault("U02")
def test_a_newer_format_is_refused(golden: tuple[Path, dict[str, Any]]) -> None:
    from holdfast.store import sealed_file

    root, _ = golden
    facts = hf.Log(root).facts
    data = (root / "identity").read_bytes()
    payload = json.loads(sealed_file.unseal(data, "", "log", facts.id, "identity"))
    newer = json.dumps({**payload, "format": FORMAT + 1}).encode()
    (root / "identity").write_bytes(sealed_file.seal("log", facts.id, "identity", newer))
    with pytest.raises(MismatchError, match="format"):
        hf.Log(root)
