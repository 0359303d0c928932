"""Questions to a log about its past as DataFrames: the same rows as a full scan with a filter, however they are read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from random_logs import BEGIN, TIMES, RandomLog, scanned
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app, run_command
from holdfast.errors import InputError
from holdfast.log.query.wanted import between
from holdfast.runtime.engines.spark import shipping
from holdfast.sources.logs import held_files, retrospective
from holdfast.sources.logs.log_source import ReadParts

pytestmark = pytest.mark.spark


def numbers(frame: Any) -> list[int]:
    return sorted(row.n for row in frame.collect())


def filled(path: Path, minutes: int = 20, merged: int = 10) -> hf.Log:
    """Ten rows a minute; the first `merged` minutes are one Parquet segment."""
    log = hf.Log(path, segment_bytes=1, upkeep_every=None)
    for minute in range(minutes):
        log.append(
            [{"n": 10 * minute + k, "word": f"w{k}"} for k in range(10)],
            time=BEGIN + timedelta(minutes=minute),
        )
        if minute == merged - 1:
            log.close()
            log = hf.Log(path, segment_bytes=1, upkeep_every=None)
            log.compact()
    return log


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.sampled(keep=2)
def test_a_frame_has_the_rows_of_a_full_scan_with_a_filter(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        monkeypatch.setattr(retrospective, "DRIVER_ROWS", 0 if seed else 5000)
        made = RandomLog(tmp_path / f"day={seed}", f"spark {kind} {seed}", kind)
        made.fill(appends=30)
        log = hf.Log(made.path)
        for since, until in [made.stretch() for _ in range(3)]:
            frame = log.between(since, until, spark=spark)
            assert frame.columns == log.schema.names
            expected = scanned(made.path, since, until)
            assert numbers(frame) == expected, f"{kind}, seed {seed}, from {since} to {until}"


def test_segments_are_chosen_before_spark_reads_anything(spark: Any, tmp_path: Path) -> None:
    with filled(tmp_path / "log") as log:
        wanted = between(BEGIN + timedelta(minutes=3), BEGIN + timedelta(minutes=12))
        assert len(log.choose(wanted).chosen) == 3  # the merged one, and two tails
        frame = log.between(BEGIN + timedelta(minutes=3), BEGIN + timedelta(minutes=12))
        (file,) = frame.inputFiles()
        assert file.endswith(".parquet")
        assert "PushedFilters" in frame._jdf.queryExecution().explainString(
            spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
        )
        assert numbers(frame) == list(range(30, 120))
        assert log.between(BEGIN + timedelta(days=1), None).inputFiles() == []


@pytest.mark.parametrize("kind", ["us UTC", "us", "date"])
def test_bounds_at_the_ends_of_all_times(spark: Any, tmp_path: Path, kind: str) -> None:
    made = RandomLog(tmp_path / "log", "ends", kind)
    made.fill(appends=10)
    with hf.Log(made.path) as log:
        log.compact()
    with hf.Log(made.path) as log:
        log.compact()
        expected = scanned(made.path, datetime.min, datetime.max)
        assert numbers(log.between(datetime.min, datetime.max, spark=spark)) == expected


def test_from_a_position_on(spark: Any, tmp_path: Path) -> None:
    with filled(tmp_path / "log") as log:
        for start in (0, 37, 100, 137, 200):
            assert numbers(log.from_position(start)) == list(range(start, 200))
        log.trim(50)
        with pytest.raises(InputError, match="were trimmed"):
            log.from_position(0)
        assert numbers(log.between(None, None)) == list(range(50, 200)), "the file has rows that were trimmed"
        assert numbers(log.from_position(60)) == list(range(60, 200))


def test_columns_of_all_types_are_what_was_appended(spark: Any, tmp_path: Path) -> None:
    names = ("flag", "a b", "x.y", "`q`", "money", "parts", "pair", "blob", "day", "tiny", "u")
    values = (
        True,
        1.5,
        "text",
        None,
        Decimal("1.20"),
        [1, None],
        {"k": 1, "v": "s"},
        b"\x00\xff",
        BEGIN.date(),
        7,
        2**63,
    )
    kinds = (
        pa.bool_(), pa.float64(), pa.large_string(), pa.float32(), pa.decimal128(10, 2), pa.list_(pa.int32()),
        pa.struct([("k", pa.int64()), ("v", pa.string())]), pa.binary(), pa.date32(), pa.int8(), pa.uint64(),
    )  # fmt: skip
    for count in (len(names) - 1, len(names)):  # without and with a type that Spark reads otherwise
        columns = {
            name: pa.array([value], kind) for name, value, kind in zip(names, values, kinds, strict=True)
        }
        table = pa.table(dict(list(columns.items())[:count]))
        path = tmp_path / str(count)
        with hf.Log(path) as log:
            log.append(table)
        with hf.Log(path) as log:
            log.compact()
            log.append(table)
            found = log.between(None, None, spark=spark)
            assert len(found.inputFiles()) == (1 if count < len(names) else 0)
            one, other = found.toArrow().to_pylist()
            assert one == other
            assert one == table.to_pylist()[0]


def test_names_that_differ_in_case_only(spark: Any, tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log") as log:
        log.append([{"n": 1, "N": 2}])
    with hf.Log(tmp_path / "log") as log:
        log.compact()
        assert [tuple(row) for row in log.between(None, None, spark=spark).collect()] == [(1, 2)]


def test_a_frame_reads_what_was_there_though_it_is_merged_and_trimmed(spark: Any, tmp_path: Path) -> None:
    with filled(tmp_path / "log", minutes=15) as log:
        frame = log.between(None, BEGIN + timedelta(minutes=10), spark=spark)
        log.compact()
        log.trim(150)
        assert log.table().num_rows == 0
        assert numbers(frame) == list(range(100))
        assert len(list((tmp_path / "log" / "tmp").glob("query-*"))) == 1


def test_what_a_dead_process_held_is_let_go(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "log", minutes=12).close()
    program = (
        "import os, signal, sys, holdfast as hf\n"
        "from holdfast.sources.logs import held_files\n"
        "from holdfast.log.query.wanted import Wanted\n"
        "log = hf.Log(sys.argv[1])\n"
        "paths = [each.where.path for each in log.choose(Wanted()).chosen if each.is_whole]\n"
        "assert len(paths) == 1\n"
        "held_files.hold(str(log.path), paths)\n"
        "if sys.argv[2] == 'die': os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    place = tmp_path / "log" / "tmp"
    for end, code, left in (("die", -signal.SIGKILL, 1), ("live", 0, 0)):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "log"), end], check=False)
        assert done.returncode == code
        assert len(list(place.glob("query-*"))) == left
    with hf.Log(tmp_path / "log") as log:
        assert numbers(log.between(None, None, spark=spark)) == list(range(120))


def test_a_log_that_was_made_anew_at_the_same_place(spark: Any, tmp_path: Path) -> None:
    for rows in (110, 120):
        filled(tmp_path / "log", minutes=rows // 10).close()
        assert numbers(hf.Log(tmp_path / "log").between(None, None, spark=spark)) == list(range(rows))
        shutil.rmtree(tmp_path / "log")


def test_second_names_go_after_a_while(tmp_path: Path) -> None:
    root = tmp_path / "log"
    (root / "p00000").mkdir(parents=True)
    (root / "p00000" / "a").write_text("a")
    held = held_files.HeldFiles(root)
    name = held.hold(root / "p00000" / "a", 10.0)
    held.let_go_before(10.0)
    assert name.read_text() == "a"
    held.let_go_before(10.5)
    assert not name.exists()
    held.close()
    assert not list((root / "tmp").iterdir())


def test_where_no_second_name_can_be_made_the_segment_is_read_by_its_own(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("read only")

    filled(tmp_path / "log", minutes=12).close()
    monkeypatch.setattr(os, "link", refuse)
    frame = hf.Log(tmp_path / "log").between(None, None, spark=spark)
    assert numbers(frame) == list(range(120))
    assert all("/tmp/query-" not in path for path in frame.inputFiles())


def test_damage_is_told_and_never_read_as_rows(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "log", minutes=12).close()
    (parquet,) = (tmp_path / "log" / "p00000").glob("*.parquet")
    data = bytearray(parquet.read_bytes())
    data[30] ^= 4  # in the first page
    parquet.write_bytes(data)
    with pytest.raises(Exception, match=r"(?i)checksum|crc|corrupt"):
        hf.Log(tmp_path / "log").between(None, None, spark=spark).collect()


def test_a_session_is_needed(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    filled(tmp_path / "log", minutes=1).close()
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    with pytest.raises(Exception, match="no Spark session"):
        hf.Log(tmp_path / "log").between(None, None)


def test_parts_are_read_by_as_many_tasks_as_are_worth_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrospective, "DRIVER_ROWS", 0)
    monkeypatch.setattr(retrospective, "PART_ROWS", 30)
    with filled(tmp_path / "log", minutes=20, merged=0) as log:
        frame = log.between(None, BEGIN + timedelta(minutes=12), spark=spark)
        assert frame.rdd.getNumPartitions() == 4
        assert numbers(frame) == list(range(120))
    assert ReadParts.__module__ == "holdfast.sources.logs.log_source"


# --- the command ---


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["logs", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_query_is_answered(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path / "log").close()
    log = tmp_path / "log"
    asked = "select word, count(*) as times from log where n >= 50 group by word order by word"
    answer = json.loads(said("query", log, asked, "--json"))
    assert answer == [{"word": f"w{k}", "times": 15} for k in range(10)]
    bounds = ("--from", "2024-01-01T00:05", "--to", "2024-01-01T00:12")
    assert json.loads(said("query", log, "select count(*) as c from log", *bounds, "--json")) == [{"c": 70}]
    text = said("query", log, "select n from log order by n", "--limit", 3)
    assert "and there are more: --limit" in text
    assert "3 rows" in said("query", log, "select n from log limit 3")


def test_a_wrong_query_is_told_in_a_sentence(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "log", minutes=1).close()
    log = str(tmp_path / "log")
    for wrong, told in (
        ("select m from log", "`m` cannot be resolved"),
        ("selec n from log", "Syntax error"),
        ("select n from logs", "logs"),
    ):
        assert run_command(["logs", "query", log, wrong]) == 3
        error = capsys.readouterr().err
        assert told in error
        assert "n, word" in error
        assert "Traceback" not in error
    assert run_command(["logs", "query", log, " "]) == 3
    assert run_command(["logs", "query", log, "select 1", "--from", "noon"]) == 3
    assert run_command(["logs", "query", log + "s", "select 1"]) == 3


# --- a replay on Spark ---

SHOP = """
import holdfast as hf
topology = hf.Topology("shop")
words = topology.source(hf.TcpLines(0), name="lines").select("cast(split(line, ' ')[0] as long) as n", "split(line, ' ')[1] as word")
words.filter("n % 2 = 0").aggregate("word", times=hf.count()).sink(hf.FileSink("real", "json"), name="counts")
words.sink(hf.LogSink("real-log"), name="rows")
"""


def test_a_replay_is_carried_out_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipping, "shipped", lambda *_: nullcontext())  # all tests have this session
    (tmp_path / "shop.py").write_text(SHOP)
    with hf.Log("lines") as log:
        for first in range(0, 100, 10):
            log.append([{"line": f"{n} w{n % 3}"} for n in range(first, first + 10)])
    told = json.loads(said("replay", "lines", "shop.py", "--into", "try", "--to", 90, "--json"))
    assert (told["start"], told["at"], told["end"], told["is_whole"]) == (0, 90, 90, True)
    rows = [
        json.loads(line) for path in Path("try/rows").glob("part-*") for line in path.read_text().splitlines()
    ]
    assert sorted(row["n"] for row in rows) == list(range(90))
    counts = [
        json.loads(line)
        for path in Path("try/counts").glob("part-*")
        for line in path.read_text().splitlines()
    ]
    assert {row["word"]: row["times"] for row in counts} == {"w0": 15, "w1": 15, "w2": 15}
    assert not Path("real").exists()
    assert not Path("real-log").exists()
    assert "nothing was done" in said("replay", "lines", "shop.py", "--into", "try", "--to", 90)
    assert run_command(["logs", "replay", "lines", "shop.py", "--into", "try"]) == 0, "the end is as it was"
    assert run_command(["logs", "replay", "lines", "shop.py", "--into", "try", "--to", "80"]) == 3
    assert spark.range(1).count() == 1, "the session of the caller stays"
