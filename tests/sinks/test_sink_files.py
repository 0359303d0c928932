"""What the file sink refuses, and its small print: ledger, owners, damage, names, merging."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import failpoints
from holdfast.errors import ConfigError, DamagedError, FencedError, MismatchError, NoSpaceError, StoreError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sinks.merge import MergeTask, has_rows, header_length, merge
from holdfast.sources import Files, Rows
from holdfast.testing import run_local
from holdfast.testing.sink_conformance import context, opened_sink, rows


def opened(out: Path, *given: Any, **settings: Any) -> FileSink:
    return opened_sink(FileSink(str(out), "csv"), *given, **settings)


def prepare(sink: FileSink, epoch: int, steps: int = 2) -> Any:
    for step in range(steps):
        sink.write_arrow(rows(10 * epoch + 2 * step), StepId(Attempt(0), 10 * epoch + step))
    return sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch)))


def visible(out: Path) -> list[str]:
    return sorted(name for name in os.listdir(out) if not name.startswith("."))


@pytest.mark.fault("D06")
def test_ledger_of_another_job_is_refused(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.commit(Epoch(1), prepare(sink, 1))
    with pytest.raises(MismatchError, match="another job"):
        opened(tmp_path, 2, job="job-2")


@pytest.mark.fault("C07", "D06")
def test_store_older_than_the_output_is_refused_even_without_the_ledger(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for epoch in (1, 2):
        sink.commit(Epoch(epoch), prepare(sink, epoch))
    before = visible(tmp_path)
    with pytest.raises(MismatchError, match="older than the output"):
        opened(tmp_path, 2, 1)
    (tmp_path / ".holdfast/out/ledger.json").unlink()
    with pytest.raises(MismatchError, match=r"older than the output: .*e000000002-p0000\.csv"):
        opened(tmp_path, 2, 1)
    assert visible(tmp_path) == before


@pytest.mark.fault("X02")
def test_lost_ledger_entry_makes_no_second_copy(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    first = prepare(sink, 1)
    sink.commit(Epoch(1), first)
    (tmp_path / ".holdfast/out/ledger.json").unlink()
    opened(tmp_path, 2, 1, first)
    assert visible(tmp_path) == ["part-out-e000000001-p0000.csv"]
    assert json.loads((tmp_path / ".holdfast/out/ledger.json").read_text())["ledger"]["epoch"] == 1


def test_files_taken_away_by_a_reader_after_their_commit_are_not_missed(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    prepared = prepare(sink, 1)
    sink.commit(Epoch(1), prepared)
    (tmp_path / visible(tmp_path)[0]).unlink()
    opened(tmp_path, 2, 1, prepared)
    assert visible(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"{", b'{"crc": 1, "ledger": {}}', "flip"])
@pytest.mark.fault("X06", "O06")
def test_damaged_ledger_is_refused_by_name_and_nothing_changes(tmp_path: Path, damage: Any) -> None:
    sink = opened(tmp_path)
    sink.commit(Epoch(1), prepare(sink, 1))
    prepared = prepare(sink, 2)
    ledger = tmp_path / ".holdfast/out/ledger.json"
    ledger.write_bytes(
        ledger.read_bytes().replace(b'"epoch": 1', b'"epoch": 0') if damage == "flip" else damage
    )
    for act in (lambda: sink.commit(Epoch(2), prepared), lambda: opened(tmp_path, 2, 2, prepared)):
        with pytest.raises(DamagedError, match=r"ledger\.json is damaged"):
            act()
    assert visible(tmp_path) == ["part-out-e000000001-p0000.csv"]


@pytest.mark.parametrize("damage", ["missing", "short", "flip"])
@pytest.mark.fault("C01", "C11")
def test_damaged_prepared_file_is_refused_by_name_before_anything_shows(tmp_path: Path, damage: str) -> None:
    sink = opened(tmp_path)
    prepared = prepare(sink, 1)
    staged = tmp_path / ".holdfast/out" / prepared["files"][0][0]
    data = staged.read_bytes()
    if damage == "missing":
        staged.unlink()
    else:
        staged.write_bytes(data[:-1] if damage == "short" else data[:-3] + b"x" + data[-2:])
    with pytest.raises(DamagedError, match=staged.name):
        opened(tmp_path, 2, 1, prepared)
    assert visible(tmp_path) == []


@pytest.mark.fault("N05")
def test_epoch_is_not_shown_before_the_one_before_it(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.commit(Epoch(1), prepare(sink, 1))
    second, third = prepare(sink, 2), prepare(sink, 3)
    for act in (lambda: sink.commit(Epoch(3), third), lambda: opened(tmp_path, 2, 3, third)):
        with pytest.raises(DamagedError, match="epoch 2 before it is not visible yet"):
            act()
    assert len(visible(tmp_path)) == 1
    late = opened(tmp_path, 3, 2, second)  # nothing was removed by the refusals
    assert len(visible(tmp_path)) == 2
    late.commit(Epoch(3), prepare(late, 3))
    assert len(visible(tmp_path)) == 3


def test_foreign_file_under_a_final_name_is_not_overwritten(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    prepared = prepare(sink, 1)
    (tmp_path / "part-out-e000000001-p0000.csv").write_text("mine")
    with pytest.raises(DamagedError, match="although its epoch is not visible"):
        sink.commit(Epoch(1), prepared)
    assert (tmp_path / "part-out-e000000001-p0000.csv").read_text() == "mine"


@pytest.mark.fault("O10", "D02")
def test_old_owner_can_neither_commit_nor_restore_after_a_new_one_came(tmp_path: Path) -> None:
    old = opened(tmp_path, 1)
    prepared = prepare(old, 1)
    opened(tmp_path, 2)
    for act in (lambda: old.commit(Epoch(1), prepared), lambda: old.restore(Epoch(0), None)):
        with pytest.raises(FencedError):
            act()
    assert visible(tmp_path) == []


def test_old_owner_cannot_record_even_if_its_directories_come_back(tmp_path: Path) -> None:
    old = opened(tmp_path, 1)
    opened(tmp_path, 2)
    old.write_arrow(rows(0), StepId(Attempt(0), 5))  # a zombie step makes its directory again
    with pytest.raises(FencedError, match="removed by a newer owner"):
        old.commit(Epoch(1), {"files": [], "leftovers": [], "after": 0})
    assert not (tmp_path / ".holdfast/out/ledger.json").exists()


@pytest.mark.fault("O10")
def test_owner_is_asked_before_anything_becomes_visible(tmp_path: Path) -> None:
    def fenced() -> None:
        raise FencedError("replaced")

    sink = opened(tmp_path)
    prepared = prepare(sink, 1)
    base = context()
    sink._context = type(base)(base.job_id, "t", "out", "r", base.token, check_owner=fenced)
    with pytest.raises(FencedError):
        sink.commit(Epoch(1), prepared)
    assert visible(tmp_path) == []


def test_single_step_is_not_copied_and_several_are_joined_with_one_header(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    one = prepare(sink, 1, steps=1)
    assert one["files"][0][0] == "t1/a0/s10/part-00000.csv"
    two = prepare(sink, 2, steps=3)
    assert two["files"][0][0] == "t1/e000000002-0/part-out-e000000002-p0000.csv"
    sink.commit(Epoch(1), one)
    sink.commit(Epoch(2), two)
    text = (tmp_path / "part-out-e000000002-p0000.csv").read_text()
    assert text.splitlines() == ["n,word", *(f"{n},w{n}" for n in range(20, 26))]


def test_large_files_are_not_copied_and_small_ones_between_them_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sinks.merge.LARGE_BYTES", 100)
    sink = opened(tmp_path)
    sizes = (1, 1, 50, 50, 1)
    for step, size in enumerate(sizes):
        many = pa.concat_tables([rows(step * 100 + n) for n in range(size)])
        sink.write_arrow(many, StepId(Attempt(0), step))
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    staged = {final: path for path, final, _, _ in prepared["files"]}
    assert list(staged) == [f"part-out-e000000001-p000{n}.csv" for n in range(4)]
    assert [path.split("/")[1] for path in staged.values()] == ["e000000001-0", "a0", "a0", "a0"]
    failpoints.arm("sink.commit.applied=raise")
    try:
        with pytest.raises(failpoints.FaultInjected):  # they have their names, but nobody has recorded it
            sink.commit(Epoch(1), prepared)
    finally:
        failpoints.disarm()
    opened(tmp_path, 2, epoch=1, prepared=prepared)
    assert visible(tmp_path) == list(staged)
    found = [line for name in staged for line in (tmp_path / name).read_text().splitlines()]
    firsts = [step * 100 + n for step, size in enumerate(sizes) for n in range(size)]
    expected = [n for first in firsts for n in rows(first).column("n").to_pylist()]
    assert [int(line.split(",")[0]) for line in found if line != "n,word"] == expected


def test_a_number_of_files_asked_for_is_kept_at_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sinks.merge.LARGE_BYTES", 1)
    sink = FileSink(str(tmp_path), partition_files=1)
    sink.open(context())
    sink.commit(Epoch(1), prepare(sink, 1, steps=3))
    assert visible(tmp_path) == ["part-out-e000000001-p0000.csv"]


def test_failed_merge_leaves_no_target(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    task = MergeTask("json", False, (str(tmp_path / "a"),) * 2, str(tmp_path / "no" / "target"))
    with pytest.raises(Exception, match="target"):
        merge(task)
    assert os.listdir(tmp_path) == ["a"]


def test_header_with_a_newline_in_a_name_counts_as_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"two\nlines",b\n1,2\n')
    assert header_length(str(path)) == 14
    assert has_rows(str(path), "csv", header=True)
    path.write_text('"two\nlines",b\n')
    assert not has_rows(str(path), "csv", header=True)


@pytest.mark.fault("S08")
def test_full_disk_is_told_and_the_epoch_can_be_tried_again(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write_arrow(rows(0), StepId(Attempt(0), 1))
    sealed = sink.seal(Epoch(1))
    failpoints.arm("sink.prepared=enospc")
    try:
        with pytest.raises(NoSpaceError, match="no space left"):
            sink.prepare(Epoch(1), sealed)
    finally:
        failpoints.disarm()
    sink.commit(Epoch(1), sink.prepare(Epoch(1), sealed))
    assert visible(tmp_path) == ["part-out-e000000001-p0000.csv"]


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part-other-e000000009-p0000.csv").write_text("n,word\n1,x\n")
    (tmp_path / "notes.txt").write_text("hello")
    sink = opened(tmp_path)
    sink.commit(Epoch(1), prepare(sink, 1))
    assert (tmp_path / "notes.txt").read_text() == "hello"


def test_values_are_written_as_spark_writes_them(tmp_path: Path) -> None:
    from datetime import UTC, datetime
    from decimal import Decimal

    table = pa.table(
        {
            "d": pa.array([Decimal("12345678901234567.89"), None], pa.decimal128(20, 2)),
            "t": pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 2, pa.timestamp("us", tz="UTC")),
            "b": [True, None],
            "s": ['a"b,c', ""],
        }
    )
    for format, wanted in (
        (
            "csv",
            'd,t,b,s\n12345678901234567.89,2020-01-01T00:00:00.000Z,true,"a\\"b,c"\n,2020-01-01T00:00:00.000Z,,\n',
        ),
        (
            "json",
            '{"d":12345678901234567.89,"t":"2020-01-01T00:00:00.000Z","b":true,"s":"a\\"b,c"}\n'
            '{"t":"2020-01-01T00:00:00.000Z","s":""}\n',
        ),
    ):
        sink = FileSink(str(tmp_path / format), format)  # type: ignore[arg-type]
        sink.open(context(region=None))
        sink.write_arrow(table, StepId(Attempt(0), 1))
        (name,) = visible(tmp_path / format)
        assert (tmp_path / format / name).read_text() == wanted


@pytest.mark.parametrize(
    "settings", [{"format": "avro"}, {"partition_files": 0}, {"options": {"mode": "append"}}]
)
def test_wrong_settings_are_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FileSink(str(tmp_path), **settings)


def test_sink_name_must_be_a_safe_file_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be part of a file name"):
        FileSink(str(tmp_path)).open(context(sink="../x"))


# --- outside of regions ---


def write_outside(out: Path, token: int, first: int) -> FileSink:
    """A run outside of regions, with whatever store gives it this token, that writes two steps."""
    sink = FileSink(str(out), "csv")
    sink.open(context(token, region=None))
    for step in range(2):
        sink.write_arrow(rows(first + 2 * step), StepId(Attempt(token), step))
    return sink


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 1), (0, 1), (2, 1)])
def test_outside_of_regions_a_second_run_leaves_the_first_ones_files_alone(
    tmp_path: Path, first: int, second: int
) -> None:
    """Tokens of runs with no store are 0; a new store, or one that was deleted, begins with 1 again."""
    write_outside(tmp_path, first, 0)
    before = {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)}
    write_outside(tmp_path, second, 10)
    after = {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)}
    assert len(before) == 2
    assert len(after) == 4
    assert {name: after[name] for name in before} == before


def test_outside_of_regions_a_run_does_not_stumble_over_what_a_killed_one_staged(tmp_path: Path) -> None:
    killed = FileSink(str(tmp_path), "parquet")
    killed.open(context(0, region=None))
    assert killed.task_writer(StepId(Attempt(0), 0)) is not None  # the step's directory is made, and stays
    write_outside(tmp_path, 0, 0)
    assert len(visible(tmp_path)) == 2


def test_outside_of_regions_a_name_that_is_taken_is_never_replaced(tmp_path: Path) -> None:
    sink = write_outside(tmp_path, 0, 0)
    before = {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)}
    with pytest.raises(StoreError, match="File exists"):
        sink.write_arrow(rows(50), StepId(Attempt(0), 0))
    assert {name: (tmp_path / name).read_bytes() for name in visible(tmp_path)} == before


def test_runs_with_no_store_another_store_or_a_deleted_one_leave_all_outputs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stores = [None, None, "one", "two", "one"]
    for number, store in enumerate(stores):
        if store is not None and (tmp_path / store).exists():
            shutil.rmtree(tmp_path / store)
        made = Topology("runs")
        made.source(Rows([(number,)], "n long"), name="numbers").sink(FileSink(str(out), "csv"), name="out")
        run_local(made, None if store is None else f"file:{tmp_path / store}", until="available")
    found = [(out / name).read_text().split() for name in visible(out)]
    assert sorted(found) == [["n", str(number)] for number in range(len(stores))]


def test_paths_may_be_path_objects(tmp_path: Path) -> None:
    made = Topology("paths")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n1\n2\n")
    rows = made.source(Files(tmp_path / "in", "csv", "n long"), name="rows").consistent("r")
    rows.sink(FileSink(tmp_path / "out", "csv"), name="out")
    run_local(made, store=tmp_path / "store")
    assert [path.read_text() for path in (tmp_path / "out").glob("part-*")] == ["n\n1\n2\n"]


@pytest.mark.parametrize("scheme", ["s3", "hdfs", "abfss"])
def test_an_address_of_somewhere_else_is_no_directory_of_that_name(scheme: str) -> None:
    with pytest.raises(ConfigError, match=f"is an address of {scheme}, and FileSink writes into directories"):
        FileSink(f"{scheme}://bucket/out", "csv")


def test_files_of_an_output_are_found_by_path_and_address(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n")
    for place in (tmp_path, str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        assert FileSink.files(place) == [str(tmp_path / "a.csv")]
