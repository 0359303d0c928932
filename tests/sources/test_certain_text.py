"""What the driver reads of a few lines is what Spark's reader makes of them, or nothing at all: the first doubt sends them to Spark."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.language.connectors import Stamp
from holdfast.language.schema import to_arrow
from holdfast.sources import Files
from holdfast.sources.text.certain import rows_of

SCHEMA = "b byte, i int, n long, x double, d decimal(10,2), s string, ok boolean, at timestamp, t timestamp_ntz, day date"
COLUMNS = to_arrow(SCHEMA, "the test")
NUMBERS = ("0", "1", "-1", "127", "128", "-128", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
           "1.5", "-0.0", "0.1", "1e3", "1E400", "123456789012345.123456789012345", "12345678.99", "1.005", "007", "+5", "1_000", "0x1", "NaN", "Infinity", "1.", ".5", "-", "12 ")  # fmt: skip
TIMES = ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.1", "2026-01-31 12:00:00", "2026-02-30T00:00:00Z",
         "2026-01-31T12:00:00+02:00", "2026-01-31", "2026-1-3", "1582-10-10", "0001-01-01", "2026-01-31T24:00:00Z", "now", "10000-01-01", "2026-01-31T12:00Z")  # fmt: skip
TEXTS = ("a", "", " a", "a ", "ünï €", "a b", "null", "NULL", '"', "'", "\\", "a\tb", "#x", "\u00a0", "true", "TRUE", "yes", "1", "\ufeffa")  # fmt: skip


def values(draw: random.Random) -> str:
    return draw.choice((*NUMBERS, *TIMES, *TEXTS))


def csv_line(draw: random.Random) -> str:
    fitting = ("1", str(draw.randrange(-200, 200)), str(draw.randrange(-(10**12), 10**12)), "-1.25", "7.5", draw.choice(TEXTS), draw.choice(("true", "false")),
               draw.choice(TIMES), draw.choice(TIMES).removesuffix("Z"), "2026-01-31")  # fmt: skip
    fields = [values(draw) if draw.random() < 0.1 else draw.choice(("", each)) for each in fitting]
    return ",".join(fields if draw.random() < 0.95 else fields[:-1])


def json_line(draw: random.Random) -> str:
    odd = (
        "null",
        "[1]",
        '{"a":1}',
        "true",
        "1.0",
        "1e2",
        '"1"',
        '"\\u00e9"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\/"',
        "NaN",
        "-0",
        '"a\\nb"',
    )
    fields = []
    for name in COLUMNS.names:
        fitting = {"s": json.dumps(draw.choice(TEXTS)), "ok": draw.choice(("true", "false")), "at": json.dumps(draw.choice((*TIMES[:2], *TIMES))),
                   "t": json.dumps(draw.choice(TIMES).removesuffix("Z")), "day": json.dumps(draw.choice((*TIMES[:4], *TIMES))[:10])}  # fmt: skip
        usual = draw.choice(
            ("1", "-7", "120", "0.5" if name in "xd" else "3", "1.25" if name in "xd" else "0")
        )
        text = fitting.get(name) or (usual if draw.random() < 0.9 else draw.choice(NUMBERS))
        text = draw.choice(odd) if draw.random() < 0.08 else text
        if draw.random() < 0.8:
            fields.append(f'"{name}"{draw.choice((":", " : "))}{text}')
    fields += [f'"extra":{draw.choice(odd)}'] * (draw.random() < 0.1) + ['"n":1'] * (draw.random() < 0.05)
    line = "{" + ",".join(fields) + "}"
    return (
        line
        if draw.random() < 0.97
        else draw.choice((line + "x", line[:-1], f"[{line}]", f" {line} ", "1", '"a"'))
    )


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_accepted_lines_are_what_spark_reads(spark: Any, tmp_path: Path, kind: str, zone: str) -> None:
    draw = random.Random(os.environ["HOLDFAST_SAMPLE"] + kind)
    make = json_line if kind == "json" else csv_line
    # Alone each: of one that is declined nothing is learnt about the others.
    lines = [make(draw) for _ in range(4_000)]
    accepted = [line for line in lines if line.strip() and rows_of([line], kind, COLUMNS) is not None]
    assert 100 < len(accepted) < len(lines)
    (tmp_path / "a").write_text("\n".join(accepted), "utf-8")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        reader = spark.read.format(kind).schema(SCHEMA).option("mode", "FAILFAST").option("header", "false")
        read = reader.load(str(tmp_path / "a")).coalesce(1).toArrow().cast(COLUMNS)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = rows_of(accepted, kind, COLUMNS)
    assert found is not None
    for name in COLUMNS.names:
        wanted = read[name].to_pylist()
        wrong = [
            (line, a, b)
            for line, a, b in zip(accepted, found[name].to_pylist(), wanted, strict=True)
            if repr(a) != repr(b)
        ]
        assert not wrong, f"{name}: {wrong[:3]}"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("json", '{"n":1,"n":2}'), ("json", '{"n":1.0}'), ("json", '{"n":"1"}'), ("json", '{"n":9223372036854775808}'), ("json", "{"),
        ("json", "[]"), ("json", '{"x":NaN}'), ("json", '{"s":1}'), ("json", '{"s":"\\ud800"}'), ("json", '{"at":"2026-01-31 12:00:00"}'),
        ("json", '{"d":1.005}'), ("json", '{"d":123456789}'), ("json", ""), ("json", '{"n":' + "1" * 50 + "}"),
        ("csv", '1,1,1,1,1,"a",true,,,'), ("csv", "1,1"), ("csv", "1,1,1,1,1,a,TRUE,,,"), ("csv", "1,1,1,1,1,\\,true,,,"), ("csv", "+1,1,1,1,1,a,true,,,"),
    ],
)  # fmt: skip
def test_doubtful_lines_are_left_to_spark(kind: str, line: str) -> None:
    fine = '{"n":1}' if kind == "json" else "1,1,1,1,1,a,true,2026-01-31T12:00:00Z,,"
    assert rows_of([fine], kind, COLUMNS) is not None
    assert rows_of([fine, line], kind, COLUMNS) is None
    assert rows_of([fine, None], kind, COLUMNS) is None


def test_columns_that_need_sparks_reader_are_left_to_it() -> None:
    for schema in (
        "n long, f float",
        "n long, a array<int>",
        "n long, _corrupt_record string",
        "n long, z binary",
    ):
        assert rows_of(['{"n":1}'], "json", to_arrow(schema, "the test")) is None


def small(source: Files, stamp: Stamp | None = None) -> pa.Table | None:
    source.bound()
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    return source.read_small(piece, stamp)


def test_small_files_have_positions_and_names_decide_in_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v,k\n1,x\n2,y\n")
    (tmp_path / "b.csv").write_text("k,v\nz,3\n")
    table = small(Files(tmp_path, "csv", "k string, v long"), Stamp(4))
    assert table is not None
    assert table.to_pydict() == {
        "k": ["x", "y", "z"], "v": [1, 2, 3], "__hf_source": [4, 4, 4], "__hf_ordinal": [0, 0, 1], "__hf_row": [0, 1, 0],
    }  # fmt: skip


def test_large_or_optioned_or_compressed_files_are_not_small(tmp_path: Path) -> None:
    rows = "".join(f'{{"n":{n}}}\n' for n in range(100))
    for name, options, text in (
        ("plain", {}, rows),
        ("options", {"options": {"allowComments": "true"}}, rows),
        ("large", {}, rows * 1000),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text(text)
        found = small(Files(tmp_path / name, "json", "n long", **options))
        assert (found is None) == (name != "plain"), name
    (tmp_path / "many").mkdir()
    pq.write_table(pa.table({"n": [7] * 1_000_000}), tmp_path / "many" / "a.parquet")
    assert (tmp_path / "many" / "a.parquet").stat().st_size < 1 << 16
    assert small(Files(tmp_path / "many", "parquet")) is None
