"""Odd texts are the same value, or malformed, in both engines, alone and among others."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

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
