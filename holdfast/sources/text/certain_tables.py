"""Blocks of csv or JSON lines as tables, by Arrow, where it is certain what Spark's reader makes of them.

Arrow's parsers are ten times as fast, but accept other texts than Spark's: whole numbers with blanks or in hexadecimal, rows over
several lines, `nan`. So a block is looked through for whatever might mean another thing, and at the first doubt it is
Declined, as a whole: Spark's reader then takes the slice, and tells what is wrong with it, if anything is. Nothing here is about
errors. Must hold: what is accepted is what Spark reads, with any session and no options; `tests/sources/test_certain_tables.py` compares both.
"""

from __future__ import annotations

import io
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from holdfast.language.connectors import Declined

CORRUPT = "_corrupt_record"
"""Spark fills a column of this name itself."""
LINE_MAX = 1 << 14
"""Bytes: longer lines come near to limits that parsers have."""

_DAY = r"(19[789][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"T([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,6})?"
_HEX = re.compile(rb"0[xX]")
_MINUS_ZERO = re.compile(rb"-0[,}\s]")
_BOM = b"\xef\xbb\xbf"
_NEWLINE, _BLANK, _COMMA = 10, 32, 44


def is_known(kind: str, schema: pa.Schema) -> bool:
    """Whether texts of this kind with these columns can be certain at all."""
    decimals = kind == "json" and any(map(pa.types.is_decimal, schema.types))
    return (
        kind in ("csv", "json")
        and CORRUPT not in schema.names
        and all(map(_is_known, schema.types))
        and not decimals
    )


def _is_known(type_: pa.DataType) -> bool:
    return bool(_is_direct(type_) or _pattern(type_) or _is_boolean(type_))


def _is_direct(type_: pa.DataType) -> bool:
    """Arrow's parsers make values of it themselves."""
    types = pa.types
    return bool(types.is_signed_integer(type_) or types.is_float64(type_) or types.is_string(type_))


def table_of(data: bytes, kind: str, schema: pa.Schema) -> pa.Table:
    """The rows of whole lines; `schema` has the columns in the order in which csv has them. Declined in doubt."""
    if not data:
        return schema.empty_table()
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    _look_at_bytes(data, lines)
    try:
        parsed = _csv(data, schema) if kind == "csv" else _json(data, lines, schema)
        columns = [_typed(parsed.column(field.name), field.type) for field in schema]
    except (pa.ArrowException, ValueError) as error:
        raise Declined(f"{kind}: {error}") from error
    if parsed.num_rows != lines:
        raise Declined(f"{lines} lines are {parsed.num_rows} rows")
    return pa.Table.from_arrays(columns, schema=schema)


def _look_at_bytes(data: bytes, lines: int) -> None:
    """Whatever neither format may have: it is escaped, quoted, or ends lines in another way."""
    if any(odd in data for odd in (b"\\", b"\r", b"\x00", b"\n\n")) or data.startswith((b"\n", _BOM)):
        raise Declined("escapes, blank lines or other ends of lines")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if np.diff(ends, prepend=-1, append=len(data)).max(initial=0) > LINE_MAX:
        raise Declined("a long line")
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise Declined("bytes that are not UTF-8") from error


# --- csv ---


def _csv(data: bytes, schema: pa.Schema) -> pa.Table:
    if b'"' in data:
        raise Declined("quotes")
    table = pa.csv.read_csv(
        io.BytesIO(data),
        pa.csv.ReadOptions(use_threads=False, column_names=schema.names, block_size=len(data) + 1),
        pa.csv.ParseOptions(quote_char=False, escape_char=False, ignore_empty_lines=False),
        pa.csv.ConvertOptions(
            column_types={f.name: f.type if _is_direct(f.type) else pa.string() for f in schema},
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    if any(map(pa.types.is_signed_integer, schema.types)) and _HEX.search(data):
        raise Declined("what may be a hexadecimal number")
    _look_at_blanks(np.frombuffer(data, np.uint8))
    return table


def _look_at_blanks(codes: npt.NDArray[np.uint8]) -> None:
    """Arrow leaves blanks around numbers out, Spark refuses some of them; around texts it depends on options."""
    blank = (codes <= _BLANK) & (codes != _NEWLINE)
    if not blank.any():
        return
    edge = (codes == _COMMA) | (codes == _NEWLINE)
    if blank[0] or blank[-1] or (blank[1:] & edge[:-1]).any() or (blank[:-1] & edge[1:]).any():
        raise Declined("blanks around a value")


# --- JSON ---


def _json(data: bytes, lines: int, schema: pa.Schema) -> pa.Table:
    flat = data.count(b"{") == lines == data.count(b"}") and b"[" not in data
    if not flat or not data.startswith(b"{") or data.count(b"\n{") != lines - 1:
        raise Declined("lines that are not one flat object each")
    if not data.endswith((b"}", b"}\n")) or data.count(b"}\n") != data.count(b"\n"):
        raise Declined("lines that end behind their object")
    if _MINUS_ZERO.search(data):
        raise Declined("-0")
    direct = pa.schema([(field.name, _json_type(field.type)) for field in schema])
    return pa.json.read_json(
        io.BytesIO(data),
        pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa.json.ParseOptions(explicit_schema=direct, unexpected_field_behavior="ignore"),
    )


def _json_type(type_: pa.DataType) -> pa.DataType:
    """As what Arrow's parser shall read it. Decimals would have to be strings there: only nulls are the same."""
    if _is_direct(type_) or _is_boolean(type_):
        return type_
    return pa.null() if pa.types.is_decimal(type_) else pa.string()


# --- values ---


def _typed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    """A column as its type. Texts of times, of truth and of decimals have one spelling each that is certain."""
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        found = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], column.type)
    if found.type == type_:
        if pa.types.is_floating(type_) and pc.any(pc.invert(pc.is_finite(found))).as_py():
            raise Declined("a number that is none")
        return found
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), type_)
    if not pa.types.is_string(found.type):
        raise Declined(f"{found.type} instead of {type_}")
    pattern = "^(true|false)$" if _is_boolean(type_) else _pattern(type_)
    if pattern is None or pc.any(pc.invert(pc.match_substring_regex(found, pattern))).as_py():
        raise Declined(f"another spelling of a {type_}")
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        found = pc.utf8_slice_codeunits(found, 0, -1)  # without its Z
        return found.cast(pa.timestamp("us")).cast(type_)
    return found.cast(type_)


def _pattern(type_: pa.DataType) -> str | None:
    """Texts that mean one value of a type, whatever the session; None: there are none."""
    types = pa.types
    if types.is_date32(type_):
        return f"^{_DAY}$"
    if types.is_timestamp(type_) and type_.unit == "us" and type_.tz in (None, "UTC"):
        return f"^{_DAY}{_CLOCK}{'Z' if type_.tz else ''}$"
    if types.is_decimal128(type_) and type_.precision > type_.scale:
        fraction = rf"(\.[0-9]{{1,{type_.scale}}})?" if type_.scale else ""
        return rf"^-?(0|[1-9][0-9]{{0,{type_.precision - type_.scale - 1}}}){fraction}$"
    return None


def _is_boolean(type_: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(type_))
