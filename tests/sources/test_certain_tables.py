"""What tasks read of csv and JSON files by Arrow is what Spark's reader makes of them, or nothing at all."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_certain_text import COLUMNS, NUMBERS, SCHEMA, TEXTS, TIMES, csv_line, json_line

from holdfast.language.connectors import Declined, Stamp, TaskReader
from holdfast.language.schema import to_arrow
from holdfast.language.tables import parts_of, tables_of
from holdfast.sources import Files
from holdfast.sources.text import certain_reader
from holdfast.sources.text.certain_tables import table_of


def accepted(lines: list[str], kind: str, schema: pa.Schema = COLUMNS) -> bool:
    try:
        table_of("\n".join(lines).encode(), kind, schema)
    except Declined:
        return False
    return True


def certain_csv(draw: random.Random) -> str:
    """A line most of whose fields fit, for there are many in which one does not."""
    fields = csv_line(draw).split(",")
    usual = (
        "1",
        "-20",
        "3000000000",
        "-1.25",
        "7.5",
        "a b",
        "true",
        "2026-01-31T12:00:00.5Z",
        "2026-01-31T12:00:00",
        "2026-01-31",
    )
    keep = draw.randrange(len(usual))
    odd = draw.choice((*NUMBERS, *TEXTS))
    return ",".join(
        (odd if draw.random() < 0.3 else field) if at == keep else usual[at] for at, field in enumerate(fields[: len(usual)])
    )  # fmt: skip


def certain_json(draw: random.Random) -> str:
    """A line with a few fields, most of which fit."""
    texts = [json.dumps(text, ensure_ascii=draw.random() < 0.2) for text in (*TEXTS, *TIMES)]
    fields = []
    for name in draw.sample(COLUMNS.names, 3):
        kind = COLUMNS.field(name).type
        usual = {
            "ok": "true",
            "s": draw.choice(texts),
            "at": '"2026-01-31T12:00:00.25Z"',
            "t": '"2026-01-31T12:00:00"',
            "day": '"2026-01-31"',
            "d": "null",
        }
        odd = draw.choice((*NUMBERS, *texts, "null", "false", "[]", "{}", "-0", "1.5E3"))
        number = (
            draw.choice(("1", "-7", "0.25", "1e-3", "-0.5"))
            if pa.types.is_floating(kind)
            else str(draw.randrange(-128, 128))
        )
        fields.append(f'"{name}"{draw.choice((":", " : "))}{odd if draw.random() < 0.2 else usual.get(name, number)}')  # fmt: skip
    return "{" + ",".join(fields) + "}"


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_accepted_lines_are_what_spark_reads(spark: Any, tmp_path: Path, kind: str, zone: str) -> None:
    draw = random.Random(os.environ["HOLDFAST_SAMPLE"] + kind)
    makes = (json_line, certain_json) if kind == "json" else (csv_line, certain_csv)
    lines = [draw.choice(makes)(draw) for _ in range(3_000)]
    fine = [line for line in lines if line.strip() and accepted([line], kind)]
    assert 100 < len(fine) < len(lines)
    text = "\n".join(fine)
    (tmp_path / "a").write_text(text, "utf-8")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        reader = spark.read.format(kind).schema(SCHEMA).option("mode", "FAILFAST").option("header", "false")
        read = reader.load(str(tmp_path / "a")).coalesce(1).toArrow().cast(COLUMNS)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = table_of(text.encode(), kind, COLUMNS)
    assert found.schema == COLUMNS
    for name in COLUMNS.names:
        pairs = zip(fine, found[name].to_pylist(), read[name].to_pylist(), strict=True)
        assert [(line, a, b) for line, a, b in pairs if repr(a) != repr(b)] == [], name


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("csv", " 1,a\n"), ("csv", "1 ,a\n"), ("csv", "1, a\n"), ("csv", "1,a\t\n"), ("csv", "0x1F,a\n"), ("csv", '1,"a"\n'), ("csv", "1,\\a\n"), ("csv", "1,a\r\n"),
        ("csv", "1,a\n\n2,b\n"), ("csv", "\n1,a\n"), ("csv", "\ufeff1,a\n"), ("csv", "1\n"), ("csv", "1,a,b\n"), ("csv", "1.0,a\n"), ("csv", "1," + "x" * 20_000 + "\n"),
        ("json", '{"n":1,"n":2}\n'), ("json", '{"n":1\n}\n'), ("json", '{"n":1}{"n":2}\n'), ("json", '{"n":1}\n{"n":2}{"n":3}\n\n'), ("json", '{"n":1} \n'), ("json", ' {"n":1}\n'),
        ("json", '{"n":"1"}\n'), ("json", '{"n":1.0}\n'), ("json", '{"s":1}\n'), ("json", '{"s":"\\u00e9"}\n'), ("json", '{"s":{"a":1}}\n'), ("json", '{"n":-0}\n'), ("json", "null\n"),
    ],
)  # fmt: skip
def test_a_block_in_doubt_is_declined(kind: str, block: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    usual = "1,a b\n2,\n" if kind == "csv" else '{"n":1,"s":"a b","z":0.5}\n{"s":null}\n'
    assert table_of(usual.encode(), kind, schema).num_rows == 2
    with pytest.raises(Declined):
        table_of((usual + block).encode(), kind, schema)
    with pytest.raises(Declined):
        table_of((block + usual).encode(), kind, schema)


def test_numbers_that_are_none_and_bytes_that_are_no_text_are_declined() -> None:
    schema = pa.schema([("x", pa.float64()), ("s", pa.string())])
    for block in (b"nan,a\n", b"inf,a\n", b"1e400,a\n", b"1.5,\xff\n"):
        with pytest.raises(Declined):
            table_of(b"1.5,a\n" + block, "csv", schema)


# --- files ---


def reader_of(source: Files, stamp: Stamp | None = None) -> TaskReader | None:
    source.bound()
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    return source.task_reader(piece, stamp)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [f"{n},{'x' * (n % 40)}" for n in range(5_000)]
    (tmp_path / "a.csv").write_text("n,s\n" + "\n".join(rows[:3000]) + "\n")
    (tmp_path / "b.csv").write_text(
        "s,n\n" + "\n".join(",".join(reversed(row.split(","))) for row in rows[3000:])
    )
    (tmp_path / "c.csv").write_text("n,s\n")
    return tmp_path


@pytest.mark.parametrize("size", [1, 7, 100, 5_000, 1 << 20])
def test_pieces_of_files_have_each_row_once(files: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certain_reader, "STRETCH_BYTES", max(100, size))
    monkeypatch.setattr(certain_reader, "BLOCK_BYTES", size)
    reader = reader_of(Files(files, "csv", "n long, s string"))
    assert reader is not None
    parts = parts_of(reader)
    assert len(parts) > 100 or size > 100
    tables = [table for part in parts for table in tables_of(part, ["n", "s"])]
    found = pa.concat_tables(tables).to_pydict()
    assert found == {"n": list(range(5000)), "s": ["x" * (n % 40) or None for n in range(5000)]}
    assert reader(["s", "n"]).to_pydict() == found


def test_rows_have_their_positions(files: Path) -> None:
    reader = reader_of(Files(files, "csv", "n long, s string"), Stamp(3))
    assert reader is not None
    assert len(parts_of(reader)) == 3
    found = pa.concat_tables(
        [part(["n", "__hf_source", "__hf_ordinal", "__hf_row"]) for part in parts_of(reader)]
    )
    rows = [(n, 3, int(n >= 3000), n if n < 3000 else n - 3000) for n in range(5000)]
    assert [tuple(row.values()) for row in found.to_pylist()] == rows


def test_what_arrow_does_not_know_is_not_read_by_tasks(files: Path, tmp_path: Path) -> None:
    assert reader_of(Files(files, "csv", "n long, s float")) is None
    assert reader_of(Files(files, "csv", "n long, s string", options={"sep": ","})) is None
    source = Files(files, "csv", "n long, s string")
    assert reader_of(source) is not None
    source.decline_tasks("a test")
    assert reader_of(source) is None


def test_who_declined_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": "1"}\n')
    source = Files(tmp_path, "json", to_arrow("n long", "the test"))
    reader = reader_of(source)
    assert reader is not None
    with pytest.raises(Declined) as declined:
        reader(["n"])
    assert declined.value.by == source.describe()
