"""`Files`, `Beacon` and `Rows` read by Spark: all ways of reading give the same rows."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import InputError
from holdfast.language.connectors import Source, Stamp
from holdfast.sources import Beacon, Files, Rows
from holdfast.sources.file_spark import file_uri
from holdfast.testing.source_conformance import as_tuples, compare_with_spark, read_all

pytestmark = pytest.mark.spark

CSV_SCHEMA = "id int, name string, price decimal(10,2), at timestamp, day date, ok boolean, x double"
CSV = (
    "id,name,price,at,day,ok,x\n"
    "1,plain,1.50,2020-02-29 12:34:56.789,2020-02-29,true,1e3\n"
    '2,"with, comma",2.345,2020-01-01T00:00:00Z,2020-01-01,FALSE,-0.0\n'
    "\n"
    '3,"",,,,,\r\n'
    "4,  spaces  ,-7,2020-06-01T10:00:00+02:00,1999-12-31,False,NaN\n"
    "5,ünïcødé €,99999999.99,2020-01-01,2020-01-01,true,0.1\r"
    '6,"back\\"slash",0,2020-01-01 00:00:00,2020-01-01,true,7'
)
JSON_SCHEMA = "id long, name string, price decimal(10,2), at timestamp, tags array<string>, s struct<a:int>"
JSON = (
    '{"id": 1, "name": "a", "price": 1.5, "at": "2020-01-01T00:00:00Z", "tags": ["x", null], "s": {"a": 1}}\n'
    "\n   \n"
    '{"id": 2, "name": null, "extra": 5}\n'
    '{"id": 3, "name": 17, "price": "2.25", "at": "2020-01-01 01:02:03.5", "tags": [], "s": {}}\r\n'
    '{"name": "q\\"uote", "s": null}'
)


def opened(source: Source, state: Any = None) -> Source:
    source.bound()
    source.seek(state)
    return source


def spark_rows(spark: Any, source: Source, stamp: Stamp | None = None) -> list[tuple[Any, ...]]:
    tables = [source.read_spark(spark, piece, stamp).toArrow() for piece in read_all(source)]
    return sorted((row for table in tables for row in as_tuples(table)), key=repr)


@pytest.mark.parametrize(("kind", "schema", "text"), [("csv", CSV_SCHEMA, CSV), ("json", JSON_SCHEMA, JSON)])
@pytest.mark.parametrize("packed", [False, True])
def test_torn_stamped_and_native_reads_equal_plain_spark(
    spark: Any, tmp_path: Path, kind: Any, schema: str, text: str, packed: bool
) -> None:
    path = tmp_path / f"a [1] b%20é.{kind}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    plain = spark.read.format(kind).schema(schema).option("header", "true").load(str(tmp_path)).toArrow()
    wanted = sorted(map(repr, as_tuples(plain)))
    assert len(wanted) == (6 if kind == "csv" else 4)
    native = Files(str(tmp_path), kind, schema)
    assert [*map(repr, spark_rows(spark, opened(native)))] == wanted
    torn = Files(str(tmp_path), kind, schema, max_rows_per_step=4)
    assert [*map(repr, spark_rows(spark, opened(torn)))] == wanted
    stamped = spark_rows(spark, opened(Files(str(tmp_path), kind, schema)), Stamp(3))
    assert sorted(repr(row[:-3]) for row in stamped) == wanted
    assert sorted(row[-3:] for row in stamped) == [(3, 0, n) for n in range(len(wanted))]


def test_json_by_arrow_equals_json_by_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(JSON.replace('"2.25"', "2.25"))
    assert compare_with_spark(spark, opened(Files(str(tmp_path), "json", JSON_SCHEMA))) == 4


def test_csv_by_arrow_equals_csv_by_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV.replace("NaN", "2.5"))
    assert compare_with_spark(spark, opened(Files(str(tmp_path), "csv", CSV_SCHEMA))) == 6


def test_text_keeps_blank_lines_and_all_bytes(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n\n b \r\nc\rd\n\xc3\xa9")
    wanted = sorted(as_tuples(spark.read.text(str(tmp_path)).toArrow()), key=repr)
    for settings in ({}, {"max_rows_per_step": 4}):
        assert spark_rows(spark, opened(Files(str(tmp_path), "text", **settings))) == wanted


def test_parquet_rows_get_positions_without_python(spark: Any, tmp_path: Path) -> None:
    for name in ("a b%20é.parquet", "b+&'().parquet", "c[1]{2}.parquet"):
        pq.write_table(pa.table({"n": list(range(10))}), tmp_path / name, row_group_size=3)
    source = opened(Files(str(tmp_path), "parquet", max_rows_per_step=17))
    rows = []
    for piece in read_all(source):
        frame = source.read_spark(spark, piece, Stamp(0))
        assert "Python" not in frame._jdf.queryExecution().toString()
        assert "MapInArrow" not in frame._jdf.queryExecution().toString()
        rows += as_tuples(frame.toArrow())
    assert sorted(row[1:] for row in rows) == [(0, f, n) for f in range(3) for n in range(10)]
    assert all(row[0] == row[3] for row in rows)
    assert spark_rows(spark, opened(Files(str(tmp_path), "parquet"))) == sorted(
        ((n,) for n in [*range(10)] * 3), key=repr
    )


def test_file_uris_are_quoted_like_javas() -> None:
    assert file_uri("/a b/%é[x]#?.p") == "file:/a%20b/%25é%5Bx%5D%23%3F.p"


def test_parquet_written_by_spark_is_inferred_with_instants(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("id", "timestamp_micros(id) as at", "cast(id as decimal(5,1)) as d")
    frame.write.parquet(str(tmp_path / "p"))
    source = Files(str(tmp_path / "p"), "parquet")
    assert source.schema().types == [pa.int64(), pa.timestamp("us", tz="UTC"), pa.decimal128(5, 1)]
    assert compare_with_spark(spark, opened(source)) == 3


BAD = "a,b,c\n1,x,1\n\n2,y,2\n3,z\n4,v,no\n5,w,5,6\n6,u,6\n"


@pytest.mark.parametrize("settings", [{}, {"max_rows_per_step": 5}])
@pytest.mark.parametrize(
    "act", [lambda df: df.toArrow(), lambda df: df.count(), lambda df: df.select("b").collect()]
)
def test_malformed_row_fails_with_file_and_line_whatever_columns_are_used(
    spark: Any, tmp_path: Path, settings: dict[str, int], act: Any
) -> None:
    (tmp_path / "fine.csv").write_text("a,b,c\n1,x,1\n")
    (tmp_path / "wrong.csv").write_text("a,b,c\n1,x,1\n\n2,y,2\n4,v,no\n6,u,6\n")
    source = opened(Files(str(tmp_path), "csv", "a int, b string, c int", **settings))  # type: ignore[arg-type]
    piece = source.next_slice()
    assert piece is not None
    with pytest.raises(Exception) as failure:
        act(source.read_spark(spark, piece, None))
    better = source.explain_failure(piece, failure.value)
    assert isinstance(better, InputError)
    assert f"{tmp_path}/wrong.csv, line 5:" in str(better)
    assert "'4,v,no'" in str(better)
    assert better.__cause__ is failure.value


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_dropped_and_nulled_rows_are_the_same_in_all_ways_of_reading(
    spark: Any, tmp_path: Path, kind: Any
) -> None:
    text = BAD if kind == "csv" else '{"a":1,"b":"x"}\n{bad\n{"a":"no","b":"y"}\n\n[1]\n{"a":4}\n'
    (tmp_path / f"a.{kind}").write_text(text)
    schema = "a int, b string, c int" if kind == "csv" else "a int, b string"
    counts = {"drop": 3, "null": 6} if kind == "csv" else {"drop": 2, "null": 5}
    for choice, count in counts.items():
        results = []
        for settings, stamp in (({}, None), ({}, Stamp(0)), ({"max_rows_per_step": 4}, None)):
            source = opened(Files(str(tmp_path), kind, schema, malformed=choice, **settings))  # type: ignore[arg-type]
            rows = spark_rows(spark, source, stamp)
            results.append([row[:-3] if stamp else row for row in rows])
        source = opened(Files(str(tmp_path), kind, schema, malformed=choice))  # type: ignore[arg-type]
        arrow = [row for p in read_all(source) for row in as_tuples(source.read_arrow(p, None))]
        results.append(sorted(arrow, key=repr))
        assert results[0] == results[1] == results[2] == results[3]
        assert len(results[0]) == count
        dropped = opened(Files(str(tmp_path), kind, schema, malformed=choice))  # type: ignore[arg-type]
        assert sum(dropped.read_spark(spark, p, None).select("b").count() for p in read_all(dropped)) == count


def test_other_failures_are_left_alone_and_changed_files_are_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    source = opened(Files(str(tmp_path), "csv", "a int"))
    piece = source.next_slice()
    assert piece is not None
    source.read_spark(spark, piece, None)
    error = ValueError("something else")
    assert source.explain_failure(piece, error) is error
    (tmp_path / "a.csv").unlink()
    better = source.explain_failure(piece, error)
    assert isinstance(better, InputError)
    assert "a.csv vanished" in str(better)


def test_large_torn_file_is_read_by_all_cores(spark: Any, tmp_path: Path) -> None:
    count = 600_000
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{n},value {n}\n" for n in range(count)))
    source = opened(Files(str(tmp_path), "csv", "a long, b string", max_rows_per_step=count - 1))
    piece = source.next_slice()
    assert piece is not None
    frame = source.read_spark(spark, piece, Stamp(0))
    assert frame.rdd.getNumPartitions() == 2
    checked = frame.selectExpr("count(*)", "sum(a)", "sum(case when a = __hf_row then 0 else 1 end)").first()
    assert tuple(checked) == (count - 1, (count - 2) * (count - 1) // 2, 0)


def test_beacon_and_rows_by_spark_equal_arrow(spark: Any) -> None:
    assert compare_with_spark(spark, opened(Beacon(rows=25, rows_per_step=10, rate=1e6))) == 25
    rows = [(1, "a", [1, 2]), (2, None, [])]
    assert compare_with_spark(spark, opened(Rows(rows, "n long, s string, l array<int>"))) == 2
