"""Small files become large ones: no row is lost or doubled for `FileSink.files`, whoever dies, reads or writes meanwhile."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed import killed_at
from test_sink_conformance import read, read_file
from typer.testing import CliRunner

from holdfast import failpoints
from holdfast.cli.main import app
from holdfast.errors import ConfigError, DamagedError, MismatchError, OwnedError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.sinks import FileSink
from holdfast.sinks.output.compaction import Compacted, Journal, _alone, compact, visible_files
from holdfast.testing.sink_conformance import SCHEMA, MiniRun, opened_sink, rows, tuples

PROGRAM = Path(__file__).with_name("compact_program.py")
DEATHS = tuple(name for name in failpoints.NAMES if name.startswith("compact."))
LARGE = 1 << 20


def write(out: Path, epochs: int = 6, format: Any = "csv") -> Any:
    """A finished run; what its last epoch prepared."""
    sink = opened_sink(FileSink(str(out), format))
    prepared: Any = None
    for epoch in range(1, epochs + 1):
        sink.write_arrow(rows(2 * epoch - 2), StepId(Attempt(0), epoch))
        prepared = sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch)))
        sink.commit(Epoch(epoch), prepared)
    return prepared


def listed(out: Path) -> list[tuple[Any, ...]]:
    """The rows as they are read in the documented way."""
    while True:
        try:
            tables = [read_file(Path(name)) for name in FileSink.files(str(out))]
            return [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)]
        except FileNotFoundError:
            continue


def names(out: Path) -> list[str]:
    return sorted(name for name in os.listdir(out) if not name.startswith("."))


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_small_files_become_one_and_a_run_goes_on_behind_it(tmp_path: Path, format: Any) -> None:
    prepared = write(tmp_path, format=format)
    done = compact(tmp_path, LARGE)
    assert (done.before, done.after) == (6, 1)
    assert names(tmp_path) == [f"part-out-e000000006-c0000.{format}"]
    assert read(tmp_path) == tuples(0, 12)
    if format == "parquet":
        assert pq.read_metadata(tmp_path / names(tmp_path)[0]).num_row_groups == 1
    sink = opened_sink(FileSink(str(tmp_path), format), 2, 6, prepared)
    for epoch in (7, 8):
        sink.write_arrow(rows(2 * epoch - 2), StepId(Attempt(0), epoch))
        sink.commit(Epoch(epoch), sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch))))
    assert compact(tmp_path, LARGE).before == 3
    assert sorted(read(tmp_path)) == tuples(0, 16)
    assert compact(tmp_path, LARGE).before == 0
    with pytest.raises(MismatchError, match="older than the output"):
        (tmp_path / ".holdfast/out/ledger.json").unlink()
        opened_sink(FileSink(str(tmp_path), format), 3, 6, prepared)


def test_only_what_is_small_alike_and_for_good_is_merged(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "part-out-e000000007-p0000.csv").write_text("n,word\n98,x\n")  # shown, not in the ledger yet
    (tmp_path / "part-00000.csv").write_text("n,word\n99,y\n")  # of somebody else
    (tmp_path / "part-out-e000000003-p0000.csv").write_text("n,word\n" + "97,large\n" * 100)
    (tmp_path / "part-out-e000000004-p0000.csv").write_text("word,n\nx,96\n")  # of other columns
    assert compact(tmp_path, 1000).before == 4
    assert names(tmp_path) == [
        "part-00000.csv",
        "part-out-e000000003-p0000.csv",
        "part-out-e000000004-p0000.csv",
        "part-out-e000000006-c0000.csv",
        "part-out-e000000007-p0000.csv",
    ]


def test_files_are_filled_up_to_the_size(tmp_path: Path) -> None:
    write(tmp_path, 10)
    size = (tmp_path / names(tmp_path)[0]).stat().st_size
    done = compact(tmp_path, 3 * size)
    assert (done.before, done.after) == (9, 3)
    assert sorted(read(tmp_path)) == tuples(0, 20)


def test_partitions_and_outputs_outside_of_regions_are_compacted_by_themselves(tmp_path: Path) -> None:
    for token in range(3):
        sink = opened_sink(FileSink(str(tmp_path), "json", partition_by="word"), region=None)
        for n, word in ((token, "a"), (10 + token, "b")):
            table = pa.table({"n": [n], "word": [word]}, schema=SCHEMA)
            sink.write_arrow(table, StepId(Attempt(token), n))
    assert compact(tmp_path, LARGE) == Compacted(6, 2, 51)
    found = {
        name: (tmp_path / name / "part-out-free-c0000.json").read_text() for name in ("word=a", "word=b")
    }
    assert {
        name: sorted(json.loads(line)["n"] for line in text.splitlines()) for name, text in found.items()
    } == {
        "word=a": [0, 1, 2],
        "word=b": [10, 11, 12],
    }


@pytest.mark.parametrize("hit", [1, 2])
@pytest.mark.parametrize("name", DEATHS)
@pytest.mark.parametrize("after", ["compact", "run"])
def test_killed_amid_a_swap_nothing_is_lost_or_doubled(
    tmp_path: Path, name: str, hit: int, after: str
) -> None:
    prepared = write(tmp_path, 8)
    size = (tmp_path / names(tmp_path)[0]).stat().st_size
    killed_at(f"{name}=kill@{hit}", PROGRAM, str(tmp_path), str(4 * size))
    assert sorted(listed(tmp_path)) == tuples(0, 16)
    assert max(Counter(read(tmp_path)).values()) == 1, "not even a plain listing sees a row twice"
    if after == "run":
        sink = opened_sink(FileSink(str(tmp_path)), 2, 8, prepared)
        sink.close()
        assert sorted(read(tmp_path)) == tuples(0, 16)
    compact(tmp_path, 4 * size)
    assert sorted(read(tmp_path)) == sorted(listed(tmp_path)) == tuples(0, 16)
    assert len(names(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path / ".holdfast/compact")) == ["journal.json", "lock"]


def test_readers_and_a_run_that_is_killed_meanwhile(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = MiniRun(tmp_path / "book.json", lambda: FileSink(str(out), "json"), epochs=60)
    seen: set[Any] = set()
    problems: list[str] = []
    stop = threading.Event()
    done = {"looks": 0, "compacted": 0}

    def look() -> None:
        while not stop.is_set():
            now = Counter(listed(out)) if out.exists() else Counter()
            problems.extend(f"twice: {row}" for row, times in now.items() if times > 1)
            problems.extend(f"gone: {row}" for row in seen - set(now))
            seen.update(now)
            done["looks"] += 1

    def merge() -> None:
        while not stop.is_set():
            if (out / ".holdfast/output.json").exists():
                with suppress(OwnedError):  # a run that begins looks for what a compaction left
                    done["compacted"] += compact(out, 4096).before

    threads = [threading.Thread(target=target) for target in (look, merge)]
    for thread in threads:
        thread.start()
    try:
        for token, name in enumerate(("sink.commit.begin", "sink.commit.applied", "sink.commit.recorded"), 1):
            failpoints.arm(f"{name}=raise@15")
            with pytest.raises(failpoints.FaultInjected):
                run.run(token)
        failpoints.disarm()
        run.run(9)
    finally:
        failpoints.disarm()
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    assert done["looks"] > 5
    assert done["compacted"] > 10
    compact(out, LARGE)
    assert sorted(read(out)) == sorted(listed(out)) == run.expected()


def test_what_cannot_be_compacted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no output of a file sink"):
        compact(tmp_path, LARGE)
    zipped = opened_sink(FileSink(str(tmp_path / "z"), options={"compression": "gzip"}), region=None)
    with pytest.raises(ConfigError, match="cannot be joined"):
        compact(tmp_path / "z", LARGE)
    assert zipped.describe()
    write(tmp_path / "out")
    with _alone(tmp_path / "out"), pytest.raises(OwnedError, match="compacted already"):
        compact(tmp_path / "out", LARGE)
    compact(tmp_path / "out", LARGE)
    assert Journal.read(tmp_path / "out") == Journal(1)
    (tmp_path / "out/.holdfast/compact/journal.json").write_text("{")
    for act in (lambda: compact(tmp_path / "out", LARGE), lambda: visible_files(tmp_path / "out")):
        with pytest.raises(DamagedError, match="journal"):
            act()


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path)
    runner = CliRunner()
    told = runner.invoke(app, ["compact", str(tmp_path), "--to", "1 MB", "--json"])
    assert json.loads(told.stdout)["before"] == 6
    assert "no files are small enough" in runner.invoke(app, ["compact", str(tmp_path)]).stdout
    assert isinstance(runner.invoke(app, ["compact", str(tmp_path), "--to", "soon"]).exception, ConfigError)
