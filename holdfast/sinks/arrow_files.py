"""Writing a table without Spark, in the form Spark's writers give it."""

from __future__ import annotations

import base64
import csv
import json
import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import ConfigError
from holdfast.sinks.encoding import encodings

_MARK = "\x00decimal:"
_DECIMAL = re.compile(r'"\\u0000decimal:([-0-9.]+)"')


def write_table(table: pa.Table, path: Path, format: str, header: bool, options: Mapping[str, str]) -> None:
    """One file with all rows of the table."""
    if format == "parquet":
        compression = options.get("compression", "snappy")
        pq.write_table(table, path, compression=compression, **encodings(table))
        return
    if unknown := sorted({name.lower() for name in options} - {"sep", "delimiter"}):
        raise ConfigError(f"the option {unknown[0]!r} needs Spark.", cure="Leave it out, or run with Spark.")
    with open(path, "x", encoding="utf-8", newline="") as file:
        if format == "json":
            for row in table.to_pylist(maps_as_pydicts="strict"):
                file.write(json_line(row) + "\n")
            return
        separator = options.get("sep", options.get("delimiter", ","))
        writer = csv.writer(
            file, delimiter=separator, escapechar="\\", doublequote=False, lineterminator="\n"
        )
        if header:
            writer.writerow(table.column_names)
        columns = [column.to_pylist() for column in table.columns]
        writer.writerows([csv_field(value) for value in row] for row in zip(*columns, strict=True))


def csv_field(value: Any) -> Any:
    """A value as text; None becomes an empty field."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return plain(value)


def json_line(row: Mapping[str, Any]) -> str:
    """A row as Spark writes it: fields that are null are left out, decimals are numbers with all their digits."""
    fields = {name: value for name, value in row.items() if value is not None}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=_json_default)
    return _DECIMAL.sub(r"\1", text)


def _json_default(value: Any) -> Any:
    return f"{_MARK}{value:f}" if isinstance(value, Decimal) else plain(value)


def plain(value: Any) -> Any:
    """Times (milliseconds), dates and bytes as Spark's text writers spell them by default."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds")
        return text.removesuffix("+00:00") + ("Z" if text.endswith("+00:00") else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value
