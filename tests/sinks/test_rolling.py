"""Files of several epochs become one: what waits is durable, shown once, and never lost, whoever dies when."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed import killed_at
from test_sink_conformance import FileSinkConformance, read

from holdfast import failpoints
from holdfast.clock import ManualClock
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import explain_text
from holdfast.errors import ConfigError, DamagedError, MismatchError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sinks.output.planning import Part
from holdfast.sinks.output.rolling import MOST_WAITING, Piece, Roll, bytes_of, plan_rolled
from holdfast.sources import Rows
from holdfast.testing.sink_conformance import SCHEMA, SINK_FAILPOINTS, MiniRun, opened_sink, rows, tuples

PROGRAM = Path(__file__).with_name("sink_program.py")
CLOSING = tuple(name for name in failpoints.NAMES if name.startswith("roll."))
AFTER_TWO = {"csv": "45 B", "json": "100 B", "parquet": "2.2 KB"}
"""A file is complete with the rows of two of MiniRun's epochs, or three."""


def make(
    out: Path, roll: Any, *given: Any, format: Any = "csv", clock: ManualClock | None = None, **settings: Any
) -> FileSink:
    sink = FileSink(str(out), format, roll=roll, **settings)
    sink.check_columns(SCHEMA)
    if clock is not None:
        sink._clock = clock
    return opened_sink(sink, *given)


def prepare(sink: FileSink, epoch: int, steps: int = 2) -> Any:
    for step in range(steps):
        sink.write_arrow(rows(10 * epoch + 2 * step), StepId(Attempt(0), 10 * epoch + step))
    return sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch)))


def visible(out: Path) -> list[str]:
    return sorted(name for name in os.listdir(out) if not name.startswith("."))


class TestEveryEpochRolls(FileSinkConformance):
    """Files that are complete with their first byte show with their epoch, each step's as it is."""

    format = "parquet"
    test_outside_a_region_every_step_is_final = None  # type: ignore[assignment]  # nothing rolls there, see below

    def test_one_file_per_partition_and_epoch_and_nothing_else_shows(self) -> None:
        self.test_restore_rolls_a_published_epoch_forward_and_withdraws_the_rest()
        names = ["e000000001-p0000", "e000000001-p0001", "e000000002-p0000"]
        assert visible(self.place) == [f"part-out-{name}.parquet" for name in names]

    def make(self) -> FileSink:
        return FileSink(str(self.place), self.format, roll="1 B")  # type: ignore[arg-type]


# --- when ---


@pytest.mark.parametrize(
    ("given", "bytes", "seconds"),
    [
        ("128 MB", 128 << 20, None),
        ("1.5 KiB", 1536, None),
        ("10 minutes", None, 600.0),
        (timedelta(hours=1), None, 3600.0),
        (("1 gb", "90 s"), 1 << 30, 90.0),
        (("1 day", "7B"), 7, 86400.0),
    ],
)
def test_sizes_and_times_are_read_as_people_write_them(given: Any, bytes: Any, seconds: Any) -> None:
    roll = Roll.of(given)
    assert (roll.bytes, roll.seconds) == (bytes, seconds)


@pytest.mark.parametrize(
    "given", ["", "128", 128, "fast", ("1 MB", "2 MB"), ("1 s", "2 s"), (), "0 MB", "-1 MB"]
)
def test_what_is_neither_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ConfigError, match="roll=") as found:
        FileSink(str(tmp_path), roll=given)
    assert "128 MB" in str(found.value)
    assert bytes_of("1 mb") == 1 << 20


def piece(size: int, since: float = 0.0, is_new: bool = False, directory: str = "", number: int = 0) -> Piece:
    return Piece(
        Part(f"{directory}/{size}-{since}-{is_new}-{number}", directory, number, size), since, is_new
    )


