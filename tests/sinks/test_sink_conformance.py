"""Every sink that takes part in epochs passes the same suite; file sinks also survive death at every failpoint."""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from killed import killed_at

from holdfast import failpoints
from holdfast.ids import Epoch
from holdfast.language.connectors import Sink
from holdfast.sinks import FileSink, ForeachBatch, MemorySink
from holdfast.testing.sink_conformance import SCHEMA, SINK_FAILPOINTS, MiniRun, SinkConformance, rows

PROGRAM = Path(__file__).with_name("sink_program.py")


def read(directory: Path) -> list[tuple[Any, ...]]:
    """The rows a plain listing shows."""
    found = []
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        if path.name.startswith((".", "_")):
            continue
        try:
            table = read_file(path)
        except FileNotFoundError:
            pytest.fail(f"{path} disappeared")
        found += list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return found


def read_file(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path, partitioning=None)
    if path.suffix == ".json":
        return pa.json.read_json(path)
    return pa.csv.read_csv(
        path, convert_options=pa.csv.ConvertOptions(column_types=SCHEMA, include_missing_columns=False)
    )


class FileSinkConformance(SinkConformance):
    format = "csv"

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path / "out"

    def make(self) -> Sink:
        return FileSink(str(self.place), self.format)  # type: ignore[arg-type]

    def visible(self) -> list[tuple[Any, ...]]:
        return read(self.place)

    def test_one_file_per_partition_and_epoch_and_nothing_else_shows(self) -> None:
        self.test_restore_rolls_a_published_epoch_forward_and_withdraws_the_rest()
        names = sorted(name for name in os.listdir(self.place) if not name.startswith("."))
        assert names == [f"part-out-e00000000{e}-p0000.{self.format}" for e in (1, 2)]
        left = [path for path in (self.place / ".holdfast").rglob("*") if path.is_file()]
        assert sorted(path.name for path in left) == ["ledger.json", "output.json"]


class TestCsvSink(FileSinkConformance):
    pass


class TestJsonSink(FileSinkConformance):
    format = "json"


class TestParquetSink(FileSinkConformance):
    format = "parquet"


class PartitionedConformance(FileSinkConformance):
    """Every row in a directory of its own."""

    def make(self) -> Sink:
        return FileSink(str(self.place), self.format, partition_by="word")  # type: ignore[arg-type]

    def visible(self) -> list[tuple[Any, ...]]:
        folders = [path for path in self.place.iterdir() if path.name != ".holdfast"]
        return [(*row, folder.name.removeprefix("word=")) for folder in folders for row in read(folder)]

    def test_one_file_per_partition_and_epoch_and_nothing_else_shows(self) -> None:
        sink = self.opened()
        sink.commit(Epoch(1), self.epoch(sink, 1, rows(0), rows(0)))
        names = sorted(str(path.relative_to(self.place)) for path in self.place.rglob("part-*"))
        assert names == [f"word=w{n}/part-out-e000000001-p0000.{self.format}" for n in (0, 1)]


class TestPartitionedCsvSink(PartitionedConformance):
    pass


class TestPartitionedJsonSink(PartitionedConformance):
    format = "json"


class TestPartitionedParquetSink(PartitionedConformance):
    format = "parquet"


class TestMemorySink(SinkConformance):
    survives_restart = False

    @pytest.fixture(autouse=True)
    def _clear(self) -> Any:
        MemorySink.clear("conformance")
        yield
        MemorySink.clear("conformance")

    def make(self) -> Sink:
        return MemorySink("conformance")

    def visible(self) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in MemorySink.rows("conformance")]


class TestForeachEpoch(SinkConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path / "staging"
        self.calls: dict[int, list[tuple[Any, ...]]] = {}

    def make(self) -> Sink:
        return ForeachBatch(self.take, per="epoch", staging=str(self.place))

    def take(self, table: pa.Table, id: int) -> None:
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert self.calls.setdefault(id, rows) == rows

    def visible(self) -> list[tuple[Any, ...]]:
        return [row for rows in self.calls.values() for row in rows]


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("name", SINK_FAILPOINTS)
@pytest.mark.fault("X01")
def test_driver_killed_at_a_failpoint_leaves_one_visible_copy(tmp_path: Path, name: str, hit: int) -> None:
    log = tmp_path / "fp.log"
    deaths = [f"{name}=kill@{hit}"]
    if name.startswith("reset"):  # a restore worth dying in: there is an epoch to roll forward
        deaths = ["sink.commit.begin=kill@2" if hit == 1 else "sink.prepared=kill@2", f"{name}=kill"]
    for token, death in enumerate(deaths, 1):
        killed_at(death, PROGRAM, str(tmp_path), "csv", str(token), HOLDFAST_FP_LOG=str(log))
    assert f"!{name} kill" in log.read_text()
    run = MiniRun(tmp_path / "book.json", lambda: FileSink(str(tmp_path / "out"), "csv"))
    run.run(token=len(deaths) + 1)
    assert sorted(read(tmp_path / "out")) == run.expected()


@pytest.mark.parametrize("format", ["json", "parquet"])
@pytest.mark.parametrize("action", ["raise", "enospc", "eio"])
@pytest.mark.parametrize("name", SINK_FAILPOINTS)
@pytest.mark.fault("X01", "X04")
def test_every_fault_twice_in_a_row_leaves_one_visible_copy(
    tmp_path: Path, name: str, action: str, format: Any
) -> None:
    run = MiniRun(tmp_path / "book.json", lambda: FileSink(str(tmp_path / "out"), format))
    faults = {"reset.sink.rollback": f"{action}@2", name: f"{action}@2"}
    failpoints.arm(";".join(f"{point}={fault}" for point, fault in faults.items()))
    if name.startswith("reset"):
        failpoints.arm(f"sink.commit.begin={action}@2;{name}={action}@2")
    try:
        failures = run.run_to_the_end()
    finally:
        fired = failpoints.disarm()
    assert failures >= 1
    assert fired[name] == 1
    assert sorted(read(tmp_path / "out")) == run.expected()


@pytest.mark.fault("X08", "O02")
def test_live_reader_never_sees_a_row_twice_or_one_that_disappears(tmp_path: Path) -> None:
    seen: Counter[tuple[Any, ...]] = Counter()
    problems: list[str] = []
    stop = threading.Event()
    looks = 0

    def look() -> None:
        nonlocal seen, looks
        while not stop.is_set():
            now = Counter(read(tmp_path / "out"))
            problems.extend(f"twice: {row}" for row, times in now.items() if times > 1)
            problems.extend(f"gone: {row}" for row in seen - now)
            seen, looks = now, looks + 1

    reader = threading.Thread(target=look)
    reader.start()
    run = MiniRun(tmp_path / "book.json", lambda: FileSink(str(tmp_path / "out"), "json"), epochs=60)
    faults = [f"{name}=raise@{hit}" for hit in (3, 5) for name in SINK_FAILPOINTS[:6]]
    try:
        for token, fault in enumerate(faults, 1):
            failpoints.arm(fault)
            with pytest.raises(failpoints.FaultInjected):
                run.run(token)
        failpoints.disarm()
        run.run(len(faults) + 1)
    finally:
        failpoints.disarm()
        stop.set()
        reader.join()
    assert not problems
    assert looks > 1
    assert sorted(read(tmp_path / "out")) == run.expected()
