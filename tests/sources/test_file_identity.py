"""One name for one file: however its directory is written, linked or moved, no row comes twice and none is left out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError, MismatchError
from holdfast.language.connectors import Stamp
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.sources.known_files.listing import Listing
from holdfast.sources.known_files.memory import pack
from holdfast.testing import run_local
from holdfast.testing.source_conformance import read_all, rows_of


def write(path: Path, *rows: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a\n" + "".join(f"{row}\n" for row in rows))


def source_of(path: Any, state: Any = None, **settings: Any) -> Files:
    source = Files(str(path), "csv", "a long", **settings)
    source.seek(state)
    return source


def all_rows(source: Files) -> list[int]:
    return [row[0] for row in rows_of(source, read_all(source))]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "in" / "a.csv", 1)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    return tmp_path


WAYS = ["in", "in/", "in/*.csv", "in/*", "./in/../in", "link", "link/*.csv", "in/a.csv", "in/[ab].csv"]


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
def test_directory_glob_and_link_are_the_same_files(place: Path, first: str, second: str) -> None:
    source = source_of(place / first)
    assert all_rows(source) == [1]
    write(place / "in" / "b.csv", 2)
    again = source_of(place / second, source.snapshot())
    assert all_rows(again) == ([] if second == "in/a.csv" else [2])


def test_link_to_a_file_and_the_file_are_read_once(place: Path) -> None:
    (place / "in" / "b.csv").symlink_to(place / "in" / "a.csv")
    write(place / "elsewhere" / "c.csv", 3)
    (place / "in" / "c.csv").symlink_to(place / "elsewhere" / "c.csv")
    (place / "in" / "gone.csv").symlink_to(place / "nowhere")
    source = source_of(place / "in")
    assert sorted(all_rows(source)) == [1, 3]
    assert all_rows(source_of(place / "in" / "*.csv", source.snapshot())) == []
    (place / "in" / "c.csv").unlink()
    write(place / "elsewhere" / "d.csv", 4)
    (place / "in" / "c.csv").symlink_to(place / "elsewhere" / "d.csv")
    assert all_rows(source_of(place / "in", source.snapshot())) == [4]


def test_links_that_lead_in_circles_end(place: Path) -> None:
    (place / "in" / "sub").mkdir()
    (place / "in" / "sub" / "up").symlink_to(place / "in")
    write(place / "in" / "sub" / "b.csv", 2)
    assert sorted(all_rows(source_of(place / "in", recursive=True))) == [1, 2]
    assert sorted(all_rows(source_of(place / "in" / "**" / "*.csv"))) == [1, 2]


def test_another_directory_is_refused_with_both_names_and_the_cure(place: Path) -> None:
    write(place / "other" / "a.csv", 5)
    state = source_of(place / "in")
    assert all_rows(state) == [1]
    for path in ("other", "other/*.csv", ".", "other/a.csv"):
        with pytest.raises(MismatchError) as refused:
            source_of(place / path, state.snapshot())
        assert f"{place}/in" in str(refused.value)
        assert str((place / path).parent if "." in Path(path).name else place / path) in str(refused.value)
        assert "moved_from=" in str(refused.value)


def test_files_that_are_said_to_have_moved_up_but_did_not_are_refused(place: Path) -> None:
    source = source_of(place / "in")
    assert all_rows(source) == [1]
    said = {"state": source.snapshot(), "moved_from": str(place / "in")}
    for path in (place / "i*" / "*.csv", place / "in" / ".." / "i*"):
        with pytest.raises(MismatchError, match=r"in/a\.csv was read and is still there"):
            source_of(path, **said)
    with pytest.raises(MismatchError, match="still there"):
        source_of(place, recursive=True, **said)
    write(place / "b.csv", 2)
    assert all_rows(source_of(place, **said)) == [2]  # not recursive: what is in the directory is not read
    (place / "in" / "a.csv").rename(place / "a.csv")
    assert all_rows(source_of(place, recursive=True, **said)) == [2]


def test_moved_directory_goes_on_if_it_is_said(place: Path) -> None:
    source = source_of(place / "in")
    assert all_rows(source) == [1]
    (place / "in").rename(place / "new")
    write(place / "new" / "b.csv", 2)
    with pytest.raises(MismatchError):
        source_of(place / "new", source.snapshot())
    with pytest.raises(MismatchError):
        source_of(place / "new", source.snapshot(), moved_from=str(place / "elsewhere"))
    moved = source_of(place / "new", source.snapshot(), moved_from=str(place / "in"))
    assert rows_of(moved, read_all(moved), Stamp(0)) == [(2, 0, 1, 0)]
    write(place / "new" / "c.csv", 3)
    for said in (None, str(place / "in")):
        assert all_rows(source_of(place / "new", moved.snapshot(), moved_from=said)) == [3]
    # An old epoch may still be restored.
    assert sorted(all_rows(source_of(place / "new", source.snapshot(), moved_from=f"{place}/in/*.csv"))) == [
        2,
        3,
    ]


def test_link_that_leads_elsewhere_is_refused_at_once_and_in_the_next_run(place: Path) -> None:
    source = source_of(place / "link")
    assert all_rows(source) == [1]
    write(place / "other" / "a.csv", 5)
    (place / "link").unlink()
    (place / "link").symlink_to(place / "other")
    with pytest.raises(InputError, match=f"{place}/link led to {place}/in .* leads to {place}/other now"):
        source.next_slice()
    with pytest.raises(MismatchError):
        source_of(place / "link", source.snapshot())


@pytest.mark.parametrize("kind", ["directory", "glob", "link"])
def test_positions_from_before_roots_were_stored_are_restored(place: Path, kind: str) -> None:
    write(place / "elsewhere" / "z.csv", 9)
    (place / "in" / "z.csv").symlink_to(place / "elsewhere" / "z.csv")
    names = {
        "directory": ["a.csv", "z.csv"],
        "glob": [f"{place}/in/a.csv", f"{place}/in/z.csv"],
        "link": [f"{place}/link/a.csv", f"{place}/link/z.csv"],
    }
    files = {"consumed": 2, "blocks": [], "loose": pack(names[kind]), "open": pack([])}
    state = {"format": 1, "position": [2, 0, 0, 0], "files": files}
    write(place / "in" / "b.csv", 2)
    for path in ("in", "in/*.csv", "link/*.csv"):
        source = source_of(place / path, state)
        assert all_rows(source) == [2]
        assert all_rows(source_of(place / "in", source.snapshot())) == []


def test_exactly_once_sink_gets_no_row_twice_from_another_spelling(place: Path) -> None:
    def run(path: Path, **settings: Any) -> list[str]:
        topology = Topology("t")
        rows = topology.source(Files(str(path), "csv", "a long", **settings), name="in").consistent(name="r")
        rows.sink(FileSink(str(place / "out"), "json"), name="out")
        run_local(topology, store=f"file:{place}/store", until="available")
        return sorted(line for part in (place / "out").glob("part-*") for line in part.read_text().split())

    assert run(place / "in") == ['{"a":1}']
    assert run(place / "link" / "*.csv") == ['{"a":1}']
    shutil.copytree(place / "in", place / "copy")
    with pytest.raises(MismatchError, match="moved_from"):
        run(place / "copy")
    assert run(place / "copy", moved_from=str(place / "in")) == ['{"a":1}']


@pytest.mark.parametrize("path", ["{}", "{}/*"], ids=["directory", "glob"])
def test_what_is_no_file_is_not_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    (tmp_path / "nowhere.csv").symlink_to("gone.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    listing = Listing(path.format(tmp_path))
    assert listing.names() == {"a.csv"}
    (tmp_path / "gone.csv").write_text("n\n2\n")
    assert listing.names() == {"a.csv", "gone.csv"}
