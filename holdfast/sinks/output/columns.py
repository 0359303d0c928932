"""Which columns a file sink can write: asked when the topology is compiled, so that nothing is found out amid a run."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.errors import ConfigError

_types = pa.types


def check_columns(schema: pa.Schema, format: str, partition_by: Sequence[str], where: str) -> None:
    """ConfigError, in one sentence, for the first column that cannot be written to `where`."""
    for name in partition_by:
        _check_partition(schema, name, where)
    if partition_by and len(partition_by) == len(schema):
        raise ConfigError(
            f"all columns of {where} are partition columns: nothing is left for the files.",
            cure="Leave one column out of partition_by.",
        )
    for field in schema:
        if field.name not in partition_by and (cure := _refused(field.type, format)):
            raise ConfigError(
                f"{format} files cannot hold the column {field.name!r} ({field.type}) of {where}.",
                cure=cure.replace("COLUMN", field.name),
            )


def _check_partition(schema: pa.Schema, name: str, where: str) -> None:
    if schema.names.count(name) != 1:
        raise ConfigError(
            f"{where} cannot be partitioned by {name!r}: its columns are {', '.join(schema.names)}.",
            cure="Name columns of the stream in partition_by, spelled as they are there.",
        )
    of = schema.field(name).type
    if not (_is_text(of) or _types.is_integer(of) or _types.is_boolean(of) or _types.is_date(of)):
        raise ConfigError(
            f"{where} cannot be partitioned by {name!r} ({of}): partitions are texts, whole numbers, booleans or dates.",
            cure=f"Add a column to partition by: to_date({name}) of a time, or a cast to string.",
        )


def _refused(of: pa.DataType, format: str) -> str:
    """What to do in place of writing such a column; empty if it can be written."""
    if _types.is_null(of):
        return "Give it a type: cast(null as string) as COLUMN."
    if format == "parquet":
        return next((cure for inner in _inner(of) if (cure := _refused(inner, format))), "")
    if _types.is_binary(of) or _types.is_large_binary(of) or _types.is_fixed_size_binary(of):
        return "Write parquet, or text in its place: base64(COLUMN) as COLUMN."
    if format == "csv" and _inner(of):
        return "Write json or parquet, or text in its place: to_json(COLUMN) as COLUMN."
    if _types.is_map(of) and not _is_text(of.key_type):
        return "Write parquet, or a map with texts as keys."
    return next((cure for inner in _inner(of) if (cure := _refused(inner, format))), "")


def _inner(of: pa.DataType) -> list[pa.DataType]:
    """The types inside of a nested one."""
    return [of.field(number).type for number in range(of.num_fields)] if _types.is_nested(of) else []


def _is_text(of: pa.DataType) -> bool:
    return bool(_types.is_string(of) or _types.is_large_string(of))
