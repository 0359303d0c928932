"""`Files` without Spark: listing, cutting, memory, refusals, malformed rows, inference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import ConfigError, InputError, StateError
from holdfast.language.connectors import Slice, Stamp
from holdfast.sources import Beacon, Files
from holdfast.sources.known_files.memory import BLOCK_FILES
from holdfast.sources.lines import LineRules, Mark, blocks, line_spans
from holdfast.testing.source_conformance import as_tuples, read_all, rows_of


def write(path: Path, *rows: Any, header: str = "a") -> None:
    path.write_text(header + "\n" + "".join(f"{row}\n" for row in rows))


def opened(directory: Path, schema: str = "a long", **settings: Any) -> Files:
    source = Files(str(directory), "csv", schema, **settings)
    source.seek(None)
    return source


def test_new_files_get_ordinals_in_listing_order(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", 1)
    source = opened(tmp_path)
    first = read_all(source)
    write(tmp_path / "c.csv", 3)
    write(tmp_path / "a.csv", 2)
    second = read_all(source)
    assert rows_of(source, first + second, Stamp(0)) == [(1, 0, 0, 0), (2, 0, 1, 0), (3, 0, 2, 0)]


def test_bound_sees_only_files_present_then_even_after_a_seek(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 1)
    source = Files(str(tmp_path), "csv", "a long")
    source.bound()
    write(tmp_path / "b.csv", 2)
    for _ in range(2):
        source.seek(None)
        assert rows_of(source, read_all(source)) == [(1,)]


@pytest.mark.parametrize("harm", ["vanish", "grow", "touch"])
@pytest.mark.fault("I08")
def test_file_that_changes_before_it_is_fully_read_is_refused_by_name(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "a.csv"
    write(path, *range(10))
    source = opened(tmp_path, max_rows_per_step=4)
    piece = source.next_slice()
    state = source.snapshot()
    assert piece is not None
    if harm == "vanish":
        path.unlink()
    elif harm == "grow":
        path.write_text(path.read_text() + "99\n")
    else:
        os.utime(path, ns=(1, 1))
    for act in (source.next_slice, lambda: source.read_arrow(piece, None), lambda: source.seek(state)):
        with pytest.raises(InputError, match=r"a\.csv (vanished|changed) before it was fully read"):
            act()


def test_fully_read_file_may_be_deleted_but_not_if_it_must_be_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 1)
    write(tmp_path / "b.csv", 2)
    source = opened(tmp_path, max_files_per_step=1)
    before = source.snapshot()
    source.next_slice()
    middle = source.snapshot()
    (tmp_path / "a.csv").unlink()
    source.seek(middle)
    assert rows_of(source, read_all(source)) == [(2,)]
    listed = opened(tmp_path)
    listed.next_slice()
    source.seek(
        {**middle, "position": [0, 0, 0, 0], "files": {**before["files"], "open": _open_with_a(middle)}}
    )
    with pytest.raises(InputError, match=r"a\.csv vanished"):
        source.next_slice()


def _open_with_a(state: Any) -> str:
    from holdfast.sources.known_files.memory import pack, unpack

    return pack([["a.csv", 4, 1], *unpack(state["files"]["open"])])


def test_memory_of_many_read_files_is_small_and_none_is_read_twice(tmp_path: Path) -> None:
    count = 2 * BLOCK_FILES + 10
    for number in range(count):
        (tmp_path / f"orders-2024-01-01-{number:06}.csv").write_text(f"a\n{number}\n")
    source = opened(tmp_path)
    assert sum(len(source.read_arrow(p, None)) for p in read_all(source)) == count
    state = source.snapshot()
    size = len(msgpack.packb(state))
    assert size < 11 * count
    write(tmp_path / "new.csv", -1)
    again = Files(str(tmp_path), "csv", "a long")
    again.seek(state)
    assert rows_of(again, read_all(again), Stamp(0)) == [(-1, 0, count, 0)]
    assert again.snapshot()["files"]["blocks"] == state["files"]["blocks"]


@pytest.mark.fault("SR15")
def test_damaged_snapshot_is_a_state_error(tmp_path: Path) -> None:
    source = opened(tmp_path)
    for state in (5, {"format": 1, "position": [1], "files": source.snapshot()["files"]}, {"format": 2}):
        with pytest.raises(StateError):
            source.seek(state)


def test_whole_files_are_planned_without_opening_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.csv", 1)
    monkeypatch.setattr("holdfast.sources.lines.open_lines", None)
    source = opened(tmp_path)
    piece = source.next_slice()
    assert piece is not None
    assert piece.rows is None
    assert piece.bytes == 4


def test_next_slice_goes_on_at_the_byte_where_the_last_one_ended(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", *range(100))
    source = opened(tmp_path, max_rows_per_step=50)
    piece = source.next_slice()
    assert piece is not None
    assert piece.end == [0, 50, 2 + 10 * 2 + 40 * 3, 51]
    assert piece.rows == 50


def test_step_that_ends_with_the_last_row_ends_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n2\n\n  \n")
    source = opened(tmp_path, max_rows_per_step=2)
    assert [piece.end for piece in read_all(source)] == [[1, 0, 0, 0]]


def test_file_that_fits_the_next_step_is_not_torn(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", *range(10, 40))
    write(tmp_path / "b.csv", *range(10, 40))
    source = opened(tmp_path, max_bytes_per_step=100)
    assert [piece.end for piece in read_all(source)] == [[1, 0, 0, 0], [2, 0, 0, 0]]


def test_step_that_ends_with_a_file_is_a_boundary(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 1, 2, 3)
    write(tmp_path / "b.csv", 1)
    source = opened(tmp_path, max_rows_per_step=2, max_files_per_step=1)
    assert [piece.boundary for piece in read_all(source)] == [False, True, True]


def test_parquet_is_cut_by_its_footer(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": list(range(100))}), tmp_path / "a.parquet", row_group_size=10)
    for settings, ends in (
        ({"max_rows_per_step": 64}, [[0, 64, 0, 0], [1, 0, 0, 0]]),
        ({"max_bytes_per_step": 1}, [*([0, n, 0, 0] for n in range(10, 100, 10)), [1, 0, 0, 0]]),
        ({}, [[1, 0, 0, 0]]),
    ):
        source = Files(str(tmp_path), "parquet", **settings)  # type: ignore[arg-type]
        source.seek(None)
        pieces = read_all(source)
        assert [piece.end for piece in pieces] == ends
        assert rows_of(source, pieces) == [(n,) for n in range(100)]


def test_malformed_row_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,x\n\n2,y\nbad,z\n3,only,too many\n")
    source = Files(str(tmp_path), "csv", "a long, b string")
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    with pytest.raises(InputError, match=r"a\.csv, line 5: .*'bad,z'"):
        source.read_arrow(piece, None)
    kept = {"drop": [(1, "x"), (2, "y")], "null": [(1, "x"), (2, "y"), (None, "z"), (3, "only")]}
    for choice, rows in kept.items():
        source = Files(str(tmp_path), "csv", "a long, b string", malformed=choice)  # type: ignore[arg-type]
        source.seek(None)
        piece = source.next_slice()
        assert piece is not None
        assert as_tuples(source.read_arrow(piece, None)) == rows


def test_schema_is_inferred_from_the_first_file_with_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("id,at,price,name\n1,2020-01-01 00:00:00,1.5,x\n")
    schema = Files(str(tmp_path), "csv").schema()
    assert schema.names == ["id", "at", "price", "name"]
    assert schema.types == [pa.int64(), pa.timestamp("us", tz="UTC"), pa.float64(), pa.string()]
    assert Files(str(tmp_path), "csv", header=False).schema().names == ["_c0", "_c1", "_c2", "_c3"]
    (tmp_path / "c").mkdir()
    with pytest.raises(InputError, match="no rows to infer"):
        Files(str(tmp_path / "c"), "csv").schema()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"format": "avro"}, "no file format"),
        ({"options": {"multiLine": True}}, "'multiLine' cannot be set"),
        ({"malformed": "ignore"}, "is unknown"),
        ({"max_rows_per_step": 0}, "cannot be limited to 0"),
    ],
)
def test_wrong_settings_are_refused_with_a_cure(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Files("somewhere", **settings)


def test_missing_directory_and_foreign_compression_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        opened(tmp_path / "nowhere").next_slice()
    (tmp_path / "a.csv.zst").write_bytes(b"x")
    with pytest.raises(InputError, match=r"compressed as \.zst"):
        opened(tmp_path).next_slice()


@pytest.mark.parametrize("below", ["*.csv", "*/deep/*.csv", "**"])
def test_a_glob_below_a_directory_that_is_not_there_is_refused_like_the_directory(
    tmp_path: Path, below: str
) -> None:
    with pytest.raises(InputError, match=f"the directory {tmp_path}/nowhere does not exist"):
        Files(str(tmp_path / "nowhere" / below), "csv", "a long").check()
    with pytest.raises(InputError, match=f"the directory {tmp_path}/nowhere does not exist"):
        Files(str(tmp_path / "nowhere" / below), "csv").schema()


def test_a_glob_that_finds_nothing_yet_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Files(str(tmp_path / "*.csv"), "csv", "a long", header=False)
    source.check()
    assert f"no file is called {tmp_path}/*.csv yet" in caplog.text
    caplog.clear()
    (tmp_path / "a.csv").write_text("1\n")
    source.check()
    assert not caplog.text
    source.seek(None)
    assert source.next_slice() is not None


@pytest.mark.parametrize("scheme", ["s3", "s3a", "hdfs", "gs", "abfss", "https", "dbfs"])
def test_addresses_are_told_as_what_they_are(scheme: str) -> None:
    with pytest.raises(
        ConfigError, match=f"is an address of {scheme}, and Files reads directories"
    ) as caught:
        Files(f"{scheme}:/" + "/bucket/in", "csv")
    assert "hf.from_spark" in str(caught.value)


def test_an_address_of_a_file_is_its_path(tmp_path: Path) -> None:
    for address in (f"file://{tmp_path}", f"file:{tmp_path}"):
        Files(address, "csv", "a long").check()


def test_braces_are_refused_by_name_unless_something_is_called_so(tmp_path: Path) -> None:
    for below in ("{a,b}", "{a,b}/*.csv", "*.{csv,txt}"):
        with pytest.raises(ConfigError, match="globs have no braces"):
            Files(str(tmp_path / below), "csv", "a long").check()
    (tmp_path / "{a,b}").mkdir()
    Files(str(tmp_path / "{a,b}"), "csv", "a long").check()


def test_a_list_of_paths_is_refused_with_a_cure() -> None:
    with pytest.raises(ConfigError, match=r"one path, not 2\. .*a\.union\(b\)"):
        Files(["a", "b"], "csv")  # type: ignore[arg-type]


def test_a_single_file_will_do(tmp_path: Path) -> None:
    path = tmp_path / "one [1].csv"
    write(path, 1)
    write(tmp_path / "two.csv", 2)
    source = Files(str(path), "csv", "a long")
    source.seek(None)
    assert rows_of(source, read_all(source)) == [(1,)]


def test_recursive_listing_and_globs(tmp_path: Path) -> None:
    for name in ("x/a.csv", "y/b.csv", "y/_hidden/c.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, len(name))
    for path, recursive in ((tmp_path, True), (tmp_path / "*" / "*.csv", False), (tmp_path / "[xy]", False)):
        source = Files(str(path), "csv", "a long", recursive=recursive)
        source.seek(None)
        assert rows_of(source, read_all(source)) == [(7,), (7,)]


LINES = [b"a", b"", b"  ", b"b\r", b"\tc", b"d\re", b"", b"f" * 50]


@pytest.mark.parametrize("kind", ["text", "csv", "json"])
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
def test_rows_are_the_same_however_the_file_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, block_bytes: int
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(LINES))
    monkeypatch.setattr("holdfast.sources.lines.BLOCK_BYTES", block_bytes)
    rows, numbers = [], []
    for block in blocks(str(path), LineRules(kind)):
        rows += [block.data[a:b].tobytes() for a, b in zip(block.starts, block.ends, strict=True)]
        numbers += [int(block.begin.line + n) for n in block.lines]
        assert block.end.row == len(rows)
    wanted = [b"a", b"", b"  ", b"b", b"\tc", b"d", b"e", b"", b"f" * 50]
    keep = [n for n, line in enumerate(wanted) if kind == "text" or line.strip()]
    assert rows == [wanted[n] for n in keep]
    assert numbers == keep


def test_reading_goes_on_at_any_row(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"h\n" + b"\n".join(LINES) + b"\n")
    (block,) = blocks(str(path), LineRules("csv", header=True))
    marks = [block.mark(n) for n in range(len(block.starts))]
    for number, mark in enumerate(marks):
        (rest,) = blocks(str(path), LineRules("csv", header=True), mark)
        assert rest.mark(0) == mark
        assert len(rest.starts) == len(marks) - number
    assert marks[0] == Mark(0, 2, 1)


def test_line_spans_of_nothing_but_ends() -> None:
    starts, ends = line_spans(np.frombuffer(b"\r\n\n\r", dtype=np.uint8))
    assert starts.tolist() == ends.tolist() == [0, 2, 3]


def test_beacon_rate_limits_what_exists_but_not_what_it_is() -> None:
    from holdfast.clock import ManualClock

    clock = ManualClock()
    beacon = Beacon(rate=1000, clock=clock)
    beacon.seek({"next": 5})
    assert beacon.next_slice() is None
    clock.advance(0.5)
    piece = beacon.next_slice()
    assert piece is not None
    assert (piece.start, piece.end) == (5, 505)
    assert beacon.next_slice() is None
    first = as_tuples(beacon.read_arrow(piece, None))[0]
    assert first[0] == 5
    assert str(first[1]) == "2020-01-01 00:00:00.005000+00:00"
    with pytest.raises(ConfigError, match="no last row"):
        beacon.bound()


def test_sources_and_sinks_can_be_imported_without_pyspark() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import holdfast.sources, holdfast.sinks"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("format", ["csv", "json", "text", "parquet"])
def test_rows_of_a_whole_file_are_counted_on_demand(format: str, tmp_path: Path) -> None:
    text = {"csv": "n\n1\n2\n3\n", "json": '{"n":1}\n\n{"n":2}\n{"n":3}\n', "text": "a\nb\nc"}
    if format == "parquet":
        pq.write_table(pa.table({"n": [1, 2, 3]}), tmp_path / "a.parquet")
    else:
        (tmp_path / f"a.{format}").write_text(text[format])
    schema = "value string" if format == "text" else "n long"
    source = Files(str(tmp_path), format, schema, max_files_per_step=1)
    source.seek(None)
    piece = source.next_slice()
    assert piece is not None
    later = Slice(None, None, rows=piece.rows, detail=piece.detail)
    assert source.count_rows(later) == 3
