"""A log is killed at each of its failpoints, several times in a row: no row is lost, doubled or at another position."""

from __future__ import annotations

import random
from pathlib import Path

import log_program
import pytest
from killed import killed_and_finished, lived, undisturbed

import holdfast as hf
from holdfast.failpoints import NAMES

PROGRAM = Path(log_program.__file__)
ALL = tuple(
    name for name in NAMES if name.startswith("log.") and name not in ("log.preserved", "log.format.raised")
)  # those: test_preserved, test_golden_logs
ONCE = ("log.owned", "log.recovered")
"""Hit when a log is opened, once or once per partition."""


def check(here: Path) -> None:
    for partition in range(log_program.PARTITIONS):
        reached, numbers = log_program.seen(here, partition)
        assert numbers == log_program.expected(partition)
        assert reached == len(numbers)
    with hf.Log(here / "log") as log:
        for partition in range(log_program.PARTITIONS):
            at = log.bounds(partition)
            assert at.end == len(log_program.expected(partition))
            left = [n for b in log.reader(partitions=[partition]) for n in b.rows.column("n").to_pylist()]
            assert left == log_program.expected(partition)[at.low :]
            check_notes(log, partition, at.low)


def check_notes(log: hf.Log, partition: int, low: int) -> None:
    """Every note at or behind what was trimmed, once, with its rows; and the newest one in any case."""
    every = range(log_program.APPENDS, 0, -1)
    rows = log_program.ROWS
    wanted = [(rows * (s - 1), s, b"%d" % s, rows) for s in every if rows * (s - 1) >= low] or [
        (rows * (every[0] - 1), every[0], b"%d" % every[0], rows)
    ]
    assert list(log.notes("w", partition=partition)) == wanted
    alone = [note.payload for note in log.notes("clerk", partition=partition)]
    assert alone == [b"behind %d" % s for s in every][: len(alone)]
    assert len(alone) >= len([s for s in every if rows * s >= low])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.fault("S19", "S16", "O05")
def test_killed_at_a_failpoint(name: str, tmp_path: Path) -> None:
    kills = [f"{name}=kill"] * 2 if name in ONCE else [f"{name}=kill", f"{name}=kill@2", f"{name}=kill@3"]
    if name in (
        "log.merge.written",
        "log.merge.shown",
        "log.merge.removed",
        "log.notes.written",
        "log.notes.shown",
        "log.trim.marked",
        "log.trim.removed",
    ):
        kills = [f"{name}=kill", f"{name}=kill@2"]
    for kill in kills:
        assert lived(PROGRAM, tmp_path, kill) != 0, f"{kill} did not fire"
    undisturbed(PROGRAM, tmp_path)
    check(tmp_path)


@pytest.mark.fault("S19")
def test_killed_again_and_again_at_random_places(tmp_path: Path) -> None:
    dice = random.Random(15)
    for _ in range(12):
        lived(PROGRAM, tmp_path, f"{dice.choice(ALL)}=kill@{dice.randint(1, 12)}")
    killed_and_finished(PROGRAM, tmp_path, [])
    check(tmp_path)


@pytest.mark.fault("S19")
def test_slow_at_random_places_and_then_killed(tmp_path: Path) -> None:
    """Threads of a log overtake each other where one of them sleeps."""
    dice = random.Random(16)
    for _ in range(4):
        slow = [
            f"{name}=sleep:0.05@{dice.randint(1, 4)}" for name in dice.sample(ALL, 5) if name != "log.write"
        ]
        lived(PROGRAM, tmp_path, ";".join([*slow, f"log.write=kill@{dice.randint(8, 20)}"]))
    killed_and_finished(PROGRAM, tmp_path, [])
    check(tmp_path)


def test_the_check_finds_a_missing_row(tmp_path: Path) -> None:
    undisturbed(PROGRAM, tmp_path)
    check(tmp_path)
    path = tmp_path / "seen-1"
    path.write_bytes(path.read_bytes().rpartition(b" ")[0] + b"\n")
    with pytest.raises(AssertionError):
        check(tmp_path)
