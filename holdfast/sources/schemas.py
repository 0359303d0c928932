"""Schemas of sources: given as Arrow or DDL text, or inferred once; and their Spark twin."""

from __future__ import annotations

import io
import os
import zlib
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from holdfast.errors import ConfigError, InputError
from holdfast.sources.lines import LineRules, open_lines
from holdfast.sources.text.csv_header import refuse_row_as_header

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TEXT = pa.schema([pa.field("value", pa.string())])
_SAMPLE_BYTES = 4 << 20

_UTC = pa.timestamp("us", tz="UTC")


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema whose Arrow form is `schema`. Timestamps with a zone are TIMESTAMP, without TIMESTAMP_NTZ."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_of(schema: StructType) -> pa.Schema:
    """The Arrow schema of rows as Spark gives them: its TIMESTAMP is in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4.2 the zone cannot be named: it is UTC unless one asks for none.
    if "timezone" not in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema)
    return to_arrow_schema(schema, timezone="UTC")


def spark_frame(session: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a DataFrame. In one piece: behind two empty record batches Spark 4 finds no more rows, and tells nobody."""
    return session.createDataFrame(table.combine_chunks(), spark_schema(table.schema))


def spark_type(type_: pa.DataType) -> pa.DataType:
    """The Arrow type Spark reads a file's Arrow type as."""
    if pa.types.is_dictionary(type_):
        return spark_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_null(type_) or pa.types.is_time(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    if pa.types.is_unsigned_integer(type_):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}
        return wider[type_.bit_width]
    if pa.types.is_timestamp(type_):
        return _UTC if type_.tz else pa.timestamp("us")
    if pa.types.is_map(type_):
        return pa.map_(spark_type(type_.key_type), spark_type(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(spark_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in type_])
    return type_


def infer(path: str, kind: str, header: bool, options: dict[str, str]) -> pa.Schema | None:
    """The schema of one file; None if it holds no row to learn from."""
    try:
        if kind == "parquet":
            return _plain(_parquet_schema(path))
        sample = _sample(path)
        if not sample.strip():
            return None
        schema = _infer_json(sample) if kind == "json" else _infer_csv(sample, header, options)
        if kind == "csv" and header:
            refuse_row_as_header(path, schema.names)
        return schema
    except (pa.ArrowInvalid, OSError, EOFError, zlib.error) as error:
        raise InputError(f"no schema can be inferred from {path}: {error}.", cure="Give a schema.") from error


def _parquet_schema(path: str) -> pa.Schema:
    """The footer's schema; Spark's INT96 timestamps, which Arrow shows without a zone, are instants."""
    file = pa.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
    instants = {
        column.path
        for column in map(file.schema.column, range(len(file.schema)))
        if column.physical_type == "INT96"
    }
    fields = [field.with_type(_UTC) if field.name in instants else field for field in file.schema_arrow]
    return pa.schema(fields)


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in schema])


def _sample(path: str) -> bytes:
    """Whole lines from the file's beginning."""
    with open_lines(path) as file:
        data = file.read(_SAMPLE_BYTES)
    if len(data) < _SAMPLE_BYTES:
        return data
    return data[: data.rfind(b"\n") + 1] or data


def _infer_csv(sample: bytes, header: bool, options: dict[str, str]) -> pa.Schema:
    delimiter = options.get("sep", options.get("delimiter", ","))
    parse = pa.csv.ParseOptions(delimiter=delimiter, quote_char=options.get("quote", '"') or False)
    read = pa.csv.ReadOptions(autogenerate_column_names=not header)
    table = pa.csv.read_csv(io.BytesIO(sample), read_options=read, parse_options=parse)
    fields = []
    for number, field in enumerate(table.schema):
        # A timestamp without zone in a text file is an instant in the session's zone, as in Spark.
        type_ = _UTC if pa.types.is_timestamp(field.type) else spark_type(field.type)
        fields.append(pa.field(field.name if header else f"_c{number}", type_))
    return pa.schema(fields)


def _infer_json(sample: bytes) -> pa.Schema:
    schema = pa.json.read_json(io.BytesIO(sample)).schema
    return pa.schema([pa.field(field.name, _json_type(field.type)) for field in schema])


def _json_type(type_: pa.DataType) -> pa.DataType:
    """As Spark infers: texts stay texts even if they look like times."""
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_json_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _json_type(field.type)) for field in type_])
    return spark_type(type_)


_RESERVED = frozenset(
    [
        "mode",
        "columnnameofcorruptrecord",
        "multiline",
        "linesep",
        "encoding",
        "charset",
        "header",
        "columnpruning",
        "enforceschema",
        "wholetext",
        "pathglobfilter",
        "recursivefilelookup",
        "modifiedbefore",
        "modifiedafter",
        "mergeschema",
        "basepath",
        "ignorecorruptfiles",
        "ignoremissingfiles",
    ]
)


def check_options(options: dict[str, Any]) -> dict[str, str]:
    """The reader options as text. Options that would change what a row is are refused."""
    for name in options:
        if name.lower() in _RESERVED:
            raise ConfigError(
                f"the file option {name!r} cannot be set: rows are counted line by line in UTF-8 files.",
                cure="Use the arguments of Files (header, malformed, recursive), or prepare the files.",
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }


def line_rules(kind: str, header: bool, options: dict[str, str]) -> LineRules:
    """Which lines of these files are rows."""
    lowered = {name.lower(): value for name, value in options.items()}
    return LineRules(kind, header and kind == "csv", lowered.get("comment") if kind == "csv" else None)


def refuse_foreign_compression(path: str) -> None:
    """Spark would uncompress these by their suffix; we cannot cut them."""
    suffix = os.path.splitext(path)[1]
    if suffix in {".bz2", ".zst", ".lz4", ".snappy", ".deflate"}:
        raise InputError(
            f"{path}: files compressed as {suffix} cannot be cut by rows.", cure="Use gzip or none."
        )