def test_large_new_files_are_not_copied_and_small_ones_fill_up() -> None:
    roll = Roll.of("100 B")
    pieces = [piece(40), piece(30, 1), piece(60, 2, True), piece(20, 2, True), piece(15, 2, True, number=1)]
    made = plan_rolled(pieces, roll, 1, 2.0)
    assert [([p.part.size for p in joint.pieces], joint.is_visible) for joint in made] == [
        ([60], True),
        ([40, 30, 20, 15], True),
    ]
    apart = plan_rolled(pieces, roll, 2, 2.0)
    assert [([p.part.size for p in joint.pieces], joint.is_visible) for joint in apart] == [
        ([60], True),
        ([20], False),
        ([15], False),
    ]


def test_few_files_wait_and_bytes_are_copied_a_few_times_only() -> None:
    """A year of one row per epoch."""
    waiting: list[Piece] = []
    copied = most = 0
    for epoch in range(5000):
        joints = plan_rolled([*waiting, piece(1, epoch, True)], Roll.of("1 GB"), 1, epoch)
        (joint,) = joints
        assert not joint.is_visible
        waiting = [each for each in waiting if each not in joint.pieces]
        size = sum(each.part.size for each in joint.pieces)
        copied += size if len(joint.pieces) > 1 else 0
        waiting.append(piece(size, joint.since))
        most = max(most, len(waiting))
        assert sum(each.part.size for each in waiting) == epoch + 1
    assert most <= MOST_WAITING + 14
    assert copied < 5000 * 14


def test_rows_show_when_there_are_enough_of_them(tmp_path: Path) -> None:
    sink = make(tmp_path, "100 B")
    for epoch in (1, 2):
        sink.commit(Epoch(epoch), prepare(sink, epoch))
    assert visible(tmp_path) == []
    sink.commit(Epoch(3), prepare(sink, 3))
    assert visible(tmp_path) == ["part-out-e000000003-p0000.csv"]
    wanted = [row for epoch in (1, 2, 3) for row in tuples(10 * epoch, 4)]
    assert read(tmp_path) == wanted
    left = [path.name for path in (tmp_path / ".holdfast").rglob("part-*")]
    assert left == []


def test_rows_show_when_the_first_has_waited_for_long_enough(tmp_path: Path) -> None:
    clock = ManualClock(1000.0)
    sink = make(tmp_path, ("1 GB", "10 minutes"), clock=clock)
    sink.commit(Epoch(1), prepare(sink, 1))
    clock.advance(599)
    sink.commit(Epoch(2), prepare(sink, 2, steps=0))
    assert visible(tmp_path) == []
    clock.advance(1)
    sink.commit(Epoch(3), prepare(sink, 3, steps=1))
    assert visible(tmp_path) == ["part-out-e000000003-p0000.csv"]
    assert sorted(read(tmp_path)) == tuples(10, 4) + tuples(30, 2)


def test_directories_of_partitions_roll_by_themselves(tmp_path: Path) -> None:
    sink = make(tmp_path, "20 B", format="json", partition_by="word")
    for epoch in range(1, 4):
        many = pa.table(
            {"n": [epoch, 100 + epoch, 5], "word": ["often", "often", f"rare{epoch}"]}, schema=SCHEMA
        )
        sink.write_arrow(many, StepId(Attempt(0), epoch))
        sink.commit(Epoch(epoch), sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch))))
    assert [path.name for path in tmp_path.glob("word=*")] == ["word=often"]
    sink.close()
    assert sorted(path.name for path in tmp_path.glob("word=*")) == [
        "word=often", "word=rare1", "word=rare2", "word=rare3"
    ]  # fmt: skip
    found = [
        json.loads(line)["n"] for path in tmp_path.glob("word=*/*") for line in path.read_text().splitlines()
    ]
    assert sorted(found) == [1, 2, 3, 5, 5, 5, 101, 102, 103]


def test_small_row_groups_become_large_ones(tmp_path: Path) -> None:
    sink = make(tmp_path, "1 GB", format="parquet")
    for epoch in range(1, 6):
        sink.commit(Epoch(epoch), prepare(sink, epoch))
    sink.close()
    (name,) = visible(tmp_path)
    assert name == "part-out-e000000005-w0000.parquet"
    assert pq.read_metadata(tmp_path / name).num_row_groups == 1
    assert sorted(read(tmp_path)) == [row for epoch in range(1, 6) for row in tuples(10 * epoch, 4)]


