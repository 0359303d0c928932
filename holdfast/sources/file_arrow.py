"""Reading slices of files without Spark: the same rows, by pyarrow. For local runs and tests.

Texts become values as in Spark with the session time zone UTC. Of Spark's csv options sep, delimiter, quote, escape,
comment and nullValue are understood; others are refused here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from holdfast.errors import ConfigError
from holdfast.language.connectors import POSITION_COLUMNS, Stamp
from holdfast.sources.file_plan import FilePlan, malformed_error
from holdfast.sources.line_tasks import MALFORMED, read_lines
from holdfast.sources.parquet_tasks import ParquetReader, read_pieces, with_positions
from holdfast.sources.small.certain_text import rows_of
from holdfast.sources.text.exact_strings import exact_strings
from holdfast.sources.text.odd_lines import odd
from holdfast.sources.text.values import column_of_texts, fields_of, json_row
from holdfast.state.columns.hashing import plain

_CSV_OPTIONS = frozenset({"sep", "delimiter", "quote", "escape", "comment", "nullvalue"})


def read(plan: FilePlan, stamp: Stamp | None) -> tuple[pa.Table, pa.Table]:
    """The slice's rows in position order, with position columns if `stamp` is given; and the malformed ones that were left
    out (MALFORMED, ordinal, row)."""
    if plan.format == "parquet":
        return read_pieces(plan.pieces, plan.schema, stamp), MALFORMED.empty_table()
    names = [*plan.schema.names, *(POSITION_COLUMNS if stamp is not None else ())]
    found = [_rows(run, stamp) for run in plan.runs()]
    return pa.concat_tables([rows.select(names) for rows, _ in found]), pa.concat_tables(
        [bad for _, bad in found]
    )


def read_certain(plan: FilePlan, stamp: Stamp | None) -> pa.Table | None:
    """The rows of a small slice of lines, if what Spark's reader makes of them is certain. No options were given."""
    if any(piece.path.endswith(".gz") for piece in plan.pieces):
        return None
    names, parts = [*plan.schema.names, *(POSITION_COLUMNS if stamp is not None else ())], []
    for run in plan.runs():
        lines = read_lines(run.ranges(1 << 62), run.rules)
        rows = rows_of(lines["__hf_text"].to_pylist(), run.format, run.schema)
        if rows is None:
            return None
        if stamp is not None:
            rows = with_positions(rows, stamp, lines["__hf_ordinal"], lines["__hf_row"])
        parts.append(rows.select(names))
    return pa.concat_tables(parts)


def read_few(plan: FilePlan, stamp: Stamp | None, rows_max: int) -> pa.Table | None:
    """The rows of a slice of Parquet files that tasks could read, if there are few of them: a small file may hold many."""
    if sum(pyarrow.parquet.read_metadata(piece.path).num_rows for piece in plan.pieces) > rows_max:
        return None
    positions = POSITION_COLUMNS if stamp is not None else ()
    return ParquetReader(plan.pieces, plan.schema, stamp)([*plan.schema.names, *positions])


def malformed(found: pa.Table, stamp: Stamp | None) -> pa.Table:
    """Malformed rows as a stream has them."""
    table = found.select(MALFORMED.names)
    return table if stamp is None else with_positions(table, stamp, found["__hf_ordinal"], found["__hf_row"])


def _rows(plan: FilePlan, stamp: Stamp | None) -> tuple[pa.Table, pa.Table]:
    """Rows of line-oriented files that have the same columns in the same order."""
    lines = read_lines(plan.ranges(1 << 62), plan.rules)
    table, bad = _parse(lines, plan)
    left_out = lines.slice(0, 0)
    if bad.any() and plan.malformed == "fail":
        first = lines.slice(int(np.flatnonzero(bad)[0]), 1).to_pylist()[0]
        raise malformed_error(plan, *(first[f"__hf_{name}"] for name in ("ordinal", "line", "text", "raw")))
    if bad.any() and plan.malformed != "null":
        left_out = lines.filter(pa.array(bad))
        table, lines = table.filter(pa.array(~bad)), lines.filter(pa.array(~bad))
    if stamp is not None:
        table = with_positions(table, stamp, lines["__hf_ordinal"], lines["__hf_row"])
    return table, plan.teller.told(left_out)


def _parse(lines: pa.Table, plan: FilePlan) -> tuple[pa.Table, Any]:
    """(rows, True where the row is malformed)."""
    texts = lines["__hf_text"]
    bad = np.zeros(len(texts), dtype=bool)
    if texts.null_count:
        bad |= texts.is_null().to_numpy()
    if plan.format == "text":
        return pa.table([texts], schema=plan.schema), bad
    if (broken := odd(texts, plan.format, plan.options)) is not None:
        bad |= broken.to_numpy(zero_copy_only=False) if isinstance(broken, pa.Array) else broken.to_numpy()
    if plan.format == "json":
        strings = exact_strings(plan.schema)
        lines = (texts if strings is None else strings.quoted(plain(texts))).to_pylist()
        rows = [json_row(text or "", plan.schema) for text in lines]
        bad |= np.fromiter((row.bad for row in rows), dtype=bool, count=len(rows))
        return pa.Table.from_pylist([row.values for row in rows], schema=plan.schema), bad
    columns = _csv_columns(texts.fill_null("") if texts.null_count else texts, plan, bad)
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
    separator = options.get("sep", options.get("delimiter", ","))
    data = "\n".join(texts.to_pylist()).encode()
    if (escape := options.get("escape", "\\").encode()) and escape in data:
        raise pa.ArrowInvalid("slow form: Arrow unescapes outside of quotes too")
    if (
        (quote := options.get("quote", '"').encode())
        and quote in data
        and _odd_quotes(quote, separator).search(data)
    ):
        raise pa.ArrowInvalid("slow form: Arrow goes on behind the end of quotes")
    table = pa.csv.read_csv(
        io.BytesIO(data),
        read_options=pa.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(1 << 20, len(data))
        ),
        parse_options=pa.csv.ParseOptions(
            delimiter=separator,
            quote_char=options.get("quote", '"') or False,
            escape_char=False,
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


def _odd_quotes(quote: bytes, separator: str) -> re.Pattern[bytes]:
    """Quotes that neither begin nor end a field."""
    q, inside = re.escape(quote), b"[^\n" + re.escape(quote + separator.encode()) + b"]"
    return re.compile(inside + q + inside + b"|" + q + q + inside + b"|" + inside + q + q + b"|" + q + q + q)


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
