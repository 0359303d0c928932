"""Odd texts are the same value, or malformed, in both engines, alone and among others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.language.connectors import Stamp
from holdfast.sources import Files
from holdfast.testing.source_conformance import as_tuples, read_all

NUMBERS = (
    " 1|1 |+1|0x1F|1_000|1e3|1.0|--1|01|-0|1L|1.|.5|1.5|NaN|nan|inf|Infinity|-Inf|1d|9223372036854775808|"
    "99999999999|1.234|12345678.9|1e-3|null|\\N|١"
)
TIMES = (
    "2020-01-01|2020-1-1|20200101|2020-01-01T00:00:00Z|2020-01-01 10:00|2020-02-30|2020-W01-1|2020|2020-01|"
    "2020-01-01T10:00:00.5+02:00|1.5|noon"
)
BOOLEANS = "TRUE|True|true|yes|1|t| true|false"
TEXTS = (
    r'a\b|"a\b"|"a\"b"|"a""b"|C:\new|"C:\new"|\|"\\"|a"b|"ab"c|"a,b"|""|" a "| "a"|\N|"""a"""|x""y|"a"|été'
)
CASES = {
    **dict.fromkeys(("long", "int", "double", "float"), NUMBERS),
    "decimal(6,2)": NUMBERS.removesuffix("|١"),
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), TIMES),
    "boolean": BOOLEANS,
    "string": TEXTS,
}


def opened(place: Path, type_: str, texts: list[str]) -> Files:
    place.mkdir(exist_ok=True)
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    (place / "a.csv").write_text("n,v\n" + rows)
    source = Files(str(place), "csv", f"n long, v {type_}", malformed="drop")
    source.bound()
    source.seek(None)
    return source


def by_arrow(place: Path, type_: str, texts: list[str]) -> list[str]:
    source = opened(place, type_, texts)
    (piece,) = read_all(source)
    found = dict(as_tuples(source.read_arrow(piece, None)))
    return [repr(found.get(number, "malformed")) for number in range(len(texts))]


@pytest.mark.parametrize("type_", CASES)
def test_value_does_not_depend_on_its_neighbours(tmp_path: Path, type_: str) -> None:
    texts = CASES[type_].split("|")
    together = by_arrow(tmp_path / "all", type_, texts)
    assert [by_arrow(tmp_path / str(n), type_, [text])[0] for n, text in enumerate(texts)] == together
    random.Random(5).shuffle(texts)
    assert sorted(
        by_arrow(tmp_path / "all", type_, texts[:9]) + by_arrow(tmp_path / "all", type_, texts[9:])
    ) == sorted(together)


NO_STRINGS = [
    "1.50", "100.0", "1e3", "12345678.5", "1700000000.123", "-0", "-0.0", "12", "0.1234567890123456789", "true", "null",
    '{"b": 1.50,  "a":[1.0]}', "[1.10, 2]", "[]", '"1.50"', '"\\"text\\":1.50"', '"\\ud83d"', "1e400",
]  # fmt: skip
JSON_SCHEMA = "n long, text string, real double, of struct<text: string, real: double>, by map<string, string>, all array<string>"


def json_file(place: Path) -> Files:
    place.mkdir(exist_ok=True)
    lines = []
    for n, value in enumerate(NO_STRINGS):
        lines.append(f'{{"n": {n}, "text": {value}, "real": 1.50, "other": {{"text": 2.50}}}}')
        lines.append(f'{{"n": {n}, "of": {{"real": 1.50, "text": {value}}}, "all": ["x", null, {value}]}}')
        lines.append(f'{{"n": {n}, "by": {{"text": "y", "real": {value}}}, "text" : {value} }}')
    (place / "a.json").write_text("\n".join(lines) + "\n")
    source = Files(str(place), "json", JSON_SCHEMA)
    source.bound()
    source.seek(None)
    return source


def expected(value: str) -> str | None:
    """As it stands in the file."""
    found = json.loads(value)
    text = found if isinstance(found, str) else value
    return None if found is None else text.encode(errors="replace").decode()


def in_json(rows: Any) -> list[Any]:
    return [
        row["by"][1][1] if row["by"] else row["all"][2] if row["all"] else row["text"]
        for row in rows.to_pylist()
    ]


def test_json_values_that_are_no_strings_are_their_own_characters(tmp_path: Path) -> None:
    source = json_file(tmp_path)
    (piece,) = read_all(source)
    rows = source.read_arrow(piece, None)
    assert in_json(rows) == [expected(value) for value in NO_STRINGS for _ in range(3)]
    assert [row["of"]["text"] for row in rows.to_pylist() if row["of"]] == [expected(v) for v in NO_STRINGS]
    assert {row["of"]["real"] for row in rows.to_pylist() if row["of"]} == {1.5}


@pytest.mark.spark
@pytest.mark.parametrize("stamp", [None, Stamp(0)], ids=["as Spark reads files", "with positions"])
def test_json_values_that_are_no_strings_on_spark(spark: Any, tmp_path: Path, stamp: Stamp | None) -> None:
    source = json_file(tmp_path)
    (piece,) = read_all(source)
    rows = source.read_spark(spark, piece, stamp).toArrow()
    assert rows.select(["n", "text", "real", "of", "by", "all"]).equals(source.read_arrow(piece, None))


@pytest.mark.spark
def test_both_engines_read_the_same_values(spark: Any, tmp_path: Path) -> None:
    for type_, texts in CASES.items():
        ours = by_arrow(tmp_path, type_, texts.split("|"))
        source = opened(tmp_path, type_, texts.split("|"))
        (piece,) = read_all(source)
        found = dict(as_tuples(source.read_spark(spark, piece, None).toArrow()))
        theirs = [repr(found.get(number, "malformed")) for number in range(len(ours))]
        told = list(zip(texts.split("|"), ours, theirs, strict=True))
        assert [each for each in told if each[1] != each[2]] == [], type_
