"""Directories named by values: names as Spark gives them, rows once, few files open at a time."""

from __future__ import annotations

import datetime as dt
import os
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import ConfigError, MismatchError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.sinks import FileSink
from holdfast.sinks.output.partitions import NULL, escape, split
from holdfast.testing.sink_conformance import opened_sink

DAYS = [dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(2026, 1, 1)]
TABLE = pa.table(
    {"n": [1, 2, 3, 4], "country": ["DE", "", "a/b=c", "DE"], "day": pa.array(DAYS, pa.date32())}
)


def opened(out: Path, *given: Any, format: Any = "parquet", by: Any = ("country", "day")) -> FileSink:
    return opened_sink(FileSink(str(out), format, partition_by=by), *given)


def step(number: int) -> StepId:
    return StepId(Attempt(0), number)


def commit(sink: FileSink, epoch: int) -> None:
    sink.commit(Epoch(epoch), sink.prepare(Epoch(epoch), sink.seal(Epoch(epoch))))


def shown(out: Path) -> list[str]:
    found = (str(path.relative_to(out)) for path in out.rglob("part-*"))
    return sorted(name for name in found if not name.startswith("."))


def test_values_name_directories_and_are_left_out_of_the_files(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write_arrow(TABLE, step(1))
    sink.write_arrow(TABLE, step(2))
    assert shown(tmp_path) == []
    commit(sink, 1)
    name = "part-out-e000000001-p0000.parquet"
    directories = [
        "country=DE/day=2026-01-01",
        f"country={NULL}/day={NULL}",
        "country=a%2Fb%3Dc/day=2026-01-02",
    ]
    assert shown(tmp_path) == [f"{directory}/{name}" for directory in directories]
    rows = [pq.ParquetFile(tmp_path / each).read().to_pydict() for each in shown(tmp_path)]
    assert rows == [{"n": [1, 4, 1, 4]}, {"n": [2, 2]}, {"n": [3, 3]}]


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_null_the_empty_text_and_the_name_of_both_share_a_directory_and_lose_no_row(
    tmp_path: Path, format: str
) -> None:
    mixed = pa.table({"n": range(9), "k": [None, "", "a", NULL, "", None, "a", NULL, None]})
    sink = opened(tmp_path, format=format, by="k")
    sink.write_arrow(mixed, step(1))
    if (writer := sink.task_writer(step(2))) is not None:
        sink.adopt(step(2), [writer(mixed, 0, 1)])
    commit(sink, 1)
    (empty, _) = dict(split(mixed, ["k"])).values()
    assert empty["n"].to_pylist() == [0, 1, 3, 4, 5, 7, 8]
    (file,) = [tmp_path / name for name in shown(tmp_path) if NULL in name]
    times = 2 if format == "parquet" else 1
    found = (
        pq.read_metadata(file).num_rows
        if format == "parquet"
        else len(file.read_text().split()) - (format == "csv")
    )
    assert found == 7 * times


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_all_rows_are_split_in_their_order(rows: int) -> None:
    table = pa.table(
        {"a": [n % 7 for n in range(rows)], "b": [n % 3 == 0 for n in range(rows)], "n": range(rows)}
    )
    pieces = dict(split(table, ["a", "b"]))
    assert sum(piece.num_rows for piece in pieces.values()) == rows
    for directory, piece in pieces.items():
        assert (
            directory
            == f"a={piece['n'][0].as_py() % 7}/b={'true' if piece['n'][0].as_py() % 3 == 0 else 'false'}"
        )
        assert piece.column_names == ["n"]
        assert piece["n"].to_pylist() == sorted(piece["n"].to_pylist())


def test_many_partitions_need_few_open_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    many = pa.table({"n": range(600), "k": [f"k{n % 300}" for n in range(600)]})
    sink = opened(tmp_path, by="k")
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 40, hard))
    try:
        sink.write_arrow(many, step(1))
        writer = sink.task_writer(step(2))
        assert writer is not None
        sink.adopt(step(2), [writer(many, 0, 1), writer(many.slice(0, 0), 1, 2)])
        commit(sink, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(shown(tmp_path)) == 300
    assert sum(pq.read_metadata(tmp_path / name).num_rows for name in shown(tmp_path)) == 1200


def test_what_tasks_wrote_is_found_damaged_in_its_directory(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    writer = sink.task_writer(step(1))
    assert writer is not None
    sink.adopt(step(1), [writer(TABLE, 0, 7)])
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    again = opened(tmp_path, 2, 1, prepared)
    assert len(shown(tmp_path)) == 3
    with pytest.raises(MismatchError, match=r"older than the output: .*country=.*e000000002"):
        again.write_arrow(TABLE, step(3))
        commit(again, 2)
        (tmp_path / ".holdfast/out/ledger.json").unlink()
        opened(tmp_path, 3, 1, prepared)


def test_outside_of_regions_steps_show_in_their_directories(tmp_path: Path) -> None:
    sink = opened_sink(FileSink(str(tmp_path), "json", partition_by="country"), region=None)
    sink.write_arrow(TABLE, step(1))
    assert [name.partition("/")[0] for name in shown(tmp_path)] == [
        "country=DE",
        f"country={NULL}",
        "country=a%2Fb%3Dc",
    ]


def test_partition_files_bounds_each_directory(tmp_path: Path) -> None:
    sink = opened_sink(FileSink(str(tmp_path), "csv", partition_by="country", partition_files=1))
    sink.write_arrow(TABLE, step(1))
    commit(sink, 1)
    assert len(shown(tmp_path)) == 3


@pytest.mark.parametrize(
    ("by", "what"),
    [
        ("year", "cannot be partitioned by 'year': its columns are n, country, day"),
        (["n", "country", "day"], "all columns .* are partition columns"),
        ("at", "partitions are texts, whole numbers, booleans or dates"),
    ],
)
def test_columns_that_name_no_directories_are_refused(tmp_path: Path, by: Any, what: str) -> None:
    schema = TABLE.schema if by != "at" else TABLE.schema.append(pa.field("at", pa.timestamp("us")))
    with pytest.raises(ConfigError, match=what) as found:
        FileSink(str(tmp_path), "parquet", partition_by=by).check_columns(schema)
    assert found.value.cure


@pytest.mark.parametrize("by", [["a", "a"], ".a", ""])
def test_columns_that_cannot_name_directories_are_refused(tmp_path: Path, by: Any) -> None:
    with pytest.raises(ConfigError):
        FileSink(str(tmp_path), partition_by=by)


# --- as Spark does ---


@pytest.mark.spark
def test_names_are_escaped_as_spark_escapes_them(spark: Any) -> None:
    utils = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils
    for char in [*map(chr, range(1, 0x250)), "€", "語"]:
        assert escape(f"x{char}y") == utils.escapePathName(f"x{char}y"), hex(ord(char))


ODD = [
    "plain",
    "with space",
    "a/b",
    "x=1",
    "100%",
    "q?*'\"",
    "[{^}]",
    "ü語",
    "tab\there",
    "dot.",
    "",
    None,
    "%41",
    "a:b#c\\d",
]


@pytest.mark.sampled(per=["engine"])
@pytest.mark.spark
@pytest.mark.parametrize(
    ("engine", "format"),
    [(engine, format) for engine in ("spark", "local") for format in ("parquet", "csv", "json")]
    + [("tasks", "parquet")],
)
def test_spark_reads_back_what_each_engine_wrote(
    spark: Any, tmp_path: Path, format: Any, engine: str
) -> None:
    table = pa.table(
        {
            "n": pa.array(range(len(ODD)), pa.int64()),
            "word": ODD,
            "day": pa.array([dt.date(2026, 1, 1 + n % 2) for n in range(len(ODD))]),
            "flag": [n % 3 == 0 if n % 4 else None for n in range(len(ODD))],
            "k": pa.array([n % 2 for n in range(len(ODD))], pa.int32()),
        }
    )
    sink = opened(tmp_path, format=format, by=["word", "day", "flag", "k"])
    if engine == "spark":
        sink.write_spark(spark.createDataFrame(table), step(1))
    elif engine == "local":
        sink.write_arrow(table, step(1))
    else:
        writer = sink.task_writer(step(1))
        assert writer is not None
        sink.adopt(step(1), [writer(table.slice(0, 5), 0, 1), writer(table.slice(5), 1, 2)])
    commit(sink, 1)
    schema = "n long, word string, day date, flag boolean, k int"
    found = spark.read.schema(schema).option("header", "true").format(format).load(str(tmp_path)).collect()
    wanted = [tuple(row.values()) for row in table.to_pylist()]
    wanted = [(n, word or None, *rest) for n, word, *rest in wanted]
    assert sorted(map(tuple, found)) == sorted(wanted)
    if format == "parquet":
        columns = dict(spark.read.parquet(str(tmp_path)).dtypes)
        assert columns == {
            "n": "bigint",
            "word": "string",
            "day": "date",
            "flag": "string",
            "k": "int",
        }  # as Spark infers them
    theirs = tmp_path.parent / f"{tmp_path.name}-spark"
    spark.createDataFrame(table).write.partitionBy("word", "day", "flag", "k").parquet(str(theirs))
    assert directories(tmp_path) == directories(theirs)


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "json"])
def test_the_name_of_null_is_written_beside_null_by_spark_too(
    spark: Any, tmp_path: Path, format: str
) -> None:
    rows = [(n, [None, "", "a", NULL][n % 4], n) for n in range(12)]
    frame = spark.createDataFrame(rows, "n long, `k.x` string, m long").coalesce(1)
    sink = opened(tmp_path, format=format, by=["k.x", "m"])
    sink.write_spark(frame, step(1))
    commit(sink, 1)
    found = spark.read.format(format).load(str(tmp_path)).select("n", "`k.x`").collect()
    assert sorted(map(tuple, found)) == [(n, "a" if text == "a" else None) for n, text, _ in rows]


def directories(out: Path) -> set[str]:
    found = {str(path.parent.relative_to(out)) for path in out.rglob("part-*")}
    return {name for name in found if not name.startswith(".")}
