"""A persisted stream under kills of the process that holds both ends: each row is in the log once, in order, and comes out once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import persist_program
import pytest
from killed import killed_and_finished, lived
from sampling import Extent

import holdfast as hf
from holdfast.log.look.verify import verify

PROGRAM = Path(persist_program.__file__)
PRODUCER = (
    "log.write=kill@4",
    "log.written=kill@5",
    "log.synced=kill@3",
    "log.acknowledged=kill@6",
    "log.tail.made=kill",
)
ALONE = ("persist.appended=kill", "persist.appended=kill@7", "step.end=kill@9", "step.begin=kill@8")
EPOCHS = (
    "ckpt.epoch.published=kill@2",
    "sink.commit.applied=kill@2",
    "sink.prepared=kill@3",
    "reset.source.seek=kill",
)
CONSUMER = ("log.consumer.written=kill",)


def twice(kill: str) -> list[str]:
    """In two lives, of which the second may have less to do; but a consumer registers in the first one only."""
    return [kill] if kill in CONSUMER else [kill, kill.partition("@")[0]]


def rows(path: Path) -> list[dict[str, Any]]:
    log = hf.Log(path)
    return log.reader().read_all().to_pylist() if log.exists else []


def all_of_log(here: Path) -> list[int]:
    """Rows that were let go count: their places tell that they were there."""
    log = hf.Log(here / "store/logs/middle")
    low = log.bounds().low
    found = [row["n"] for row in rows(here / "store/logs/middle")]
    return persist_program.kept()[:low] + found


def check_log(here: Path) -> None:
    assert all_of_log(here) == persist_program.kept()
    assert verify(hf.Log(here / "store/logs/middle").facts).problems == []


def check_exact(here: Path, shape: str = "rr") -> None:
    check_log(here)
    wanted = persist_program.expected()
    assert rows(here / "out") == (wanted if shape[1] == "r" else [{"n": row["n"]} for row in wanted])


def check_counted(here: Path, lost: int) -> None:
    """Outside of regions a row comes at most once, and what is missing was counted."""
    numbers = [row["n"] for row in rows(here / "out")]
    assert numbers == sorted(set(numbers))
    missing = set(persist_program.kept()) - set(numbers)
    assert len(missing) <= lost


@pytest.mark.parametrize("shape", ["rr", "sr", "cr", "rb", "sb", "br"])
def test_an_undisturbed_run_is_what_all_others_are_compared_with(shape: str, tmp_path: Path) -> None:
    status = persist_program.run(shape, tmp_path).as_dict()
    check_exact(tmp_path, shape)
    assert status["logs"]["middle"]["waiting"] == 0
    again = persist_program.run(shape, tmp_path)
    check_exact(tmp_path, shape)
    assert not sum(again.lost_rows.values())


@pytest.mark.parametrize("shape", ["rr", "sr", "cr"])
@pytest.mark.fault("B08")
def test_killed_with_both_ends_exactly_once(extent: Extent, shape: str, tmp_path: Path) -> None:
    kills = (*PRODUCER, *(() if shape == "rr" else ALONE), *EPOCHS, *CONSUMER)
    for number, kill in enumerate(extent.of(kills)):
        here = tmp_path / str(number)
        killed_and_finished(PROGRAM, here, twice(kill), shape)
        check_exact(here)


def test_killed_with_what_follows_outside_of_regions(extent: Extent, tmp_path: Path) -> None:
    cases = [(shape, kill) for shape in ("rb", "sb") for kill in (*PRODUCER, *CONSUMER)]
    for number, (shape, kill) in enumerate(extent.of(cases, 1, per=lambda case: case[0])):
        here = tmp_path / str(number)
        for each in twice(kill):
            assert lived(PROGRAM, here, each, shape) != 0, f"{each} did not fire"
        status = persist_program.run(shape, here)
        check_log(here)
        check_counted(here, status.lost_rows["out"])


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.chaos)])
def test_an_element_without_state_goes_on_behind_its_last_rows_at_any_kill(
    number: int, tmp_path: Path
) -> None:
    """No checkpoint: what the store knows of its position is thrown away, and nothing changes."""
    for kill in (
        f"persist.appended=kill@{3 + number}",
        f"log.synced=kill@{4 + number}",
        f"step.begin=kill@{9 + number}",
    ):
        assert lived(PROGRAM, tmp_path, kill, "sr") != 0
        for record in (tmp_path / "store/records").glob("account.numbers*"):
            record.unlink()
    assert lived(PROGRAM, tmp_path, "", "sr") == 0
    check_exact(tmp_path)


def test_the_checks_find_a_row_that_is_missing(tmp_path: Path) -> None:
    persist_program.run("sr", tmp_path)
    with hf.Log(tmp_path / "out") as log:
        log.append([persist_program.expected()[-1]])
    with pytest.raises(AssertionError):
        check_exact(tmp_path)
