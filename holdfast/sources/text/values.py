"""Values from text without Spark: csv fields and json lines as typed values, malformed ones marked instead of lost."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](.*))?)?)?", re.ASCII)
_SPECIAL = {
    "NaN": "nan",
    "Infinity": "inf",
    "+Infinity": "inf",
    "-Infinity": "-inf",
    "Inf": "inf",
    "-Inf": "-inf",
}


@dataclass(frozen=True, slots=True)
class JsonRow:
    """One json line. What could not be converted is None in `values`, and the row is `bad`."""

    values: dict[str, Any]
    bad: bool


def fields_of(text: str, options: dict[str, str]) -> list[str]:
    """The fields of one csv line, as Spark's parser sees them. Names of options are in lower case."""
    return _fields(text, options)[0]


def ends_open(text: str, options: dict[str, str]) -> bool:
    """Whether a quoted field of a csv line does not end on it."""
    return _fields(text, options)[1]


def _fields(text: str, options: dict[str, str]) -> tuple[list[str], bool]:
    separator = options.get("sep", options.get("delimiter", ","))
    separator = {"\\t": "\t"}.get(separator, separator)
    if len(separator) != 1:
        return text.split(separator), False
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    if not quote or quote not in text:
        return text.split(separator), False
    return _quoted_fields(text, separator, quote, escape)


def _quoted_fields(text: str, separator: str, quote: str, escape: str) -> tuple[list[str], bool]:
    """The fields, and whether the last one's quotes do not end. Only within quotes an escape means something, and only before a
    quote. A field whose quotes end too early is taken as it stands there."""
    fields, at, is_open = [], 0, False
    while True:
        value, end = None, at
        if text.startswith(quote, at):
            value, end, is_open = _quoted_field(text, at + 1, quote, escape)
        stop = text.find(separator, end)
        stop = len(text) if stop < 0 else stop
        fields.append(value if value is not None and end == stop else text[at:stop])
        if stop == len(text):
            return fields, is_open
        at = stop + 1


def _quoted_field(text: str, at: int, quote: str, escape: str) -> tuple[str, int, bool]:
    """(the value of a field whose first character behind the quote is at `at`, where it ended, whether no quote ended it)."""
    value = []
    while at < len(text) and text[at] != quote:
        if (
            escape
            and text[at] == escape
            and text[at + 1 : at + 3] in (escape + quote, quote + text[at + 2 : at + 3])
        ):
            at += 1
        value.append(text[at])
        at += 1
    return "".join(value), min(at + 1, len(text)), at >= len(text)


def column_of_texts(texts: Any, type_: pa.DataType) -> tuple[Any, Any]:
    """(typed column, True where a text is no such value). Nulls stay null."""
    fine = np.zeros(len(texts), dtype=bool)
    if pa.types.is_string(type_):
        return texts, fine
    try:
        return _cast(texts, type_), fine
    except pa.ArrowInvalid:
        pass
    values = []
    for number, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else value_of_text(text, type_))
        except (ValueError, ArithmeticError):
            values.append(None)
            fine[number] = True
    return pa.array(values, type_), fine


def _cast(texts: Any, type_: pa.DataType) -> Any:
    if pa.types.is_timestamp(type_):
        naive = pc.cast(texts, pa.timestamp("us"))
        return pc.assume_timezone(naive, "UTC") if type_.tz else naive
    if pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        raise pa.ArrowInvalid("slow form: Arrow reads more spellings than Spark")
    if pc.any(pc.match_substring_regex(texts, r"[^0-9eE.+-]")).as_py() and not pa.types.is_date(type_):
        raise pa.ArrowInvalid("slow form: hexadecimal numbers, or numbers that are none")
    return pc.cast(texts, type_)


def value_of_text(text: str, type_: pa.DataType) -> Any:
    """One value. Raises ValueError or ArithmeticError if the text is none of the type."""
    if pa.types.is_string(type_):
        return text
    if pa.types.is_binary(type_):
        return text.encode()
    if pa.types.is_boolean(type_):
        return _boolean(text)
    if pa.types.is_integer(type_):
        if not _WHOLE.fullmatch(text):
            raise ValueError(f"{text!r} is no whole number")
        return _fitting(int(text), type_)
    if pa.types.is_floating(type_):
        return _float(text)
    if pa.types.is_decimal(type_):
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{text!r} is no number")
        return _decimal(Decimal(text), type_)
    if pa.types.is_date(type_):
        return _moment(text)[0]
    if pa.types.is_timestamp(type_):
        return _timestamp(text, type_)
    raise ValueError(f"{type_} cannot be read from text")


