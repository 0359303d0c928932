"""Which type of PostgreSQL a column is staged in, and which types of a table take it without changing a value. Pure."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from holdfast.sinks.database.rows import staged_type

Fit = Literal["same", "checked", "cast"]
"""same: any value fits. checked: some values may not, each epoch is tried before it is published. cast: the same, and the
type must be named."""

_WHOLE = {"smallint": 0, "integer": 1, "bigint": 2}
_TEXTS = ("text", "character varying", "character", "citext")
_SPELLED = ("uuid", "json", "jsonb", "inet", "cidr", "macaddr", "xml", "interval")
"""Types that are written as texts."""


def staging_type(kind: pa.DataType) -> str | None:
    """The type of a staged column; None: PostgreSQL has none for it."""
    kind = staged_type(kind)
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    simple = {
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.binary(): "bytea",
        pa.bool_(): "boolean",
        pa.date32(): "date",
        pa.time64("us"): "time without time zone",
    }
    return simple.get(kind)


def natural_type(kind: pa.DataType) -> str | None:
    """The type of a column of a table that is made for the stream."""
    return "jsonb" if pa.types.is_nested(kind) else staging_type(kind)


def fit(kind: pa.DataType, base: str, full: str, is_enum: bool) -> Fit | None:
    """How values of an Arrow type get into a column, of type `base` (`full` with its numbers, of which a domain has a name
    of its own); None: not without changing some."""
    staged = staging_type(kind)
    assert staged is not None
    name, _, numbers = staged.partition("(")
    if name == "text":
        if base in _TEXTS:
            return "same" if full in ("text", "character varying", "citext") else "checked"
        return "cast" if is_enum or base in _SPELLED else None
    if name in _WHOLE:
        if base in _WHOLE:
            return "same" if _WHOLE[base] >= _WHOLE[name] and base == full else "checked"
        if base == "numeric":
            return "same" if full == "numeric" else "checked"
        exact = base == "double precision" or (base == "real" and name == "smallint")
        return "checked" if exact and name != "bigint" else None
    if name == "numeric":
        return _numeric(numbers, base, full)
    if name == "real" and base == "double precision":
        return "same"
    if name.startswith(("timestamp", "time")) and base == name:
        return "same" if full in (name, name.replace(" ", "(6) ", 1)) else None
    return ("same" if base == full else "checked") if base == name else None


def _numeric(numbers: str, base: str, full: str) -> Fit | None:
    """Digits behind the point must all be kept; too many before it are noticed."""
    if base != "numeric":
        return None
    if full == "numeric":
        return "same"
    if not full.startswith("numeric("):
        return "checked"  # a domain
    precision, scale = map(int, numbers.rstrip(")").split(","))
    wide, fraction = (int(number) for number in full[len("numeric(") : -1].split(","))
    if fraction < scale:
        return None
    return "same" if wide - fraction >= precision - scale else "checked"
