"""The header of each csv file is compared with the schema by name: nothing is swapped, and no first row is lost."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import InputError
from holdfast.language.connectors import Stamp
from holdfast.sources import Files
from holdfast.testing.source_conformance import compare_with_spark, read_all, rows_of

SCHEMA = "id long, name string, city string"


def opened(directory: Path, schema: Any = SCHEMA, **settings: Any) -> Files:
    source = Files(str(directory), "csv", schema, **settings)
    source.bound()
    source.seek(None)
    return source


def write_three_orders(directory: Path) -> None:
    (directory / "a.csv").write_text("id,name,city\n1,ada,york\n")
    (directory / "b.csv").write_text("city,id,name\nkent,2,bob\nbath,3,eve\n")
    (directory / "c.csv").write_text('# made by hand\n\n"City",NAME, Id \nbonn,max,4\n')
    (directory / "d.csv").write_text("id,name,city\n5,kim,rome\n")
    (directory / "e.csv").write_text("")
    (directory / "f.csv").write_text("city,id,name")


ROWS = [(1, "ada", "york"), (2, "bob", "kent"), (3, "eve", "bath"), (4, "max", "bonn"), (5, "kim", "rome")]


@pytest.mark.parametrize("settings", [{}, {"max_rows_per_step": 1}, {"max_rows_per_step": 3}])
def test_columns_of_each_file_are_found_by_its_own_header(tmp_path: Path, settings: dict[str, int]) -> None:
    write_three_orders(tmp_path)
    (tmp_path / "c.csv").write_text("\n City ,NAME,Id\nbonn,max,4\n")
    source = opened(tmp_path, **settings)
    pieces = read_all(source)
    assert rows_of(source, pieces) == ROWS
    stamped = rows_of(source, pieces, Stamp(0))
    assert [row[:3] for row in stamped] == ROWS
    assert [row[4:] for row in stamped] == sorted(row[4:] for row in stamped)


def test_quotes_comments_and_other_separators_are_understood_in_headers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('# a comment\n"na\\"me"|id\nx|1\n')
    schema = pa.schema([("id", pa.int64()), ('na"me', pa.string())])
    source = opened(tmp_path, schema, options={"sep": "|", "comment": "#"})
    assert rows_of(source, read_all(source)) == [(1, "x")]


@pytest.mark.parametrize(
    "text",
    ["1,ada,york\n2,bob,kent\n", "id,name\n1,ada\n", "id,name,town\n", "id,name,city,age\n", "id,id,city\n"],
    ids=["no header", "one too few", "another name", "one too many", "one twice"],
)
def test_any_other_first_line_is_refused_with_the_cure(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text("id,name,city\n1,ada,york\n")
    (tmp_path / "b.csv").write_text(text)
    source = opened(tmp_path)
    (piece,) = read_all(source)
    with pytest.raises(InputError, match=r"b\.csv: the first line is not a header.*header=False") as refused:
        source.read_arrow(piece, None)
    assert "'id', 'name', 'city'" in str(refused.value)


@pytest.mark.parametrize("header", [True, False])
def test_files_of_another_format_are_called_what_they_are(tmp_path: Path, header: bool) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["ada"], "city": ["york"]}), tmp_path / "a.csv")
    source = opened(tmp_path, header=header)
    with pytest.raises(
        InputError, match=r"a\.csv is not text: it begins like a Parquet file.*format=\"parquet\""
    ):
        rows_of(source, read_all(source))


def test_without_header_the_first_line_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,ada,york\n2,bob,kent\n")
    source = opened(tmp_path, header=False)
    assert rows_of(source, read_all(source)) == [(1, "ada", "york"), (2, "bob", "kent")]


def test_header_that_would_become_a_row_of_texts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Name,city\nada,york\n")
    source = opened(tmp_path, "name string, city string", header=False)
    (piece,) = read_all(source)
    with pytest.raises(InputError, match=r"a\.csv: the first line is a header.*header=True"):
        source.read_arrow(piece, None)
    (tmp_path / "a.csv").write_text("ada,york\nName,city\n")
    source = opened(tmp_path, "name string, city string", header=False)
    assert rows_of(source, read_all(source)) == [("ada", "york"), ("Name", "city")]


@pytest.mark.parametrize("malformed", ["fail", "drop", "null"])
def test_header_that_would_become_a_row_that_does_not_fit_is_refused_as_what_it_is(
    tmp_path: Path, malformed: str
) -> None:
    """Told as malformed it would have the wrong cure; as a row of nulls nobody would tell of it."""
    (tmp_path / "a.csv").write_text("id,name\n1,ada\n")
    source = opened(tmp_path, "id long, name string", header=False, malformed=malformed)
    (piece,) = read_all(source)
    with pytest.raises(InputError, match=r"a\.csv: the first line is a header.*header=True"):
        source.read_arrow(piece, None)


def test_row_that_would_become_the_names_of_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,ada\n2,bob\n")
    with pytest.raises(InputError, match=r"a\.csv: the first line looks like a row.*header=False"):
        Files(str(tmp_path), "csv").schema()


def test_torn_gzipped_and_malformed_rows_keep_the_order_of_their_file(tmp_path: Path) -> None:
    text = "city,id,name\nkent,2,bob\nbath,3,eve\nbonn,x,max\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    source = opened(tmp_path, max_rows_per_step=2)
    first, second = read_all(source)
    assert rows_of(source, [first]) == [(2, "bob", "kent"), (3, "eve", "bath")]
    with pytest.raises(InputError, match=r"a\.csv\.gz, line 4"):
        source.read_arrow(second, None)


def test_header_is_looked_at_once_per_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.sources import files

    looked: list[str] = []
    look = files.column_order
    monkeypatch.setattr(
        files, "column_order", lambda path, *more: (looked.append(path), look(path, *more))[1]
    )
    (tmp_path / "a.csv").write_text("city,id,name\n" + "kent,2,bob\n" * 9)
    (tmp_path / "b.csv").write_text("id,name,city\n" + "2,bob,kent\n" * 9)
    source = opened(tmp_path, max_rows_per_step=2)
    assert rows_of(source, read_all(source)) == [(2, "bob", "kent")] * 18
    assert [Path(path).name for path in looked] == ["a.csv", "b.csv"]


@pytest.mark.spark
@pytest.mark.parametrize("settings", [{}, {"max_rows_per_step": 2}])
@pytest.mark.parametrize("stamp", [None, Stamp(0)])
def test_spark_finds_columns_by_the_header_of_each_file(
    spark: Any, tmp_path: Path, settings: dict[str, int], stamp: Stamp | None
) -> None:
    write_three_orders(tmp_path)
    source = opened(tmp_path, options={"comment": "#"}, **settings)
    assert compare_with_spark(spark, source, stamp) == 5


@pytest.mark.spark
def test_spark_refuses_other_headers_and_names_the_first_malformed_row(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("city,id,name\nkent,2,bob\nbath,x,eve\n")
    (tmp_path / "b.csv").write_text("id,name,city\ny,bob,kent\n")
    source = opened(tmp_path)
    (piece,) = read_all(source)
    with pytest.raises(Exception) as failure:
        source.read_spark(spark, piece, None).collect()
    assert "a.csv, line 3" in str(source.explain_failure(piece, failure.value))
    (tmp_path / "c.csv").write_text("1,ada,york\n2,bob,kent\n")
    source = opened(tmp_path)
    (piece,) = read_all(source)
    with pytest.raises(InputError, match=r"c\.csv: the first line is not a header"):
        source.read_spark(spark, piece, None)