# --- what waits ---


def test_what_waits_is_found_by_the_next_owner_and_shown_once(tmp_path: Path) -> None:
    old = make(tmp_path, "1 GB")
    old.commit(Epoch(1), prepare(old, 1))
    prepared = prepare(old, 2)
    old.write_arrow(rows(90), StepId(Attempt(0), 900))
    new = make(tmp_path, "1 GB", 2, 2, prepared)
    new.restore(Epoch(2), prepared)
    assert visible(tmp_path) == []
    third = prepare(new, 3)
    new.commit(Epoch(3), third)
    new.close()
    assert sorted(read(tmp_path)) == tuples(10, 4) + tuples(20, 4) + tuples(30, 4)
    last = make(tmp_path, "1 GB", 3, 3, third)
    last.close()
    assert len(visible(tmp_path)) == 1
    last.commit(Epoch(4), prepare(last, 4))
    last.close()
    assert len(visible(tmp_path)) == 2
    assert len(read(tmp_path)) == 16


def test_a_sink_that_rolls_no_more_shows_what_waits_with_its_next_epoch(tmp_path: Path) -> None:
    sink = make(tmp_path, "1 GB")
    first = prepare(sink, 1)
    sink.commit(Epoch(1), first)
    plain = make(tmp_path, None, 2, 1, first)
    plain.commit(Epoch(2), prepare(plain, 2))
    assert visible(tmp_path) == ["part-out-e000000002-p0000.csv"]
    assert sorted(read(tmp_path)) == tuples(10, 4) + tuples(20, 4)


def test_rows_of_other_columns_do_not_become_one_file(tmp_path: Path) -> None:
    sink = make(tmp_path, "1 GB")
    first = prepare(sink, 1)
    sink.commit(Epoch(1), first)
    wider = FileSink(str(tmp_path), "csv", roll="1 GB")
    table = rows(50).append_column("more", pa.array(["a", "b"]))
    wider.check_columns(table.schema)
    opened_sink(wider, 2, 1, first)
    wider.write_arrow(table, StepId(Attempt(0), 1))
    wider.commit(Epoch(2), wider.prepare(Epoch(2), wider.seal(Epoch(2))))
    assert visible(tmp_path) == ["part-out-e000000002-p0000.csv"]
    assert sorted(read(tmp_path)) == tuples(10, 4)
    wider.close()
    assert (tmp_path / "part-out-e000000002-w0000.csv").read_text() == "n,word,more\n50,w50,a\n51,w51,b\n"


def test_an_epoch_that_is_prepared_again_takes_what_waited_before_it(tmp_path: Path) -> None:
    sink = make(tmp_path, "1 GB")
    sink.commit(Epoch(1), prepare(sink, 1))
    sink.write_arrow(rows(20), StepId(Attempt(0), 20))
    sealed = sink.seal(Epoch(2))
    sink.prepare(Epoch(2), sealed)
    sink.commit(Epoch(2), sink.prepare(Epoch(2), sealed))
    sink.close()
    assert sorted(read(tmp_path)) == tuples(10, 4) + tuples(20, 2)


def test_an_epoch_that_was_not_shown_keeps_what_waits_from_showing(tmp_path: Path) -> None:
    sink = make(tmp_path, "1 GB")
    sink.commit(Epoch(1), prepare(sink, 1))
    second = prepare(sink, 2)  # perhaps published: whoever comes next knows
    sink.close()
    assert visible(tmp_path) == []
    make(tmp_path, "1 GB", 2, 2, second).close()
    assert sorted(read(tmp_path)) == tuples(10, 4) + tuples(20, 4)


@pytest.mark.parametrize("damage", ["missing", "flip"])
def test_damage_to_what_waits_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    sink = make(tmp_path, "1 GB")
    first = prepare(sink, 1)
    sink.commit(Epoch(1), first)
    path = tmp_path / ".holdfast/out" / first["waiting"][0][0]
    data = path.read_bytes()
    path.unlink() if damage == "missing" else path.write_bytes(data[:-3] + b"x" + data[-2:])
    with pytest.raises(DamagedError, match=path.name):
        make(tmp_path, "1 GB", 2, 1, first)


