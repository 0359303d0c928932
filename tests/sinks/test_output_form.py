"""What a directory and a format can hold: refused in one sentence with a cure, before a row is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import ConfigError, DamagedError, MismatchError
from holdfast.sinks import FileSink
from holdfast.sinks.output.form import NAME
from holdfast.testing import run_local

LIST, STRUCT = pa.list_(pa.int64()), pa.struct([("a", pa.binary())])
MAP, ODD_MAP = pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64())


@pytest.mark.parametrize(
    ("format", "of", "cure"),
    [
        ("csv", LIST, "Write json or parquet, or text in its place: to_json(x) as x."),
        ("csv", STRUCT, "to_json(x)"),
        ("csv", MAP, "to_json(x)"),
        ("csv", pa.binary(), "Write parquet, or text in its place: base64(x) as x."),
        ("json", pa.binary(), "base64(x)"),
        ("json", STRUCT, "base64(x)"),
        ("json", ODD_MAP, "a map with texts as keys"),
        ("json", pa.null(), "Give it a type"),
        ("parquet", pa.null(), "cast(null as string)"),
        ("parquet", pa.list_(pa.null()), "Give it a type"),
    ],
)
def test_columns_that_a_format_cannot_hold_are_refused(
    tmp_path: Path, format: Any, of: Any, cure: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{format} files cannot hold the column 'x' \(") as found:
        FileSink(str(tmp_path), format).check_columns(pa.schema([("n", pa.int64()), ("x", of)]))
    assert cure in str(found.value)


@pytest.mark.parametrize(
    ("format", "of"),
    [("json", LIST), ("json", MAP), ("parquet", STRUCT), ("parquet", ODD_MAP), ("csv", pa.decimal128(20, 2))],
)
def test_columns_that_a_format_can_hold_pass(tmp_path: Path, format: Any, of: Any) -> None:
    FileSink(str(tmp_path), format).check_columns(pa.schema([("x", of)]))


def run(
    out: Path,
    store: Path | None,
    sinks: dict[str, FileSink],
    rows: list[Any],
    schema: str = "n long, k string",
) -> None:
    topology = hf.Topology("forms")
    stream = topology.source(hf.Rows(rows, schema), name="rows")
    if store is not None:
        stream = stream.consistent(name="region")
    for name, sink in sinks.items():
        stream.sink(sink, name=name)
    run_local(topology, None if store is None else f"file:{store}", until="available")


def test_a_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="csv files cannot hold the column 'b'"):
        run(out, tmp_path / "store", {"out": FileSink(str(out), "csv")}, [(1, b"x")], "n long, b binary")
    with pytest.raises(ConfigError, match="cannot be partitioned by 'day'"):
        run(out, None, {"out": FileSink(str(out), "csv", partition_by="day")}, [(1, "x")])
    assert not out.exists()


def names(out: Path) -> list[str]:
    return sorted(path.name for path in out.rglob("part-*"))


@pytest.mark.parametrize(
    "settings",
    [{"format": "json"}, {"format": "csv", "header": False}, {"format": "csv", "partition_by": "k"}],
)
@pytest.mark.parametrize("is_known", [True, False])
def test_a_second_run_that_writes_in_another_form_is_refused(
    tmp_path: Path, settings: Any, is_known: bool
) -> None:
    out, store = tmp_path / "out", tmp_path / "store"
    run(out, store, {"out": FileSink(str(out), "csv")}, [(1, "x")])
    before = names(out)
    if not is_known:
        (out / ".holdfast" / NAME).unlink()  # as earlier versions left it
    for other in (store, tmp_path / "another", None):
        with pytest.raises(
            MismatchError, match=rf"out holds csv files, and this sink writes .*{settings['format']}"
        ):
            run(out, other, {"out": FileSink(str(out), **settings)}, [(1, "x"), (2, "y")])
    assert names(out) == before


def test_an_output_that_shows_nothing_has_no_form_yet(tmp_path: Path) -> None:
    run(tmp_path, None, {"out": FileSink(str(tmp_path), "csv")}, [])
    run(tmp_path, None, {"out": FileSink(str(tmp_path), "json")}, [(1, "x")])
    with pytest.raises(MismatchError, match="holds json files"):
        run(tmp_path, None, {"out": FileSink(str(tmp_path), "csv")}, [])


def test_damage_is_told_by_name(tmp_path: Path) -> None:
    run(tmp_path, None, {"out": FileSink(str(tmp_path), "csv")}, [(1, "x")])
    (tmp_path / ".holdfast" / NAME).write_text("{")
    with pytest.raises(DamagedError, match=r"output\.json is damaged"):
        run(tmp_path, None, {"out": FileSink(str(tmp_path), "csv")}, [(1, "x")])


def test_two_sinks_of_one_form_share_a_directory_and_of_two_forms_do_not(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "out").mkdir()
    (out / "notes.txt").write_text("of somebody else")
    (out / "part-00000.csv").write_text("n,k\n9,z\n")
    run(out, tmp_path / "store", {"one": FileSink(str(out)), "two": FileSink(str(out))}, [(1, "x")])
    assert names(out) == ["part-00000.csv", *(f"part-{name}-e000000001-p0000.csv" for name in ("one", "two"))]
    assert (out / "notes.txt").read_text() == "of somebody else"
    with pytest.raises(MismatchError, match="holds csv files, and this sink writes json files"):
        run(out, tmp_path / "other", {"a": FileSink(str(out)), "b": FileSink(str(out), "json")}, [(1, "x")])


def test_two_sinks_of_two_forms_cannot_begin_a_directory(tmp_path: Path) -> None:
    sinks = {"a": FileSink(str(tmp_path / "out")), "b": FileSink(str(tmp_path / "out"), "json")}
    with pytest.raises(MismatchError, match="holds csv files, and this sink writes json files"):
        run(tmp_path / "out", tmp_path / "store", sinks, [(1, "x")])
