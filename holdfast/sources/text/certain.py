"""A few lines of text as rows, in the driver, where nobody could read them otherwise: what Spark's reader makes of them is certain.

It declines at the first doubt, and Spark's reader takes the slice as a whole: whatever is malformed, or only unusual (quotes, escapes,
spellings of numbers, times without a zone). So nothing here is about errors. Must hold: what it accepts is what Spark reads, with any
session; `tests/sources/test_certain_text.py` compares both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

LINE_MAX = 1 << 14
"""Characters: longer lines come near to limits that parsers have."""
CORRUPT = "_corrupt_record"
"""Spark fills a column of this name itself."""

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_DAY = r"(19[789][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_DATE = re.compile(_DAY)
_TIME = re.compile(_DAY + r"T([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,6})?")
_LONG_DIGITS = re.compile(r"[0-9]{40}")
_UNUSUAL_CSV = re.compile(r'["\\\r\x00]')

Reader = Callable[[Any], Any]
"""A value of a type from what stands in the text. Raises ValueError in doubt."""


class Doubt(ValueError):
    """Only Spark's reader knows."""


def rows_of(lines: Sequence[str | None], kind: str, schema: pa.Schema) -> pa.Table | None:
    """The rows of lines without their ends, read with no options; `schema` has the columns in the order in which csv has them. None: ask
    Spark's reader."""
    try:
        readers = [_reader(kind, field.type) for field in schema]
        if CORRUPT in schema.names:
            raise Doubt
        columns = _columns([_usual(line) for line in lines], kind, schema.names, readers)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    except (ValueError, ArithmeticError, RecursionError, pa.ArrowException):
        return None


def _usual(line: str | None) -> str:
    if line is None or len(line) > LINE_MAX or "\r" in line or _LONG_DIGITS.search(line):
        raise Doubt
    return line


def _columns(lines: list[str], kind: str, names: Sequence[str], readers: Sequence[Reader]) -> list[list[Any]]:
    match kind:
        case "json":
            found = [_object(line) for line in lines]
            return [
                [None if (value := row.get(name)) is None else read(value) for row in found]
                for name, read in zip(names, readers, strict=True)
            ]
        case "csv":
            rows = [_fields(line, len(names)) for line in lines]
            return [
                [None if not row[at] else read(row[at]) for row in rows] for at, read in enumerate(readers)
            ]
        case "text":
            return [list(lines)]
    raise Doubt


# --- lines ---


def _object(line: str) -> dict[str, Any]:
    if line.count("[") + line.count("{") > 50:
        raise Doubt
    found = json.loads(
        line, object_pairs_hook=_once, parse_float=Decimal, parse_int=int, parse_constant=_refuse
    )
    if not isinstance(found, dict):
        raise Doubt
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Doubt  # of a name that comes twice one parser takes the first, another the last
    return found


def _refuse(constant: str) -> Any:
    raise Doubt


def _fields(line: str, width: int) -> list[str]:
    fields = line.split(",")
    if len(fields) != width or _UNUSUAL_CSV.search(line):
        raise Doubt
    return fields


# --- values ---


def _reader(kind: str, type_: pa.DataType) -> Reader:
    """How values of a type are read from csv texts or from what a JSON parser found."""
    number = _json_number if kind == "json" else _csv_number
    if pa.types.is_string(type_):
        return _string if kind != "csv" else _csv_string
    if pa.types.is_signed_integer(type_):
        whole = _json_whole if kind == "json" else _csv_whole
        least, most = -(1 << (type_.bit_width - 1)), (1 << (type_.bit_width - 1)) - 1
        return lambda value: _within(whole(value), least, most)
    if pa.types.is_boolean(type_):
        return _json_boolean if kind == "json" else _csv_boolean
    if pa.types.is_float64(type_):
        return lambda value: float(number(value))
    if pa.types.is_decimal128(type_):
        return lambda value: _exact(number(value), type_.precision, type_.scale)
    if pa.types.is_date32(type_):
        return _date
    if pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return _instant if type_.tz else _clock_time
    raise Doubt


def _string(value: Any) -> str:
    if not isinstance(value, str) or any("\ud800" <= char <= "\udfff" for char in value):
        raise Doubt
    return value


def _csv_string(text: str) -> str:
    if text[0] <= " " or text[-1] <= " ":
        raise Doubt
    return text


def _json_whole(value: Any) -> int:
    if type(value) is not int:
        raise Doubt
    return value


def _csv_whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise Doubt
    return int(text)


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise Doubt
    return value


def _json_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Doubt
    return value


def _csv_boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise Doubt
    return text == "true"


def _json_number(value: Any) -> Decimal:
    if type(value) not in (int, Decimal):
        raise Doubt
    return _csv_number(str(value))


def _csv_number(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise Doubt
    return Decimal(text)


def _exact(value: Decimal, precision: int, scale: int) -> Decimal:
    """Without rounding, and with room."""
    rounded = value.quantize(Decimal(1).scaleb(-scale))
    if rounded != value or (rounded and rounded.adjusted() >= precision - scale):
        raise Doubt
    return rounded


def _date(value: Any) -> date:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise Doubt
    return date.fromisoformat(value)


def _clock_time(value: Any) -> datetime:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise Doubt
    return datetime.fromisoformat(value)


def _instant(value: Any) -> datetime:
    """With its zone: without one the session's would count."""
    if not isinstance(value, str) or not value.endswith("Z"):
        raise Doubt
    return _clock_time(value[:-1]).replace(tzinfo=UTC)
