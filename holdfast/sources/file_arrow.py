"""Reading slices of files without Spark: the same rows, by pyarrow. For local runs and tests.

Texts become values as in Spark with the session time zone UTC. Of Spark's csv options sep, delimiter, quote, escape,
comment and nullValue are understood; others are refused here.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from holdfast.errors import ConfigError
from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Stamp
from holdfast.sources.file_plan import FilePlan, malformed_error
from holdfast.sources.line_tasks import read_lines
from holdfast.sources.text_values import column_of_texts, fields_of, json_row

_CSV_OPTIONS = frozenset({"sep", "delimiter", "quote", "escape", "comment", "nullvalue"})


def read(plan: FilePlan, stamp: Stamp | None) -> pa.Table:
    """The slice's rows in position order, with position columns if `stamp` is given."""
    if plan.format == "parquet":
        return _parquet(plan, stamp)
    names = [*plan.schema.names, *(POSITION_COLUMNS if stamp is not None else ())]
    return pa.concat_tables([_rows(run, stamp).select(names) for run in plan.runs()])


def _rows(plan: FilePlan, stamp: Stamp | None) -> pa.Table:
    """Rows of line-oriented files that have the same columns in the same order."""
    lines = read_lines(plan.ranges(1 << 62), plan.rules)
    table, bad = _parse(lines, plan)
    if bad.any() and plan.malformed == "fail":
        first = lines.slice(int(np.flatnonzero(bad)[0]), 1).to_pylist()[0]
        raise malformed_error(
            plan.piece(first["__hf_ordinal"]), first["__hf_line"], first["__hf_text"], plan.schema
        )
    positions = lines.select(["__hf_ordinal", "__hf_row"])
    if bad.any() and plan.malformed == "drop":
        table, positions = table.filter(pa.array(~bad)), positions.filter(pa.array(~bad))
    if stamp is None:
        return table
    return with_positions(table, stamp, positions["__hf_ordinal"], positions["__hf_row"])


def with_positions(table: pa.Table, stamp: Stamp, ordinals: Any, rows: Any) -> pa.Table:
    """The table with the three position columns appended."""
    source = pa.array(np.full(table.num_rows, stamp.source_index, dtype=np.int32))
    for field, column in zip(POSITION_FIELDS, (source, ordinals, rows), strict=True):
        table = table.append_column(field, column)
    return table


def _parse(lines: pa.Table, plan: FilePlan) -> tuple[pa.Table, Any]:
    """(rows, True where the row is malformed)."""
    texts = lines["__hf_text"]
    bad = np.zeros(len(texts), dtype=bool)
    if plan.format == "text":
        return pa.table([texts], schema=plan.schema), bad
    if plan.format == "json":
        rows = [json_row(text, plan.schema) for text in texts.to_pylist()]
        bad |= np.fromiter((row.bad for row in rows), dtype=bool, count=len(rows))
        return pa.Table.from_pylist([row.values for row in rows], schema=plan.schema), bad
    columns = _csv_columns(texts, plan, bad)
    arrays = []
    for field, column in zip(plan.schema, columns, strict=True):
        array, wrong = column_of_texts(column, field.type)
        bad |= wrong
        arrays.append(array)
    return pa.table(arrays, schema=plan.schema), bad


def _csv_columns(texts: Any, plan: FilePlan, bad: Any) -> list[Any]:
    """The fields of every line as text columns; lines with too many or too few fields are marked in `bad`."""
    options = {name.lower(): value for name, value in plan.options.items()}
    if unknown := sorted(set(options) - _CSV_OPTIONS):
        raise ConfigError(
            f"the csv option {unknown[0]!r} needs Spark.", cure="Leave it out, or run with Spark."
        )
    if not len(texts):
        return [pa.array([], pa.string()) for _ in plan.schema]
    try:
        return _csv_fast(texts, len(plan.schema), options)
    except pa.ArrowInvalid:
        return _csv_careful(texts.to_pylist(), len(plan.schema), options, bad)


def _csv_fast(texts: Any, width: int, options: dict[str, str]) -> list[Any]:
    names = [f"c{number}" for number in range(width)]
    data = "\n".join(texts.to_pylist()).encode()
    table = pa.csv.read_csv(
        io.BytesIO(data),
        read_options=pa.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(1 << 20, len(data))
        ),
        parse_options=pa.csv.ParseOptions(
            delimiter=options.get("sep", options.get("delimiter", ",")),
            quote_char=options.get("quote", '"') or False,
            escape_char=options.get("escape", "\\") or False,
            double_quote=False,
            ignore_empty_lines=False,
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", options["nullvalue"]] if "nullvalue" in options else [""],
            strings_can_be_null=True,
        ),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("a quoted field goes over a line's end")
    return list(table.columns)


def _csv_careful(texts: Sequence[str], width: int, options: dict[str, str], bad: Any) -> list[Any]:
    """One line after the other, as Spark's parser sees them."""
    columns: list[list[str | None]] = [[] for _ in range(width)]
    null = {"", options.get("nullvalue", "")}
    for number, text in enumerate(texts):
        fields: list[str | None] = [*fields_of(text, options)]
        bad[number] |= len(fields) != width
        for column, value in zip(columns, (fields + [None] * width)[:width], strict=True):
            column.append(None if value in null else value)
    return [pa.array(column, pa.string()) for column in columns]


def _parquet(plan: FilePlan, stamp: Stamp | None) -> pa.Table:
    parts = []
    for piece in plan.pieces:
        file = pq.ParquetFile(piece.path, coerce_int96_timestamp_unit="us")
        table = _conform(file.read(), plan.schema)
        end = table.num_rows if piece.end is None else piece.end.row
        begin = piece.begin.row
        table = table.slice(begin, end - begin)
        if stamp is not None:
            ordinals = np.full(table.num_rows, piece.ordinal, dtype=np.int64)
            rows = np.arange(begin, begin + table.num_rows, dtype=np.int64)
            table = with_positions(table, stamp, pa.array(ordinals), pa.array(rows))
        parts.append(table)
    if parts:
        return pa.concat_tables(parts)
    schema = plan.schema if stamp is None else pa.schema([*plan.schema, *POSITION_FIELDS])
    return schema.empty_table()


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The schema's columns in its order; a column the file lacks is null."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table[field.name]
        if (
            pa.types.is_timestamp(column.type)
            and not column.type.tz
            and field.type == pa.timestamp("us", tz="UTC")
        ):
            column = column.cast(pa.timestamp("us"), safe=False)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)