def _float(text: str) -> float:
    """As Java reads it: Python knows more spellings."""
    text = text.strip()
    if text in _SPECIAL:
        return float(_SPECIAL[text])
    number = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"{text!r} is no number")
    return float(number)


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


def _fitting(value: int, type_: pa.DataType) -> int:
    if not -(1 << (type_.bit_width - 1)) <= value < 1 << (type_.bit_width - 1):
        raise ValueError(f"{value} is too big for {type_}")
    return value


def _decimal(value: Decimal, type_: pa.DataType) -> Decimal:
    try:
        rounded = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise ValueError(f"{value} does not fit {type_}") from None
    if rounded.adjusted() >= type_.precision - type_.scale and rounded:
        raise ValueError(f"{value} does not fit {type_}")
    return rounded


def _timestamp(text: str, type_: pa.DataType) -> datetime:
    day, rest = _moment(text)
    value = datetime.fromisoformat(f"{day.isoformat()}T{rest or '00'}")
    if not type_.tz:
        if value.tzinfo is not None:
            raise ValueError(f"{text!r} has a time zone")
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _moment(text: str) -> tuple[date, str | None]:
    """The day of a date or timestamp, and the text of its time."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no date")
    return date(int(found[1]), int(found[2] or 1), int(found[3] or 1)), found[4]


def json_row(text: str, schema: pa.Schema) -> JsonRow:
    """One line as a row; like Spark's PERMISSIVE mode, fields that fit are kept beside fields that do not."""
    try:
        found = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return JsonRow(dict.fromkeys(schema.names), True)
    values, bad = {}, False
    for field in schema:
        try:
            values[field.name] = _json_value(found.get(field.name), field.type)
        except (ValueError, ArithmeticError):
            values[field.name], bad = None, True
    return JsonRow(values, bad)


def reason_of(text: str | None, kind: str, schema: pa.Schema, options: dict[str, str]) -> str:
    """What is wrong with a line that is no row, for people; None: it is not UTF-8."""
    if text is None:
        return "it is not UTF-8"
    lowered = {name.lower(): value for name, value in options.items()}
    return _reason_json(text, schema) if kind == "json" else _reason_csv(text, schema, lowered)


def _reason_csv(text: str, schema: pa.Schema, options: dict[str, str]) -> str:
    if ends_open(text, options):
        return "a quoted field does not end on its line"
    fields = fields_of(text, options)
    if len(fields) != len(schema):
        return f"it has {len(fields)} fields, not {len(schema)}"
    for field, value in zip(schema, fields, strict=True):
        try:
            if value not in ("", options.get("nullvalue", "")):
                value_of_text(value, field.type)
        except (ValueError, ArithmeticError):
            return f"{field.name}: {_short(value)} is no {field.type}"
    return "its values do not fit"


def _reason_json(text: str, schema: pa.Schema) -> str:
    try:
        found = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    if isinstance(found, list):
        return "it is a JSON array, and a line holds one object"
    if not isinstance(found, dict):
        return "it is no JSON object"
    for field in schema:
        try:
            _json_value(found.get(field.name), field.type)
        except (ValueError, ArithmeticError):
            return f"{field.name}: {_short(found[field.name])} is no {field.type}"
    return "its values do not fit"


def _short(value: Any) -> str:
    text = repr(float(value) if isinstance(value, Decimal) else value)
    return text if len(text) <= 60 else text[:60] + "…"


def _json_value(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_string(type_):
        return _json_text(value)
    if pa.types.is_struct(type_):
        return {field.name: _json_value(_of(value, dict).get(field.name), field.type) for field in type_}
    if pa.types.is_list(type_):
        return [_json_value(item, type_.value_type) for item in _of(value, list)]
    if pa.types.is_map(type_):
        return [
            (_json_text(key), _json_value(item, type_.item_type)) for key, item in _of(value, dict).items()
        ]
    if pa.types.is_boolean(type_):
        return _of(value, bool)
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return value_of_text(str(_of(value, int, Decimal)), type_)
    if pa.types.is_integer(type_):
        return _fitting(_of(value, int), type_)
    return value_of_text(_of(value, str), type_)


def _json_text(value: Any) -> str:
    """What no character set can encode, half of a pair of surrogates, is a question mark, as in Java."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=float)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _of(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{value!r} is no {kinds[0].__name__}")
    return value
