"""Files that have another name after they were read, and logs that are rotated: each row once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from killed import lived

from holdfast.errors import InputError, StepFailed
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.testing import run_local
from holdfast.testing.source_conformance import read_all, rows_of

PROGRAM = Path(__file__).with_name("follow_log_program.py")


def opened(place: Path, state: Any = None, bounded: bool = False, **settings: Any) -> Files:
    source = Files(str(place), **{"format": "text", **settings})
    if bounded:
        source.bound()
    source.seek(state)
    return source


def log(place: Path, state: Any = None, **settings: Any) -> Files:
    return opened(place, state, changed="append", **settings)


def values(source: Files) -> list[Any]:
    return [row[0] for row in rows_of(source, read_all(source))]


def lines(first: int, last: int) -> list[str]:
    return [f"line {number:04} {'x' * 40}" for number in range(first, last)]


def append(path: Path, some: list[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in some))


def rotate(place: Path, most: int = 9) -> None:
    """As logrotate does: app.log.1 becomes app.log.2, app.log becomes app.log.1."""
    for number in range(most, 0, -1):
        if (old := place / f"app.log.{number}").exists():
            old.rename(place / f"app.log.{number + 1}") if number < most else old.unlink()
    (place / "app.log").rename(place / "app.log.1")


@pytest.mark.parametrize(
    ("changed", "format"),
    [("refuse", "csv"), ("warn", "csv"), ("append", "csv"), ("refuse", "parquet"), ("warn", "parquet")],
)
def test_renamed_file_is_not_read_again(
    tmp_path: Path, changed: str, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    write = pq.write_table if format == "parquet" else csv.write_csv
    write(pa.table({"a": [1, 2]}), tmp_path / "a.x")
    settings = {"format": format, "schema": "a long", "changed": changed}
    source = opened(tmp_path, **settings)
    assert values(source) == [1, 2]
    before = source.snapshot()
    (tmp_path / "a.x").rename(tmp_path / "done.x")
    assert values(source) == []
    assert "a.x is " in caplog.text
    assert "done.x now" in caplog.text
    source.seek(before)
    assert caplog.text.count("done.x now") == 1, "also if a position is sought again"
    for state in (before, source.snapshot()):
        for bounded in (True, False):
            assert values(opened(tmp_path, state, bounded, **settings)) == []
    (tmp_path / "done.x").rename(tmp_path / "again.x")
    write(pa.table({"a": [3]}), tmp_path / "b.x")
    assert values(source) == [3]


def test_file_that_is_like_one_that_is_gone_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    source = opened(tmp_path, format="csv", schema="a long")
    assert values(source) == [1]
    times = path.stat()
    path.unlink()
    (tmp_path / "same-time.csv").write_text("a\n2\n")
    os.utime(tmp_path / "same-time.csv", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "same-rows.csv").write_text("a\n1\n")
    assert sorted(values(source)) == [1, 2]


def test_copy_of_a_file_that_is_still_there_is_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    source = opened(tmp_path, format="csv", schema="a long")
    assert values(source) == [1]
    shutil.copy2(tmp_path / "a.csv", tmp_path / "b.csv")
    assert values(source) == [1]


def test_renamed_file_is_read_on_in_its_middle(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n3\n4\n")
    source = opened(tmp_path, format="csv", schema="a long", max_rows_per_step=2)
    piece = source.next_slice()
    assert piece is not None
    assert rows_of(source, [piece]) == [(1,), (2,)]
    state = source.snapshot()
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    assert values(source) == [3, 4]
    assert values(opened(tmp_path, state, format="csv", schema="a long")) == [3, 4]


def test_file_that_moves_among_very_many_is_found(tmp_path: Path) -> None:
    for number in range(1500):
        (tmp_path / f"{number:04}.csv").write_text(f"a\n{number:04}\n")
    source = opened(tmp_path, format="csv", schema="a long")
    assert len(values(source)) == 1500
    (tmp_path / "done").mkdir()
    for number in range(0, 1500, 7):
        (tmp_path / f"{number:04}.csv").rename(tmp_path / f"{number:04}.csv.done")
    state = source.snapshot()
    assert values(source) == values(opened(tmp_path, state)) == []
    assert values(opened(tmp_path, source.snapshot())) == []


# --- logs that are rotated ---


@pytest.mark.parametrize("again", [False, True])
def test_rotated_log_is_read_on_under_both_names(tmp_path: Path, again: bool) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path)
    assert values(source) == lines(0, 10)
    append(tmp_path / "app.log", lines(10, 12))  # not read before it is rotated
    rotate(tmp_path)
    append(tmp_path / "app.log.1", lines(12, 13))  # whoever writes has it open still
    append(tmp_path / "app.log", lines(13, 20))
    source = log(tmp_path, source.snapshot()) if again else source
    assert values(source) == lines(10, 20)
    rotate(tmp_path)
    source = log(tmp_path, source.snapshot()) if again else source
    assert values(source) == []
    append(tmp_path / "app.log", lines(20, 30))
    assert values(source) == lines(20, 30)


def test_log_in_the_middle_of_its_rotation_waits(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path, max_rows_per_step=4)
    found = rows_of(source, [piece for piece in [source.next_slice()] if piece])
    rotate(tmp_path)
    assert [row[0] for row in found] + values(source) == lines(0, 10)
    append(tmp_path / "app.log", lines(10, 14))
    assert values(source) == lines(10, 14)


def test_bounded_run_takes_a_rotated_log_and_the_new_one(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path, max_rows_per_step=4)
    assert source.next_slice() is not None
    rotate(tmp_path)
    append(tmp_path / "app.log", lines(10, 14))
    assert values(log(tmp_path, source.snapshot(), bounded=True)) == lines(4, 14)


def test_log_that_was_rotated_while_a_step_read_it_fails_the_step(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path)
    state, piece = source.snapshot(), source.next_slice()
    assert piece is not None
    source.read_arrow(piece, None)
    rotate(tmp_path)
    append(tmp_path / "app.log", lines(90, 99))
    with pytest.raises(StepFailed, match="renamed while it was read"):
        source.processed(piece)
    source.seek(state)
    assert sorted(values(source)) == lines(0, 10) + lines(90, 99)


@pytest.mark.parametrize("in_between", [False, True])
def test_log_that_is_compressed_when_it_is_rotated_is_not_read_again(
    tmp_path: Path, in_between: bool
) -> None:
    append(tmp_path / "app.log", lines(0, 100))
    source = log(tmp_path)
    assert values(source) == lines(0, 100)
    rotate(tmp_path)
    if in_between:
        assert values(source) == []
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress((tmp_path / "app.log.1").read_bytes()))
    (tmp_path / "app.log.1").unlink()
    append(tmp_path / "app.log", lines(100, 110))
    assert values(source) == lines(100, 110)
    assert values(log(tmp_path, source.snapshot())) == []


def test_log_that_was_compressed_before_its_end_was_read_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path)
    assert values(source) == lines(0, 10)
    append(tmp_path / "app.log", lines(10, 12))
    (tmp_path / "app.log.1.gz").write_bytes(gzip.compress((tmp_path / "app.log").read_bytes()))
    (tmp_path / "app.log").unlink()
    with pytest.raises(InputError, match=r"app\.log\.1\.gz is .*app\.log, compressed before all of it"):
        source.next_slice()


def test_log_that_was_copied_and_cut_off_goes_on(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path)
    assert values(source) == lines(0, 10)
    shutil.copy2(tmp_path / "app.log", tmp_path / "app.log.1")
    (tmp_path / "app.log").write_text("")
    append(tmp_path / "app.log", lines(10, 14))
    assert values(source) == lines(10, 14)


def test_cut_off_log_without_a_copy_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "app.log", lines(0, 10))
    source = log(tmp_path)
    assert values(source) == lines(0, 10)
    (tmp_path / "app.log").write_text("")
    with pytest.raises(InputError, match=r"app\.log was overwritten"):
        source.next_slice()


@pytest.mark.parametrize("seed", range(30))
def test_any_schedule_of_writes_rotations_and_runs_gives_each_line_once(tmp_path: Path, seed: int) -> None:
    chance, written, found = random.Random(seed), 0, []
    source = log(tmp_path, max_rows_per_step=chance.choice([None, 3]))
    for _ in range(40):
        if (act := chance.random()) < 0.4:
            append(tmp_path / "app.log", lines(written, written + chance.randint(6, 12)))
            written = int((tmp_path / "app.log").read_text().splitlines()[-1].split()[1]) + 1
        elif act < 0.55 and (tmp_path / "app.log").exists():
            rotate(tmp_path, most=50)
        elif act < 0.7:
            source = log(tmp_path, source.snapshot())
        elif (piece := source.next_slice()) is not None:
            found += [row[0] for row in rows_of(source, [piece])]
    assert sorted(found + values(source)) == lines(0, written)


def test_topology_over_a_rotated_log_writes_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()

    def run() -> list[str]:
        topology = Topology("t")
        rows = topology.source(Files(str(tmp_path / "in"), "text", changed="append"), name="in")
        rows.consistent(name="r").sink(FileSink(str(tmp_path / "out"), "csv", header=False), name="out")
        run_local(topology, store=f"file:{tmp_path}/store", until="available")
        return sorted(
            line for part in (tmp_path / "out").glob("part-*") for line in part.read_text().splitlines()
        )

    for number in range(4):
        append(tmp_path / "in" / "app.log", lines(10 * number, 10 * number + 10))
        assert run() == lines(0, 10 * number + 10)
        rotate(tmp_path / "in")
        assert run() == lines(0, 10 * number + 10)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "failpoint", ["step.end=kill@4", "ckpt.manifest.renamed=kill@2", "sink.commit.applied=kill"]
)
def test_log_that_is_rotated_when_its_reader_is_killed_is_read_once(tmp_path: Path, failpoint: str) -> None:
    place, written = tmp_path / "in", 0
    place.mkdir()
    for life in range(3):
        append(place / "app.log", lines(written, written + 20))
        written += 20
        if life < 2:
            lived(PROGRAM, tmp_path, failpoint)
            append(place / "app.log", lines(written, written + 3))
            written += 3
            rotate(place)
    lived(PROGRAM, tmp_path)
    found = [line for part in (tmp_path / "out").glob("part-*") for line in part.read_text().splitlines()]
    assert sorted(found) == lines(0, written)
