"""Joining Parquet files by their bytes: readers see the rows, row groups and statistics of the files, one after another."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.durable import checksum_file
from holdfast.errors import DamagedError
from holdfast.sinks import merge as merging
from holdfast.sinks import parquet_join
from holdfast.sinks.merge import MergeTask, merge
from holdfast.sinks.parquet_join import NotJoinable, join_parquet
from holdfast.state.columns import thrift


def everything(first: int, end: int) -> pa.Table:
    """A table with every kind of column; each third value is null."""

    def column(make: Any, type: pa.DataType) -> pa.Array:
        return pa.array([None if n % 3 == 0 else make(n) for n in range(first, end)], type)

    return pa.table(
        {
            "id": pa.array(range(first, end), pa.int64()),
            "small": column(lambda n: n % 100, pa.int8()),
            "flag": column(lambda n: n % 2 == 0, pa.bool_()),
            "third": column(lambda n: n / 3, pa.float64()),
            "word": column(lambda n: f"w{n % 7}", pa.string()),
            "raw": column(lambda n: bytes([n % 256]) * (n % 5), pa.binary()),
            "day": column(lambda n: date.fromordinal(700000 + n), pa.date32()),
            "at": column(lambda n: datetime.fromtimestamp(n, UTC), pa.timestamp("us", "UTC")),
            "price": column(lambda n: Decimal(n) / 8, pa.decimal128(25, 3)),
            "list": column(lambda n: [n, None, n + 1][: n % 4], pa.list_(pa.int32())),
            "pair": column(
                lambda n: {"a": n, "b": [str(n)]}, pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})
            ),
            "map": column(lambda n: [(str(n), n / 2)] * (n % 2), pa.map_(pa.string(), pa.float64())),
            "nothing": pa.nulls(end - first, pa.int32()),
        }
    )


def written(directory: Path, tables: list[pa.Table], **options: Any) -> list[str]:
    paths = [str(directory / f"source{number}.parquet") for number in range(len(tables))]
    for table, path in zip(tables, paths, strict=True):
        pq.write_table(table, path, **options)
    return paths


def joined(sources: list[str], target: Path) -> Any:
    """Join, and check what holds for every join; returns the new file."""
    crc, size = join_parquet(sources, str(target))
    assert (crc, size) == checksum_file(target)
    files = [pq.ParquetFile(path) for path in sources]
    result = pq.ParquetFile(target, page_checksum_verification=True)
    assert result.schema.equals(files[0].schema)
    assert result.metadata.metadata == files[0].metadata.metadata
    assert result.metadata.created_by == files[0].metadata.created_by
    assert result.metadata.num_rows == sum(file.metadata.num_rows for file in files)
    groups = [file.metadata.row_group(n) for file in files for n in range(file.num_row_groups)]
    groups = [group for group in groups if group.num_rows]
    assert result.num_row_groups == len(groups)
    for number, wanted in enumerate(groups):
        found = result.metadata.row_group(number)
        assert (found.num_rows, found.total_byte_size) == (wanted.num_rows, wanted.total_byte_size)
        for column in range(found.num_columns):
            same = ("statistics", "compression", "encodings", "num_values", "total_compressed_size")
            for name in same:
                assert getattr(found.column(column), name) == getattr(wanted.column(column), name)
    assert result.read().equals(pa.concat_tables([file.read() for file in files]), check_metadata=True)
    return result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none"},
        {"compression": "zstd", "write_page_index": True, "write_page_checksum": True},
        {"use_dictionary": False, "data_page_version": "2.0", "data_page_size": 200},
        {"use_deprecated_int96_timestamps": True, "store_decimal_as_integer": True, "version": "1.0"},
        {"row_group_size": 7, "write_statistics": False, "store_schema": False},
        {"bloom_filter_options": {"word": {"ndv": 100}, "id": True}, "write_page_index": True},
    ],
    ids=str,
)
def test_every_type_survives_and_joined_files_can_be_joined(tmp_path: Path, options: dict[str, Any]) -> None:
    tables = [everything(0, 40), everything(40, 41), everything(1000, 1300)]
    sources = written(tmp_path, tables, **options)
    joined(sources, tmp_path / "one")
    again = joined([sources[2], str(tmp_path / "one"), str(tmp_path / "one")], tmp_path / "two")
    assert again.metadata.num_rows == 300 + 2 * 341


def test_sources_of_other_compressions_need_not_be_decoded(tmp_path: Path) -> None:
    paths = [str(tmp_path / codec) for codec in ("none", "snappy", "zstd", "gzip")]
    for number, path in enumerate(paths):
        pq.write_table(everything(number, number + 9), path, compression=Path(path).name)
    joined(paths, tmp_path / "target")


def test_row_groups_without_rows_are_left_out(tmp_path: Path) -> None:
    for name, sizes in {"a": (0, 3, 0), "b": (0,), "c": (2, 0, 2)}.items():
        with pq.ParquetWriter(tmp_path / name, everything(0, 0).schema) as writer:
            for size in sizes:
                writer.write_table(everything(0, size))
    assert pq.read_metadata(tmp_path / "c").num_row_groups == 3
    result = joined([str(tmp_path / name) for name in "abc"], tmp_path / "target")
    assert [result.metadata.row_group(n).num_rows for n in range(3)] == [3, 2, 2]
    assert joined([str(tmp_path / "b")] * 2, tmp_path / "empty").num_row_groups == 0


def test_page_indexes_are_not_copied_but_bloom_filters_are(tmp_path: Path) -> None:
    table = pa.table({"a": range(20000)})
    plain = written(tmp_path, [table] * 2)
    joined(plain, tmp_path / "plain")
    indexed = written(tmp_path, [table] * 2, write_page_index=True, data_page_size=100)
    result = joined(indexed, tmp_path / "indexed")
    column = result.metadata.row_group(1).column(0)
    assert not column.has_offset_index
    assert not column.has_column_index
    filtered = written(tmp_path, [table] * 2, bloom_filter_options={"a": {"ndv": 20000}})
    joined(filtered, tmp_path / "filtered")
    meta = [
        parquet_join._read(str(tmp_path / "filtered"), 0).groups,
        parquet_join._read(filtered[1], 0).groups,
    ]
    found, wanted = (thrift.structs_of(groups[-1], 1)[0][3][1] for groups in meta)
    place, length = found[14][1], found[15][1]
    bits = (tmp_path / "filtered").read_bytes()[place : place + length]
    assert bits == Path(filtered[1]).read_bytes()[wanted[14][1] :][: wanted[15][1]]
    assert length > 1000


VALUES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(st.none(), st.text(max_size=20))
LISTS = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=4))
ROWS = st.lists(st.tuples(VALUES, TEXTS, LISTS), max_size=30)
SCHEMA = pa.schema({"n": pa.int64(), "t": pa.string(), "l": pa.list_(pa.float64())})


@examples(120)
@given(
    files=st.lists(st.tuples(ROWS, st.integers(1, 12)), min_size=1, max_size=6),
    compression=st.sampled_from(["none", "snappy", "zstd"]),
    dictionary=st.booleans(),
    index=st.booleans(),
)
def test_any_tables_in_any_row_groups(files: Any, compression: str, dictionary: bool, index: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = []
        for number, (rows, size) in enumerate(files):
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            table = pa.Table.from_arrays(
                [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )
            paths.append(f"{name}/{number}")
            pq.write_table(table, paths[-1], row_group_size=size, compression=compression,
                           use_dictionary=dictionary, write_page_index=index, data_page_size=64)  # fmt: skip
        joined(paths, Path(name) / "one")
        joined([f"{name}/one", paths[0]], Path(name) / "two")


# --- what is not joined ---


def test_files_that_differ_are_decoded_instead(tmp_path: Path) -> None:
    a, b = pa.table({"x": pa.array([1, 2], pa.int64())}), pa.table({"x": pa.array([3], pa.int32())})
    sources = written(tmp_path, [a, b])
    target = tmp_path / "target"
    with pytest.raises(NotJoinable):
        join_parquet(sources, str(target))
    assert not target.exists()
    staged = merge(MergeTask("parquet", False, tuple(sources), str(target)))
    assert staged is not None
    assert (staged.crc, staged.size) == checksum_file(target)
    assert pq.read_table(target).equals(pa.table({"x": pa.array([1, 2, 3], pa.int64())}))


def test_arrow_schemas_must_agree_and_other_entries_need_not(tmp_path: Path) -> None:
    table = pa.table({"x": ["a"]})
    zoned = table.set_column(0, "x", table["x"].dictionary_encode())  # the same Parquet schema
    sources = written(tmp_path, [table, zoned])
    with pytest.raises(NotJoinable, match="schemas"):
        join_parquet(sources, str(tmp_path / "target"))
    for number, path in enumerate(sources):
        with pq.ParquetWriter(path, table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"step": str(number)})
    assert joined(sources, tmp_path / "target").metadata.metadata[b"step"] == b"0"


def test_alike_files_are_merged_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_decode_and_encode", None)
    sources = written(tmp_path, [everything(0, 5), everything(0, 0), everything(5, 9)])
    staged = merge(MergeTask("parquet", False, tuple(sources), str(tmp_path / "target")))
    assert staged is not None
    assert (staged.crc, staged.size) == checksum_file(tmp_path / "target")
    assert pq.read_table(tmp_path / "target").equals(everything(0, 9))


def footer_of(path: str) -> tuple[bytes, bytes]:
    data = Path(path).read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length], data[-8 - length : -8]


def with_footer(path: Path, body: bytes, footer: bytes, magic: bytes = b"PAR1") -> str:
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + magic)
    return str(path)


def test_footers_are_written_as_they_were_read(tmp_path: Path) -> None:
    for raw in (footer_of(path)[1] for path in written(tmp_path, [everything(0, 50)], row_group_size=3)):
        out = bytearray()
        parquet_join._write_struct(out, thrift.Reader(raw).struct(0))
        assert bytes(out) == raw
    odd: Any = {
        3: (1, None),
        40: (9, (1, [b"\1", b"\2"])),
        5: (7, b"12345678"),
        -2: (3, b"x"),
        6: (9, (0, [])),
    }
    odd[7] = (9, (6, [-(2**63), 2**63 - 1, -1] * 9))
    out = bytearray()
    parquet_join._write_struct(out, odd)
    assert thrift.Reader(bytes(out)).struct(0) == odd


def test_encryption_and_unknown_fields_are_left_to_pyarrow(tmp_path: Path) -> None:
    body, raw = footer_of(written(tmp_path, [everything(0, 5)])[0])
    path = with_footer(tmp_path / "a", body, raw, b"PARE")
    with pytest.raises(NotJoinable):
        join_parquet([path], str(tmp_path / "target"))

    def group(meta: Any) -> Any:
        return meta[4][1][1][0]

    def chunk(meta: Any) -> Any:
        return group(meta)[1][1][1][0]

    def column(meta: Any) -> Any:
        return chunk(meta)[3][1]

    places = {(lambda meta: meta): (8, 9, 30), group: (8, 30), chunk: (1, 8, 9, 30), column: (18, 30)}
    for place, field in ((place, field) for place, fields in places.items() for field in fields):
        meta = thrift.Reader(raw).struct(0)
        place(meta)[field] = (8, b"?")
        out = bytearray()
        parquet_join._write_struct(out, meta)
        with pytest.raises(NotJoinable, match=f"field {field}"):
            join_parquet([with_footer(tmp_path / "a", body, bytes(out))], str(tmp_path / "target"))


def test_malformed_footers_are_told_and_nothing_is_written(tmp_path: Path) -> None:
    """Every byte of a footer is changed, and every cut is tried: a join, a refusal or a DamagedError, nothing else."""
    body, raw = footer_of(written(tmp_path, [pa.table({"a": [1, 2], "b": ["x", None]})])[0])
    told, path, target = 0, tmp_path / "a", tmp_path / "target"
    changes = [
        raw[:n] + bytes([raw[n] ^ flip]) + raw[n + 1 :] for n in range(len(raw)) for flip in (1, 16, 255)
    ]
    for footer in [*(raw[:n] for n in range(len(raw))), raw + b"\0", *changes]:
        try:
            join_parquet([with_footer(path, body, footer)], str(target))
            target.unlink()
        except (DamagedError, NotJoinable) as error:
            told += isinstance(error, DamagedError) and str(path) in str(error)
        assert not target.exists()
    assert told > len(raw)
    sound = path.with_name("source0.parquet").read_bytes()
    for data in (
        b"",
        b"PAR1PAR1",
        b"XXXX" + sound[4:],
        sound[:-1] + b"2",
        sound[:-8] + b"\xff" * 4 + b"PAR1",
    ):
        path.write_bytes(data)
        with pytest.raises(DamagedError, match="not a sound Parquet file"):
            join_parquet([str(path)], str(target))


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (b"\x28\xff\xff\xff\xff\x0f", "ends too early"),
        (b"\x29\xfc\xff\xff\xff\xff\x0f", "a list is longer"),
        (b"\x2c" * 5000, "too deeply"),
        (b"\x26" + b"\xff" * 11, "too long"),
        (b"\x2b\x00", "no type 11"),
        (b"\x10\x00", "no type 0"),
        (b"\x00\x00", "bytes after"),
        (b"\x00", "missing"),
    ],
)
def test_lengths_are_not_believed(tmp_path: Path, claim: bytes, told: str) -> None:
    with pytest.raises(DamagedError, match=told):
        join_parquet([with_footer(tmp_path / "a", b"PAR1", claim)], str(tmp_path / "target"))


def test_data_that_ends_too_early_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, raw = footer_of(written(tmp_path, [everything(0, 50)])[0])
    path = with_footer(tmp_path / "a", body[:-500], raw)
    with pytest.raises(DamagedError, match="not inside"):
        join_parquet([path], str(tmp_path / "target"))
    sound = with_footer(tmp_path / "a", body, raw)
    footer = parquet_join._joined_footer
    monkeypatch.setattr(
        parquet_join, "_joined_footer", lambda files: Path(sound).write_bytes(b"PAR1") and footer(files)
    )
    with pytest.raises(DamagedError, match="shorter"):
        join_parquet([sound], str(tmp_path / "target"))


# --- Spark ---

SPARK_COLUMNS = (
    "id",
    "cast(id % 5 as string) as word",
    "if(id % 3 = 0, null, id / 3) as third",
    "timestamp_micros(id * 1001001) as at",
    "timestamp_ntz'2020-01-01 00:00:00' as wall",
    "cast(id as decimal(25,3)) as price",
    "cast(id as decimal(9,2)) as cheap",
    "id % 2 = 0 as flag",
    "array(id, null) as list",
    "named_struct('a', id, 'b', array(cast(id as string))) as pair",
    "map(cast(id as string), id) as map",
)


# Pushed down to statistics, dictionaries and bloom filters.
CONDITIONS = ("true", "id = 5123", "id > 5600", "word = '3' and id < 7", "third is null", "id = 400")


@pytest.mark.sampled
@pytest.mark.spark
@pytest.mark.parametrize(
    ("timestamps", "options"),
    [
        (
            "TIMESTAMP_MICROS",
            {"parquet.bloom.filter.enabled#id": "true", "parquet.enable.dictionary": "false"},
        ),
        ("INT96", {"compression": "zstd", "parquet.block.size": "2000"}),
        ("INT96", {"compression": "uncompressed", "parquet.writer.version": "v2"}),
    ],
)
def test_spark_reads_what_spark_wrote(
    spark: Any, tmp_path: Path, timestamps: str, options: dict[str, str]
) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    bounds = [(0, 300), (300, 301), (5000, 5700)]
    frames = [spark.range(a, b, 1, 1).selectExpr(*SPARK_COLUMNS) for a, b in bounds]
    try:
        for number, frame in enumerate(frames):
            frame.write.options(**options).parquet(str(tmp_path / f"s{number}"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    sources = [str(next((tmp_path / f"s{n}").glob("part-*"))) for n in range(len(bounds))]
    joined(sources, tmp_path / "one.parquet")
    joined([str(tmp_path / "one.parquet"), *sources], tmp_path / "two.parquet")
    wanted = frames[0].union(frames[1]).union(frames[2])
    answers = {condition: sorted(wanted.where(condition).collect()) for condition in CONDITIONS}
    for vectorized, split in (("true", "20k"), ("false", "128m")):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorized)
        spark.conf.set(
            "spark.sql.files.maxPartitionBytes", split
        )  # a task takes the row groups whose middle it has
        try:
            found = spark.read.parquet(str(tmp_path / "one.parquet"))
            assert found.schema == spark.read.parquet(*sources).schema
            for condition, rows in answers.items():
                assert sorted(found.where(condition).collect()) == rows
            assert found.selectExpr("count(*)", "min(id)", "max(id)").collect()[0] == (1001, 0, 5699)
            assert spark.read.parquet(str(tmp_path / "two.parquet")).where("id >= 300").count() == 1402
        finally:
            spark.conf.unset("spark.sql.parquet.enableVectorizedReader")
            spark.conf.unset("spark.sql.files.maxPartitionBytes")
