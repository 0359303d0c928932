"""Directories in which nothing happens are not listed again and again, and what comes is found all the same."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.sources.files import Files
from holdfast.sources.known_files import listing, memory


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every directory that is listed."""
    found: list[str] = []
    scandir = os.scandir

    def noting(path: str) -> Any:
        found.append(str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", noting)
    monkeypatch.setattr(listing, "TRUSTED_S", 3600.0)
    return found


LONG_AGO = time.time_ns() - 10 * listing.GRAIN_NS


def old(directory: Path) -> None:
    """The directory changed last some time ago."""
    os.utime(directory, ns=(LONG_AGO, LONG_AGO))


class Read:
    """What a source finds in its directory, asked again and again."""

    def __init__(self, path: str, **options: Any) -> None:
        self._source = Files(path, "csv", "x long", header=False, **options)
        self._source.seek(None)
        self.names: list[str] = []

    def ask(self) -> None:
        while (piece := self._source.next_slice()) is not None:
            rows = range(piece.start[0], max(piece.end[0], piece.start[0] + 1))
            self.names += [os.path.basename(self._source._memory.path(ordinal)) for ordinal in rows]


def test_a_directory_that_stays_as_it_is_is_listed_once(tmp_path: Path, listed: list[str]) -> None:
    (tmp_path / "a.csv").write_text("1\n")
    old(tmp_path)
    source = Read(str(tmp_path))
    for _ in range(5):
        source.ask()
    assert source.names == ["a.csv"]
    assert listed == [str(tmp_path)]


def test_a_file_that_comes_is_found_at_once(tmp_path: Path, listed: list[str]) -> None:
    old(tmp_path)
    source = Read(str(tmp_path))
    source.ask()
    source.ask()
    assert len(listed) == 1
    (tmp_path / "a.csv").write_text("1\n")
    source.ask()
    assert source.names == ["a.csv"]


def test_a_directory_that_has_just_changed_is_listed_again(tmp_path: Path, listed: list[str]) -> None:
    """Another file may have come in the same tick of its clock."""
    source = Read(str(tmp_path))
    source.ask()
    source.ask()
    assert len(listed) == 2


def test_directories_below_are_watched_too(tmp_path: Path, listed: list[str]) -> None:
    below = tmp_path / "deep" / "er"
    below.mkdir(parents=True)
    for directory in (below, below.parent, tmp_path):
        old(directory)
    source = Read(str(tmp_path), recursive=True)
    source.ask()
    source.ask()
    assert len(listed) == 3
    (below / "a.csv").write_text("1\n")
    source.ask()
    assert source.names == ["a.csv"]


def test_a_glob_of_one_directory_is_watched_and_others_are_asked_each_time(
    tmp_path: Path, listed: list[str]
) -> None:
    day = tmp_path / "day=1"
    day.mkdir()
    old(day)
    old(tmp_path)
    here, below = Read(f"{day}/*.csv"), Read(f"{tmp_path}/*/*.csv")
    for source in (here, below, here, below):
        source.ask()
    (day / "a.csv").write_text("1\n")
    old(day)  # as a file system might tell it that remembers what it knew
    for source in (here, below):
        source.ask()
    assert below.names == ["a.csv"]
    assert here.names == [], "that is what its directory says"


def test_what_a_directory_says_is_not_believed_for_ever(
    tmp_path: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "TRUSTED_S", 0.0)
    monkeypatch.setattr(listing, "SPARE", 0)
    old(tmp_path)
    source = Read(str(tmp_path))
    source.ask()
    (tmp_path / "a.csv").write_text("1\n")
    old(tmp_path)
    source.ask()
    assert source.names == ["a.csv"]


def test_a_growing_file_without_a_whole_line_is_asked_again(tmp_path: Path, listed: list[str]) -> None:
    growing = tmp_path / "a.log"
    growing.write_text("12")
    old(tmp_path)
    source = Read(str(tmp_path), changed="append")
    source.ask()
    assert not source.names
    with growing.open("a") as file:
        file.write("3\n")
    source.ask()
    assert source.names == ["a.log"]


def test_files_that_were_read_are_compared_for_a_share_of_the_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text("1\n")
    looks = 0
    look = memory.FileMemory.look

    def slow(self: memory.FileMemory, consumed: int, everything: bool = False) -> None:
        nonlocal looks
        looks += 1
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            look(self, consumed, everything)

    source = Files(str(tmp_path), "csv", "x long", header=False)
    source.seek(None)
    while source.next_slice() is not None:
        pass
    monkeypatch.setattr(memory.FileMemory, "look", slow)
    source._next_look = 0.0
    for _ in range(20):
        assert source.next_slice() is None
    assert looks == 1