@pytest.mark.parametrize("settings", [{"format": "json"}, {"partition_by": "word"}])
def test_what_waits_in_another_form_is_refused(tmp_path: Path, settings: Any) -> None:
    sink = make(tmp_path, "1 GB")
    first = prepare(sink, 1)
    sink.commit(Epoch(1), first)
    with pytest.raises(MismatchError, match=r"rows wait for .* in another form"):
        make(tmp_path, "1 GB", 2, 1, first, **settings)


def test_outside_of_regions_and_with_compressed_text_nothing_rolls(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="outside of regions"):
        opened_sink(FileSink(str(tmp_path), roll="1 MB"), region=None)
    with pytest.raises(ConfigError, match="cannot be rolled"):
        FileSink(str(tmp_path), "csv", roll="1 MB", options={"compression": "gzip"})


def test_explain_says_when_rows_show(tmp_path: Path) -> None:
    topology = Topology("explained")
    stream = topology.source(Rows([(1, "a")], "n long, word string"), name="rows").consistent(period=2)
    stream.sink(FileSink(str(tmp_path), "json", partition_by="word", roll=("1 MB", "5 minutes")), name="out")
    text = explain_text(compile_graph(topology.graph(), ArrowAnalyser()))
    assert (
        "after each epoch, ≈ 2 s, in which 1 MB or 5 minutes of rows is complete; the rest when the run ends"
        in text
    )
    assert f"json files partitioned by word in {tmp_path}, rolled at 1 MB or 5 minutes" in text


# --- deaths ---


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize("roll", ["two epochs", "1 GB"])
@pytest.mark.parametrize("name", [*SINK_FAILPOINTS, *CLOSING])
@pytest.mark.fault("X01")
def test_driver_killed_at_a_failpoint_leaves_one_visible_copy(
    tmp_path: Path, name: str, roll: str, format: str
) -> None:
    roll = AFTER_TWO[format] if roll == "two epochs" else roll
    log = tmp_path / "fp.log"
    deaths = [f"{name}=kill" if name in CLOSING else f"{name}=kill@2"]
    if name.startswith("reset"):
        deaths = ["sink.commit.begin=kill@2", f"{name}=kill", "roll.close.noted=kill", f"{name}=kill"]
    if name == "roll.close.shown":
        deaths = ["roll.close.noted=kill", f"{name}=kill"]
    for token, death in enumerate(deaths, 1):
        killed_at(death, PROGRAM, str(tmp_path), format, str(token), roll, HOLDFAST_FP_LOG=str(log))
    assert f"!{name} kill" in log.read_text()
    run = MiniRun(tmp_path / "book.json", lambda: FileSink(str(tmp_path / "out"), format, roll=roll))  # type: ignore[arg-type]
    run.run(token=len(deaths) + 1)
    assert sorted(read(tmp_path / "out")) == run.expected()
    run.run(token=len(deaths) + 2)
    assert sorted(read(tmp_path / "out")) == run.expected()
    left = sorted(path.name for path in (tmp_path / "out/.holdfast").rglob("*") if path.is_file())
    assert left == ["ledger.json", "output.json"]


@pytest.mark.parametrize("action", ["raise", "enospc", "eio"])
@pytest.mark.parametrize("name", [*SINK_FAILPOINTS, *CLOSING])
def test_every_fault_twice_in_a_row_leaves_one_visible_copy(tmp_path: Path, name: str, action: str) -> None:
    run = MiniRun(
        tmp_path / "book.json", lambda: FileSink(str(tmp_path / "out"), "json", roll=AFTER_TWO["json"]), 4
    )
    hit = 1 if name in CLOSING else 2
    failpoints.arm(
        ";".join(
            {"sink.commit.begin": f"sink.commit.begin={action}@2", name: f"{name}={action}@{hit}"}.values()
        )
    )
    try:
        failures = run.run_to_the_end()
    finally:
        fired = failpoints.disarm()
    assert failures >= 1
    assert fired[name] == 1
    run.run(20)
    assert sorted(read(tmp_path / "out")) == run.expected()
