"""Lines that Spark's readers take although they are no row of the file: open quotes in csv, arrays in JSON, and what stands behind an
object. One rule in every way of reading: the line is malformed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.language.connectors import Declined, Slice, Stamp
from holdfast.sources import Files
from holdfast.sources.text.odd_lines import may_have, odd
from holdfast.sources.text.values import ends_open
from holdfast.testing.source_conformance import as_tuples

CSV = 'a,b\nx,1\n"y, z",2\nu,"open\nv,"half" open\n"w\\",3\nlast,4\n'
JSON = '{"a":"x","b":"1"}\n[{"a":"p","b":"2"},{"a":"q","b":"3"}]\n  [{"a":"r"}]\n{"a":"last","b":"[4]"}\n'
SCHEMA = "a string, b string"
QUOTE = "a quoted field does not end on its line"
TWO = """{"a":"x","b":"1"}
{"a":"p","b":"2"}{"a":"q","b":"3"}
{"a":"lost","b":{"n":1}},
{"a":"y}{","b":{"n":"{'"}}
{'a':'p'} {'a':'q'}
{"a":"last","b":"}{"}
"""
ARRAY = "it is a JSON array, and a line holds one object"
KINDS: dict[str, Any] = {
    "csv": (CSV, [("x", "1"), ("y, z", "2"), ("v", '"half" open'), ("last", "4")], [(4, QUOTE), (6, QUOTE)]),
    "json2": (
        TWO,
        [("x", "1"), ("y}{", '{"n":"{\'"}'), ("last", "}{")],
        [
            (2, "it is no JSON: Extra data: line 1 column 18 (char 17)"),
            (3, "it is no JSON: Extra data: line 1 column 25 (char 24)"),
            (
                5,
                "it is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            ),
        ],
    ),
    "json": (JSON, [("x", "1"), ("last", "[4]")], [(2, ARRAY), (3, ARRAY)]),
}
WAYS: list[tuple[dict[str, Any], Stamp | None]] = [
    ({}, None),
    ({}, Stamp(0)),
    ({"max_rows_per_step": 2}, None),
]


def written(place: Path, kind: str) -> Path:
    path = place / f"odd.{kind}"
    path.write_text(KINDS[kind][0])
    return path


def opened(place: Path, kind: Any, malformed: Any, **more: Any) -> Files:
    source = Files(str(place), kind.rstrip("2"), SCHEMA, malformed=malformed, **more)
    source.bound()
    source.seek(None)
    return source


def slices(source: Files) -> Iterator[Slice]:
    while (piece := source.next_slice()) is not None:
        yield piece
        source.processed(piece)


def bare(table: pa.Table) -> list[tuple[Any, ...]]:
    return as_tuples(table.select(["a", "b"]))


@pytest.mark.parametrize(("settings", "stamp"), WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_malformed_without_spark(
    tmp_path: Path, kind: str, settings: dict[str, Any], stamp: Stamp | None
) -> None:
    path, (_, rows, bad) = written(tmp_path, kind), KINDS[kind]
    source = opened(tmp_path, kind, "stream", **settings)
    found, told = [], []
    for piece in slices(source):
        found += bare(source.read_arrow(piece, stamp))
        told += as_tuples(source.read_malformed_arrow(piece, None))
    assert found == rows
    assert [row[:3] for row in told] == [(str(path), *each) for each in bad]
    assert source.counts() == {"malformed": len(bad)}
    failing = opened(tmp_path, kind, "fail", **settings)
    with pytest.raises(InputError, match=f"line {bad[0][0]}: .*{re.escape(bad[0][1])}"):
        for piece in slices(failing):
            failing.read_arrow(piece, stamp)


@pytest.mark.parametrize("kind", KINDS)
def test_the_short_ways_leave_such_a_slice_to_others(tmp_path: Path, kind: str) -> None:
    written(tmp_path, kind)
    source = opened(tmp_path, kind, "fail")
    (piece,) = list(slices(source))
    assert source.read_small(piece, None) is None
    reader = source.task_reader(piece, None)
    assert reader is not None
    with pytest.raises(Declined):
        reader(["a", "b"])


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_malformed_to_spark(spark: Any, tmp_path: Path, kind: str) -> None:
    path, (_, rows, bad) = written(tmp_path, kind), KINDS[kind]
    for settings, stamp in WAYS:
        source = opened(tmp_path, kind, "stream", **settings)
        found, told = [], []
        for piece in slices(source):
            found += bare(source.read_spark(spark, piece, stamp).toArrow())
            told += as_tuples(source.read_malformed_spark(spark, piece, None).toArrow())
        assert found == rows
        assert [row[:3] for row in sorted(told)] == [(str(path), *each) for each in bad]
        assert source.counts() == {"malformed": len(bad)}
    failing = opened(tmp_path, kind, "fail")
    piece = failing.next_slice()
    assert piece is not None
    with pytest.raises(Exception) as failure:
        failing.read_spark(spark, piece, None).collect()
    assert f"line {bad[0][0]}: the row does not fit" in str(failing.explain_failure(piece, failure.value))
    nulls = [opened(tmp_path, kind, "null") for _ in WAYS]
    kept = [
        bare(source.read_spark(spark, next(iter(slices(source))), stamp).toArrow())
        for source, (_, stamp) in zip(nulls[:2], WAYS, strict=False)
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) == len(rows) + len(bad)


def test_files_without_quotes_are_left_to_spark_whatever_their_options(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;'b\n")
    assert not may_have(str(path), "csv", {"sep": ";"})
    assert not may_have(str(path), "csv", {"quote": ""})
    assert may_have(str(path), "csv", {"sep": ";", "quote": "'"})


LINE = st.text('a",\\ b', max_size=9)


@given(st.lists(LINE, min_size=1, max_size=4))
def test_the_quick_looks_miss_no_open_quote(lines: list[str]) -> None:
    is_open = [ends_open(line, {}) for line in lines]
    marks = odd(pa.array(lines), "csv", {})
    assert (is_open if any(is_open) else None) == (None if marks is None else marks.to_pylist())


@given(st.lists(LINE, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_a_file_with_an_open_quote_may_have_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "quotes.csv"
    path.write_text(end.join(lines), newline="")
    if any(ends_open(line, {}) for line in lines):
        assert may_have(str(path), "csv", {})


PARTS = st.lists(
    st.sampled_from(['{"a":', "}", "{}", '"}{"', '"\\\\"', "[", "]", ",", " ", "1", "'}'"]), max_size=8
).map("".join)


@given(st.lists(PARTS, min_size=1, max_size=4), st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_file_with_something_behind_an_object_may_have_it(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    marks = odd(pa.array(lines), "json", {})
    for line, is_odd in zip(lines, [False] * len(lines) if marks is None else marks.to_pylist(), strict=True):
        assert is_odd == goes_on(line) or not is_json(line)
    path = tmp_path_factory.getbasetemp() / "objects.json"
    path.write_text(end.join(lines), newline="")
    if marks is not None:
        assert may_have(str(path), "json", {})


def is_json(line: str) -> bool:
    try:
        json.JSONDecoder().raw_decode(line.lstrip())
    except ValueError:
        return False
    return line.lstrip().startswith(("{", "["))


def goes_on(line: str) -> bool:
    if not is_json(line) or line.lstrip().startswith("["):
        return True
    return bool(line.lstrip()[json.JSONDecoder().raw_decode(line.lstrip())[1] :].strip())


def test_a_comment_behind_an_object_is_no_second_row_where_comments_are_allowed() -> None:
    line = pa.array(['{"a":1} // one'])
    assert odd(line, "json", {"allowComments": "TRUE"}) is None
    assert odd(line, "json", {}) is not None
