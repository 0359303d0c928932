"""Files that change after they were read: refused by name, warned of, or read on where they only grow."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from holdfast.errors import ConfigError, InputError, StateError
from holdfast.language.connectors import Stamp
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.sources.known_files import memory
from holdfast.sources.known_files.facts import Fact, complete_end, pack, pack_facts, unpack, unpack_facts
from holdfast.testing import run_local
from holdfast.testing.source_conformance import read_all, rows_of


def opened(place: Path, state: Any = None, bounded: bool = False, **settings: Any) -> Files:
    settings = {"format": "csv", "schema": "a long"} | settings
    source = Files(str(place), **settings)
    if bounded:
        source.bound()
    source.seek(state)
    return source


def values(source: Files) -> list[Any]:
    return [row[0] for row in rows_of(source, read_all(source))]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def touch(path: Path) -> None:
    os.utime(path, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns + 1))


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "grew": (lambda path: append(path, "3\n"), "grew from 6 to 8 bytes"),
    "was overwritten by more": (lambda path: path.write_text("a\n7\n8\n9\n"), "grew from 6 to 8 bytes"),
    "was overwritten by less": (lambda path: path.write_text("a\n7\n"), "shrank from 6 to 4 bytes"),
    "was overwritten by as much": (
        lambda path: (path.write_text("a\n8\n9\n"), touch(path)),
        "has 6 bytes as before, but was modified at 20",
    ),
    "was emptied": (lambda path: path.write_text(""), "shrank from 6 to 0 bytes"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_file_that_changed_after_it_was_read_is_refused(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    source, bounded = opened(tmp_path), opened(tmp_path, bounded=True)
    assert values(source) == values(bounded) == [1, 2]
    state = source.snapshot()
    act, told = HARMS[harm]
    act(path)
    cases = [
        source.next_slice,
        lambda: opened(tmp_path, state),
        lambda: opened(tmp_path, state, bounded=True),
    ]
    for case in cases:
        with pytest.raises(InputError) as refused:
            case()
        assert f"{path} was changed after it was read: it {told}" in str(refused.value)
        assert 'changed="append"' in refused.value.cure
    shutil.copy(path, tmp_path / "b.csv")
    path.unlink()
    assert len(values(opened(tmp_path, state))) == max(
        0, len(path.with_name("b.csv").read_text().split()) - 1
    )


def test_empty_file_that_got_filled_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    source = opened(tmp_path)
    assert values(source) == []
    (tmp_path / "a.csv").write_text("a\n1\n")
    for act in (source.next_slice, lambda: opened(tmp_path, source.snapshot())):
        with pytest.raises(InputError, match=r"a\.csv was changed .*: it was empty and has 4 bytes now"):
            act()


def test_change_during_a_bounded_run_is_told_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\n2\n")
    source = opened(tmp_path, bounded=True, max_files_per_step=1)
    source.next_slice()
    append(tmp_path / "a.csv", "9\n")
    source.next_slice()
    with pytest.raises(InputError, match=r"a\.csv was changed"):
        source.next_slice()


def test_warning_is_given_once_and_the_source_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.sources")
    (tmp_path / "a.csv").write_text("a\n1\n")
    source = opened(tmp_path, changed="warn")
    assert values(source) == [1]
    append(tmp_path / "a.csv", "9\n")
    (tmp_path / "b.csv").write_text("a\n2\n")
    assert values(source) == [2]
    assert values(source) == []
    assert values(opened(tmp_path, source.snapshot(), changed="warn")) == []
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"{tmp_path}/a.csv was changed after it was read: it grew from 4 to 6 bytes" in told


def test_many_warnings_are_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(25):
        (tmp_path / f"{number:02}.csv").write_text("a\n1\n")
    source = opened(tmp_path, changed="warn")
    assert values(source) == [1] * 25
    for number in range(25):
        touch(tmp_path / f"{number:02}.csv")
    assert values(source) == []
    assert len(caplog.records) == 11
    assert "15 further files were changed" in caplog.records[-1].getMessage()


def test_warning_for_a_file_that_changed_while_it_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n3\n")
    source = opened(tmp_path, changed="warn", max_rows_per_step=2)
    piece = source.next_slice()
    append(tmp_path / "a.csv", "4\n")
    assert piece is not None
    assert rows_of(source, [piece]) == [(1,), (2,)]
    assert values(source) == [3, 4]
    assert len(caplog.records) == 1


def test_positions_without_facts_are_restored_and_changes_noticed_from_then_on(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.csv").write_text("a\n1\n")
    files = {"consumed": 3, "blocks": [], "loose": pack(["a.csv", "b.csv", "gone.csv"]), "open": pack([])}
    old = {"format": 1, "position": [3, 0, 0, 0], "files": files}
    source = opened(tmp_path, old)
    assert values(source) == [1]
    append(tmp_path / "b.csv", "2\n")
    with pytest.raises(InputError, match=r"b\.csv was changed"):
        source.next_slice()
    assert values(opened(tmp_path, old)) == [1]
    with pytest.raises(InputError, match=r"b\.csv was changed"):
        opened(tmp_path, source.snapshot())


def test_copies_in_a_moved_directory_may_have_other_times_but_not_other_sizes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    source = opened(tmp_path / "in")
    assert values(source) == [1]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "a.csv").write_text("a\n1\n")
    touch(tmp_path / "copy" / "a.csv")
    moved = opened(tmp_path / "copy", source.snapshot(), moved_from=str(tmp_path / "in"))
    assert values(moved) == []
    again = opened(tmp_path / "copy", moved.snapshot())
    touch(tmp_path / "copy" / "a.csv")
    with pytest.raises(InputError, match=r"a\.csv was changed"):
        again.next_slice()
    append(tmp_path / "copy" / "a.csv", "2\n")
    with pytest.raises(InputError, match=r"a\.csv was changed"):
        opened(tmp_path / "copy", source.snapshot(), moved_from=str(tmp_path / "in"))


def test_changes_among_many_files_are_found_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LOOK_FILES", 4)
    monkeypatch.setattr(memory, "NEWEST_FILES", 2)
    monkeypatch.setattr(memory, "BLOCK_FILES", 5)
    for number in range(33):
        (tmp_path / f"{number:02}.csv").write_text(f"a\n{number}\n")
    for changed in range(33):
        source = opened(tmp_path)
        assert values(source) == list(range(33))
        state = source.snapshot()
        path = tmp_path / f"{changed:02}.csv"
        before, times = path.read_text(), path.stat()
        append(path, "99\n")
        calls = 0
        with pytest.raises(InputError, match=path.name):
            while calls < 10:
                calls += 1
                source.next_slice()
        assert calls <= (1 if changed >= 31 else 9)
        with pytest.raises(InputError, match=path.name):
            opened(tmp_path, state)
        path.write_text(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert values(opened(tmp_path, state)) == []


def test_text_of_earlier_versions_is_read() -> None:
    """It was in base85, a column after the other."""
    names = ["a.csv", "b.csv"]
    assert unpack(base64.b85encode(zlib.compress(json.dumps(names).encode(), 6)).decode()) == names
    facts = [Fact(10, 7, 3), Fact(30, 8, 4)]
    planes = np.array([[20, 0, 0, 0, 0, 0, 0, 0], [40, 0, 0, 0, 0, 0, 0, 0]], np.uint8).T.tobytes()
    planes += (
        np.array([[7, 0], [8, 0]], np.uint8).T.tobytes()
        + np.array([[3, 0, 0, 0], [4, 0, 0, 0]], np.uint8).T.tobytes()
    )
    assert unpack_facts(base64.b85encode(zlib.compress(planes, 6)).decode(), 2) == facts


def test_facts_cost_a_few_bytes_per_file(tmp_path: Path) -> None:
    facts = [Fact(10_000 + 37 * n % 1000, 1 + n * 7919 % 65535, 0) for n in range(100_000)]
    blocks = [pack_facts(facts[n : n + 1000], once=True) for n in range(0, len(facts), 1000)]
    assert sum(map(len, blocks)) < 5 * len(facts)
    assert [fact for block in blocks for fact in unpack_facts(block, 1000)] == facts
    for odd in ([], [Fact()], [Fact(0, 1, 0xFFFFFFFF), Fact(1 << 50, 65535, 1), Fact()]):
        assert unpack_facts(pack_facts(odd), len(odd)) == odd
    for wrong in ("", "x", pack_facts(facts[:3])):
        with pytest.raises(StateError):
            unpack_facts(wrong, 4)


# --- files that grow ---


def log(place: Path, state: Any = None, **settings: Any) -> Files:
    return opened(place, state, **{"format": "text", "schema": None, "changed": "append", **settings})


def test_growing_file_is_read_on_from_where_reading_stopped(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\nthr")
    source = log(tmp_path)
    assert values(source) == ["one", "two"]
    assert values(source) == []
    append(path, "ee")
    assert values(source) == []
    append(path, "\nfour\nfi")
    assert values(source) == ["three", "four"]
    state = source.snapshot()
    append(path, "ve\n")
    assert values(log(tmp_path, state)) == ["five"]
    assert values(source) == ["five"]
    again = log(tmp_path, source.snapshot())
    assert values(again) == []
    (tmp_path / "other.log").write_text("six\n")
    append(path, "seven\n")
    assert sorted(values(again)) == ["seven", "six"]
    msgpack.packb(again.snapshot())


def test_positions_of_a_growing_file_grow(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("")
    source, seen = log(tmp_path, max_rows_per_step=2), []
    for number in range(5):
        append(path, "".join(f"{number}.{line}\n" for line in range(number)))
        seen += rows_of(source, read_all(source), Stamp(0))
    assert [row[0] for row in seen] == [f"{n}.{line}" for n in range(5) for line in range(n)]
    assert [row[2:] for row in seen] == sorted({row[2:] for row in seen})


@pytest.mark.parametrize("settings", [{}, {"max_rows_per_step": 1}, {"max_bytes_per_step": 3}])
def test_every_split_of_a_growing_file_gives_the_same_rows(tmp_path: Path, settings: dict[str, int]) -> None:
    text = "a\n10\n\n200\r\n3\n4\n"
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1, 3):
            path = tmp_path / f"{first}-{second}" / "x.csv"
            path.parent.mkdir()
            state, found = None, []
            for end in (first, second, len(text)):
                path.write_bytes(text[:end].encode())
                source = opened(path.parent, state, changed="append", **settings)
                found += values(source)
                state = source.snapshot()
            assert found == [10, 200, 3, 4], (first, second)


def test_bounded_run_takes_the_last_line_and_a_later_end_of_it_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    for end in ("\n", "\r\n"):
        path.write_text("one\ntwo")
        source = log(tmp_path, bounded=True)
        assert values(source) == ["one", "two"]
        path.write_bytes(path.read_bytes() + f"{end}three\n".encode())
        assert values(log(tmp_path, source.snapshot())) == ["three"]
        path.write_text("one\ntwo and a half\n")
        with pytest.raises(InputError, match=r"app\.log: its last line had no end .* goes on now, at byte 7"):
            log(tmp_path, source.snapshot())


def test_bounded_run_takes_what_grew_behind_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("1\n2\n3\n")
    source = log(tmp_path, max_rows_per_step=2)
    source.next_slice()
    append(path, "4\n5")
    assert values(log(tmp_path, source.snapshot(), bounded=True)) == ["3", "4", "5"]


@pytest.mark.parametrize("text", ["", "one\n", "one\nTWO\n", "ONE\ntwo\nthree\n", "other\nlines\n"])
def test_growing_file_that_was_overwritten_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    source = log(tmp_path)
    assert values(source) == ["one", "two"]
    path.write_text(text)
    touch(path)
    for act in (source.next_slice, lambda: log(tmp_path, source.snapshot())):
        with pytest.raises(InputError, match=r"app\.log was overwritten: the 8 bytes that were read"):
            act()


def test_growing_file_overwritten_between_two_steps_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("1\n2\n3\n")
    source = log(tmp_path, max_rows_per_step=2)
    piece = source.next_slice()
    append(path, "4\n")
    assert piece is not None
    assert rows_of(source, [piece]) == [("1",), ("2",)]
    path.write_text("9\n2\n3\n4\n5\n")
    with pytest.raises(InputError, match=r"app\.log was overwritten"):
        source.next_slice()


def test_renamed_log_is_no_new_one(tmp_path: Path) -> None:
    path = tmp_path / "app.log"
    path.write_text("one\ntwo\n")
    source = log(tmp_path)
    assert values(source) == ["one", "two"]
    path.rename(tmp_path / "app.log.1")
    append(tmp_path / "app.log.1", "three\n")
    for act in (source.next_slice, log(tmp_path, source.snapshot()).next_slice):
        with pytest.raises(
            InputError, match=r"app\.log\.1 begins with the 8 bytes that were read as .*app\.log, "
        ):
            act()
    (tmp_path / "app.log.1").rename(path)
    assert values(source) == ["three"]
    path.unlink()
    (tmp_path / "other.log").write_text("one\n")
    assert values(source) == ["one"]


def test_cure_of_a_refusal_works(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    source = opened(tmp_path)
    assert values(source) == [1]
    append(path, "2\n")
    with pytest.raises(InputError):
        source.next_slice()
    grown = opened(tmp_path, source.snapshot(), changed="append")
    assert values(grown) == [2]
    append(path, "3\n")
    assert values(grown) == [3]
    with pytest.raises(InputError, match=r"a\.csv, line 5: .*'no'"):
        append(path, "no\n")
        values(grown)


def test_compressed_files_do_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a\n1\n"))
    source = opened(tmp_path, changed="append")
    assert values(source) == [1]
    path.write_bytes(path.read_bytes() + gzip.compress(b"2\n"))
    with pytest.raises(InputError, match=r"a\.csv\.gz was changed after it was read"):
        source.next_slice()
    with pytest.raises(ConfigError, match="Parquet"):
        Files(str(tmp_path), "parquet", changed="append")
    with pytest.raises(ConfigError, match="unknown"):
        Files(str(tmp_path), "csv", changed="ignore")  # type: ignore[arg-type]


def test_last_whole_line_is_found_far_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"a\n" + b"b" * 200_000)
    assert complete_end(str(path), 0, 200_002) == 2
    assert complete_end(str(path), 2, 200_002) == 2


def test_runs_on_one_store_read_each_line_of_a_log_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path, lines = tmp_path / "in" / "app.log", []

    def run(**settings: Any) -> list[str]:
        topology = Topology("t")
        rows = topology.source(Files(str(tmp_path / "in"), "text", **settings), name="in")
        rows.consistent(name="r").sink(FileSink(str(tmp_path / "out"), "csv", header=False), name="out")
        run_local(topology, store=f"file:{tmp_path}/store", until="available")
        return sorted(line for part in (tmp_path / "out").glob("part-*") for line in part.read_text().split())

    for number in range(4):
        lines.append(f"line-{number}")
        append(path, f"line-{number}\n")
        assert run(changed="append") == lines
    append(path, "more\n")
    with pytest.raises(InputError, match=r"app\.log was changed after it was read: it grew from 28 to 33"):
        run()


@pytest.mark.spark
def test_spark_reads_only_the_new_lines_of_a_growing_file(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n3")
    source = opened(tmp_path, changed="append")
    found = []
    for more in ("0\n4\n5", "\n6\n", ""):
        for piece in read_all(source):
            found += [row[0] for row in source.read_spark(spark, piece, None).collect()]
        append(path, more)
    assert sorted(found) == [1, 2, 4, 5, 6, 30]
