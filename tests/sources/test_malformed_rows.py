"""Rows and files that cannot be read: named, counted or given as a stream; the same in both engines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampling import Extent

from holdfast.cli.status.show import show_status, show_store
from holdfast.cli.status.store_status import read_status
from holdfast.errors import ConfigError, HoldfastError, InputError, TopologyError
from holdfast.language.connectors import Stamp
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files, Rows
from holdfast.sources.line_tasks import MALFORMED
from holdfast.sources.lines import is_decodable
from holdfast.sources.parquet_tasks import fits
from holdfast.testing import run_local
from holdfast.testing.source_conformance import as_tuples, read_all

CSV = b"a,b\n1,x\n\nno,y\n2,\xff\xfe\n3\n4,z,5\n5,\xc3\xa9\n"
CSV_BAD = [
    (4, "a: 'no' is no int64"),
    (5, "it is not UTF-8"),
    (6, "it has 1 fields, not 2"),
    (7, "it has 3 fields, not 2"),
]
JSON = b'{"a":1,"b":"x"}\n{"a":"no"}\n[1]\n{"a":2,"b":"\xff"}\n{"a":3,"b":"y"}\n{oops\n'
JSON_BAD = [
    (2, "a: 'no' is no int64"),
    (3, "it is a JSON array"),
    (4, "it is not UTF-8"),
    (6, "it is no JSON: "),
]
TEXT = b"one\n\xff\ntwo\xc3\n"
TEXT_BAD = [(2, "it is not UTF-8"), (3, "it is not UTF-8")]
KINDS: dict[str, tuple[bytes, list[Any], list[tuple[int, str]]]] = {
    "csv": (CSV, [(1, "x"), (5, "é")], CSV_BAD),
    "json": (JSON, [(1, "x"), (3, "y")], JSON_BAD),
    "text": (TEXT, [("one",)], TEXT_BAD),
}
SETTINGS: list[dict[str, int]] = [{}, {"max_rows_per_step": 3}]


def opened(
    place: Path, kind: Any, malformed: Any = "fail", schema: Any = "a long, b string", **more: Any
) -> Files:
    source = Files(str(place), kind, None if kind == "text" else schema, malformed=malformed, **more)
    source.bound()
    source.seek(None)
    return source


def write(place: Path, kind: str, packed: bool = False) -> Path:
    path = place / f"bad.{kind}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(KINDS[kind][0]) if packed else KINDS[kind][0])
    return path


def assert_told(found: list[tuple[Any, ...]], path: Path, kind: str) -> None:
    assert [row[:2] for row in found] == [(str(path), line) for line, _ in KINDS[kind][2]]
    assert [row[2][: len(reason)] for row, (_, reason) in zip(found, KINDS[kind][2], strict=True)] == [
        reason for _, reason in KINDS[kind][2]
    ]
    lines = KINDS[kind][0].split(b"\n")
    assert [row[3] for row in found] == [lines[row[1] - 1].decode(errors="replace") for row in found]


# --- without Spark ---


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.fault("I02", "O06")
def test_first_malformed_row_is_named_with_its_line_and_reason(
    tmp_path: Path, kind: str, settings: dict[str, int]
) -> None:
    path = write(tmp_path, kind)
    source = opened(tmp_path, kind, **settings)
    line, reason = KINDS[kind][2][0]
    with pytest.raises(InputError) as failure:
        for piece in read_all(source):
            source.read_arrow(piece, None)
    assert f"{path}, line {line}: the row does not fit the schema" in str(failure.value)
    assert reason in str(failure.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.fault("I02", "O08")
def test_malformed_rows_are_counted_and_told(
    tmp_path: Path, kind: str, settings: dict[str, int], packed: bool
) -> None:
    path = write(tmp_path, kind, packed)
    for choice in ("drop", "stream"):
        source = opened(tmp_path, kind, choice, **settings)
        rows, told, states = [], [], []
        while (piece := source.next_slice()) is not None:
            rows += as_tuples(source.read_arrow(piece, None))
            told += as_tuples(source.read_malformed_arrow(piece, None))
            source.processed(piece)
            states.append(source.snapshot())
        assert rows == KINDS[kind][1]
        assert_told(told, path, kind)
        assert source.counts() == {"malformed": len(told)}
        source.seek(states[0])
        assert source.counts().get("malformed", 0) <= len(told)
        source.seek(states[-1])
        assert source.counts() == {"malformed": len(told)}
        source.seek(None)
        assert source.counts() == {}


@pytest.mark.parametrize("kind", KINDS)
def test_undecodable_rows_become_nulls_if_asked(tmp_path: Path, kind: str) -> None:
    write(tmp_path, kind)
    source = opened(tmp_path, kind, "null")
    rows = [row for piece in read_all(source) for row in as_tuples(source.read_arrow(piece, None))]
    assert len(rows) == len(KINDS[kind][1]) + len(KINDS[kind][2])
    assert "�" not in repr(rows)


@pytest.mark.parametrize(
    "text", [b"", b"abc", b"\xc3\xa9" * 999, b"\xff", b"abc\xc3", b"\xe2\x82", b"\xed\xa0\x80"]
)
@pytest.mark.parametrize("block", [1, 2, 1 << 20])
def test_bytes_are_checked_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, block: int
) -> None:
    monkeypatch.setattr("holdfast.sources.lines.BLOCK_BYTES", block)
    (tmp_path / "x").write_bytes(text)
    try:
        text.decode()
    except UnicodeDecodeError:
        assert not is_decodable(str(tmp_path / "x"))
    else:
        assert is_decodable(str(tmp_path / "x"))


def cut_gzip(path: Path) -> None:
    data = gzip.compress(b"a,b\n" + b"".join(b"%d,x%d\n" % (n, n * 7919) for n in range(300_000)))
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("settings", [{}, {"max_rows_per_step": 100_000}])
def test_cut_gzip_is_named(tmp_path: Path, settings: dict[str, int]) -> None:
    cut_gzip(tmp_path / "cut.csv.gz")
    source = opened(tmp_path, "csv", "drop", **settings)
    with pytest.raises(
        InputError, match=r"cut\.csv\.gz: the compressed file is cut off or damaged, behind line \d+"
    ):
        while (piece := source.next_slice()) is not None:
            source.read_arrow(piece, None)
    with pytest.raises(InputError, match=r"cut\.csv\.gz"):
        Files(str(tmp_path), "csv").schema()
    (tmp_path / "cut.csv.gz").write_bytes(b"no gzip at all")
    source = opened(tmp_path, "csv")
    with pytest.raises(
        InputError, match=r"cut\.csv\.gz: the compressed file is cut off or damaged, behind line 0"
    ):
        source.read_arrow(source.next_slice(), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int32(), pa.int16(), False),
        (pa.uint32(), pa.int64(), True),
        (pa.uint32(), pa.int32(), False),
        (pa.int32(), pa.float64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.int64(), pa.decimal128(20, 0), True),
        (pa.int64(), pa.decimal128(19, 0), False),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.string(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.date32(), pa.int32(), False),
        (pa.int32(), pa.date32(), False),
        (pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), True),
        (pa.timestamp("ns"), pa.timestamp("us"), False),
        (pa.list_(pa.timestamp("ns", tz="UTC")), pa.list_(pa.timestamp("us", tz="UTC")), False),
        (pa.int64(), pa.timestamp("us"), False),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(10, 2), pa.decimal128(10, 4), False),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.string()), pa.list_(pa.int64()), False),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())]), True),
        (pa.struct([("x", pa.string())]), pa.struct([("x", pa.int64())]), False),
        (pa.null(), pa.int64(), True),
    ],
)
def test_which_parquet_types_can_be_read_as_which(
    found: pa.DataType, wanted: pa.DataType, answer: bool
) -> None:
    assert fits(found, wanted) is answer


@pytest.mark.fault("I02")
def test_parquet_file_of_other_types_or_columns_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"]}), tmp_path / "fine.parquet")
    for wrong, told in (
        ({"a": ["1"], "b": ["x"]}, r"wrong\.parquet: column 'a' is string, which cannot be read as int64"),
        ({"c": [1]}, r"wrong\.parquet has none of the schema's columns \(a, b\), but c"),
    ):
        pq.write_table(pa.table(wrong), tmp_path / "wrong.parquet")
        source = opened(tmp_path, "parquet")
        (piece,) = read_all(source)
        for act in (source.read_arrow, source.task_reader):
            with pytest.raises(InputError, match=told):
                act(piece, None)


def test_parquet_times_in_nanoseconds_are_refused_with_how_to_write_them_but_not_those_of_spark(
    tmp_path: Path,
) -> None:
    times = pa.table({"at": pa.array([1_767_225_600_123_456_789], pa.timestamp("ns", tz="UTC"))})
    pq.write_table(times, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    source = opened(tmp_path, "parquet", schema="at timestamp")
    (piece,) = read_all(source)
    assert source.read_arrow(piece, None).num_rows == 1
    pq.write_table(times, tmp_path / "y.parquet")
    source = opened(tmp_path, "parquet", schema="at timestamp")
    (piece,) = read_all(source)
    for act in (source.read_arrow, source.task_reader):
        with pytest.raises(InputError, match=r"y\.parquet: column 'at' is timestamp\[ns.*coerce_timestamps"):
            act(piece, None)


def test_columns_of_parquet_files_are_found_whatever_their_case(tmp_path: Path) -> None:
    pq.write_table(pa.table({"A": pa.array([1, 2], pa.int32())}), tmp_path / "x.parquet")
    source = opened(tmp_path, "parquet")
    (piece,) = read_all(source)
    assert as_tuples(source.read_arrow(piece, None)) == [(1, None), (2, None)]


def damaged_parquet(path: Path) -> None:
    """The second row group is spoilt."""
    values = pa.table({"a": list(range(3000)), "b": [str(n) for n in range(3000)]})
    pq.write_table(values, path, row_group_size=1000, compression="gzip", use_dictionary=False)
    group = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[group.data_page_offset : group.data_page_offset + group.total_compressed_size] = b"\xff" * (
        group.total_compressed_size
    )
    path.write_bytes(data)


def test_damaged_parquet_file_is_named_with_its_row_group(tmp_path: Path) -> None:
    damaged_parquet(tmp_path / "x.parquet")
    source = opened(tmp_path, "parquet")
    (piece,) = read_all(source)
    with pytest.raises(InputError, match=r"x\.parquet: row group 1 cannot be read as Parquet"):
        source.read_arrow(piece, None)
    (tmp_path / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-30])
    source = opened(tmp_path, "parquet")
    with pytest.raises(InputError, match=r"x\.parquet: the file cannot be read as Parquet"):
        source.read_arrow(source.next_slice(), None)  # type: ignore[arg-type]


# --- runs ---


def run(place: Path, source: Files, region: bool = True) -> tuple[list[Any], list[Any], dict[str, Any]]:
    topology = Topology("t")
    rows = topology.source(source, name="in")
    rows = rows.consistent(name="r") if region else rows
    rows.sink(FileSink(str(place / "out"), "json"), name="out")
    if source.malformed_schema() is not None:
        rows.malformed.sink(FileSink(str(place / "odd"), "json"), name="odd")
    status = run_local(topology, store=f"file:{place}/store", until="available")
    return lines_of(place / "out"), lines_of(place / "odd"), status


def lines_of(place: Path) -> list[Any]:
    found = [json.loads(line) for part in place.glob("part-*") for line in part.read_text().splitlines()]
    return sorted(found, key=lambda row: row.get("line", 0) or 0)


@pytest.mark.parametrize("region", [True, False])
@pytest.mark.fault("I02", "O08")
def test_run_counts_malformed_rows_over_all_runs(tmp_path: Path, region: bool) -> None:
    (tmp_path / "in").mkdir()
    for number in range(1, 4):
        (tmp_path / "in" / f"{number}.csv").write_bytes(CSV)
        _, _, status = run(tmp_path, opened(tmp_path / "in", "csv", "drop", max_rows_per_step=2), region)
        (element,) = status["elements"].values()
        assert element["counts"] == {"in": {"malformed": 4 * number}}
    assert len(lines_of(tmp_path / "out")) == 6


@pytest.mark.fault("I02")
def test_malformed_rows_are_a_stream_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in", "csv")
    rows, odd, status = run(
        tmp_path, Files(str(tmp_path / "in"), "csv", "a long, b string", malformed="stream")
    )
    assert [row["a"] for row in rows] == [1, 5]
    assert_told([tuple(row[name] for name in MALFORMED.names) for row in odd], path, "csv")
    (element,) = status["elements"].values()
    assert element["counts"] == {"in": {"malformed": 4}}


def test_malformed_rows_have_positions_if_somebody_orders_by_them(tmp_path: Path) -> None:
    write(tmp_path, "csv")
    source = opened(tmp_path, "csv", "stream")
    (piece,) = read_all(source)
    assert [row[4:] for row in as_tuples(source.read_malformed_arrow(piece, Stamp(2)))] == [
        (2, 0, n) for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("region", [True, False])
@pytest.mark.parametrize("harm", ["bytes", "gzip", "parquet"])
@pytest.mark.fault("I02")
def test_input_that_cannot_be_read_ends_the_run_at_once(tmp_path: Path, harm: str, region: bool) -> None:
    (tmp_path / "in").mkdir()
    if harm == "bytes":
        write(tmp_path / "in", "text")
    elif harm == "gzip":
        cut_gzip(tmp_path / "in" / "x.text.gz")
    else:
        pq.write_table(pa.table({"a": ["1"]}), tmp_path / "in" / "x.parquet")
    kind = "parquet" if harm == "parquet" else "text"
    with pytest.raises(InputError, match=str(tmp_path / "in")):
        run(tmp_path, Files(str(tmp_path / "in"), kind, None if kind == "text" else "a long"), region)  # type: ignore[arg-type]
    regions = read_status(f"file:{tmp_path}/store")["summary"]["regions"]
    assert [told["resets"] for told in regions.values()] == [0] * region


def test_status_shows_how_many_rows_were_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", "csv")
    _, _, status = run(tmp_path, opened(tmp_path / "in", "csv", "drop"))
    show_status(status)
    show_store(read_status(f"file:{tmp_path}/store"))
    shown = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert shown.count("in malformed in all runs 4") == 2


def test_file_that_changes_while_a_step_reads_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n")
    source = opened(tmp_path, "csv")
    (piece,) = read_all(source)
    source.read_arrow(piece, None)
    path.write_text("a,b\n1,x\n2,y\n")
    with pytest.raises(InputError, match=r"a\.csv changed before it was fully read"):
        source.processed(piece)
    path.unlink()
    source.processed(piece)


def test_only_sources_that_were_told_have_a_stream_of_malformed_rows(tmp_path: Path) -> None:
    topology = Topology("t")
    plain = topology.source(Files(str(tmp_path), "csv", "a long"), name="plain")
    told = topology.source(Files(str(tmp_path), "csv", "a long", malformed="stream"), name="told")
    listed = topology.source(Rows([(1,)], "a long"), name="rows")
    for stream in (plain, listed, told.union(plain), told.malformed):
        with pytest.raises(TopologyError, match="has no malformed rows of its own"):
            _ = stream.malformed
    with pytest.raises(ConfigError, match="no malformed rows"):
        Files(str(tmp_path), "parquet", malformed="stream")


# --- with Spark ---


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_spark_counts_and_tells_the_same_malformed_rows(spark: Any, tmp_path: Path, kind: str) -> None:
    for packed, settings, stamp in (
        (False, {}, None),
        (True, {}, None),
        (False, {"max_rows_per_step": 3}, Stamp(0)),
    ):
        place = tmp_path / str(packed) / str(len(settings))
        place.mkdir(parents=True)
        path = write(place, kind, packed)
        source = opened(place, kind, "stream", **settings)  # type: ignore[arg-type]
        rows, told = [], []
        while (piece := source.next_slice()) is not None:
            frame = source.read_spark(spark, piece, stamp)
            rows += [row[: len(row) - 3 if stamp else None] for row in as_tuples(frame.toArrow())]
            told += as_tuples(source.read_malformed_spark(spark, piece, None).toArrow())
            source.processed(piece)
        assert sorted(rows) == KINDS[kind][1]
        assert_told(sorted(told), path, kind)
        assert source.counts() == {"malformed": len(told)}


@pytest.mark.spark
def test_spark_counts_whatever_columns_and_jobs_read_the_rows(
    spark: Any, tmp_path: Path, extent: Extent
) -> None:
    write(tmp_path, "csv")
    acts = [
        lambda f: f.count(),
        lambda f: f.select("b").collect(),
        lambda f: f.filter("a > 4").collect(),
        lambda f: f.rdd.count(),
    ]
    cases = [(number, settings) for number in range(len(acts)) for settings in SETTINGS]
    for number, settings in extent.of(cases, per=lambda case: case[0]):
        source = opened(tmp_path, "csv", "drop", **settings)  # type: ignore[arg-type]
        while (piece := source.next_slice()) is not None:
            acts[number](source.read_spark(spark, piece, None))
            source.processed(piece)
        assert source.counts() == {"malformed": 4}


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_spark_names_the_first_malformed_row(spark: Any, tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, kind)
    line, reason = KINDS[kind][2][0]
    for stamp in (None, Stamp(0)):
        source = opened(tmp_path, kind)
        (piece,) = read_all(source)
        with pytest.raises(Exception) as failure:
            source.read_spark(spark, piece, stamp).collect()
        told = source.explain_failure(piece, failure.value)
        assert isinstance(told, InputError)
        assert f"{path}, line {line}: the row does not fit the schema" in str(told)
        assert reason in str(told)
        nulls = opened(tmp_path, kind, "null").read_spark(spark, piece, stamp)
        assert "�" not in repr(nulls.collect())
        assert nulls.count() == len(KINDS[kind][1]) + len(KINDS[kind][2])


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_spark_names_cut_gzip(spark: Any, tmp_path: Path, kind: Any) -> None:
    cut_gzip(tmp_path / f"cut.{kind}.gz")
    source = opened(tmp_path, kind, "drop")
    (piece,) = read_all(source)
    with pytest.raises(Exception) as failure:
        source.read_spark(spark, piece, None).collect()
    told = source.explain_failure(piece, failure.value)
    assert isinstance(told, InputError)
    assert "the compressed file is cut off or damaged, behind line" in str(told)


@pytest.mark.spark
def test_no_setting_of_spark_leaves_damaged_files_out(spark: Any, tmp_path: Path) -> None:
    cut_gzip(tmp_path / "cut.json.gz")
    settings = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    for setting in settings:
        spark.conf.set(setting, "true")
        with pytest.raises(ConfigError, match="cannot be set"):
            opened(tmp_path, "json", options={setting.rpartition(".")[2]: True})
    try:
        source = opened(tmp_path, "json", "drop")
        (piece,) = read_all(source)
        with pytest.raises(Exception) as failure:
            source.read_spark(spark, piece, None).collect()
        assert isinstance(source.explain_failure(piece, failure.value), InputError)
    finally:
        for setting in settings:
            spark.conf.unset(setting)


@pytest.mark.spark
def test_spark_names_damaged_parquet_and_never_truncates_numbers(spark: Any, tmp_path: Path) -> None:
    damaged_parquet(tmp_path / "x.parquet")
    source = opened(tmp_path, "parquet")
    (piece,) = read_all(source)
    with pytest.raises(Exception) as failure:
        source.read_spark(spark, piece, None).collect()
    assert "x.parquet: row group 1 cannot be read" in str(source.explain_failure(piece, failure.value))
    pq.write_table(pa.table({"a": pa.array([300], pa.int32())}), tmp_path / "x.parquet")
    source = opened(tmp_path, "parquet", schema=pa.schema([("a", pa.int8())]))
    (piece,) = read_all(source)
    with pytest.raises(InputError, match="column 'a' is int32, which cannot be read as int8"):
        source.read_spark(spark, piece, None).collect()


@pytest.mark.spark
def test_run_on_spark_tells_malformed_rows_and_ends_at_once_where_they_fail(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in", "csv")

    def start(malformed: Any, store: str) -> dict[str, Any]:
        topology = Topology("t")
        source = Files(str(tmp_path / "in"), "csv", "a long, b string", malformed=malformed)
        rows = topology.source(source, name="in").consistent(name="r")
        rows.sink(FileSink(str(tmp_path / store / "out"), "json"), name="out")
        if malformed == "stream":
            rows.malformed.sink(FileSink(str(tmp_path / store / "odd"), "json"), name="odd")
        found: dict[str, Any] = topology.run(
            spark=spark, store=f"file:{tmp_path}/{store}/s", until="available"
        )
        return found

    status = start("stream", "one")
    assert [row["a"] for row in lines_of(tmp_path / "one" / "out")] == [1, 5]
    odd = [tuple(row[name] for name in MALFORMED.names) for row in lines_of(tmp_path / "one" / "odd")]
    assert_told(odd, path, "csv")
    assert [element["counts"] for element in status["elements"].values()] == [{"in": {"malformed": 4}}]
    with pytest.raises(HoldfastError) as failure:
        start("fail", "two")
    assert isinstance(failure.value, InputError)
    assert f"{path}, line 4" in str(failure.value)
