"""Values without children, one `Leaf` per type: time, exact numbers, NumPy and Arrow.

A leaf packs a value into bytes (`raw`) or into something msgpack writes itself, and builds it back from that.
Building checks what it is given: the bytes may be damaged.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from holdfast.state.columns import arrow_frames
from holdfast.state.values import codes


class NotStorable(Exception):
    """A value of a supported type that cannot be stored; the text continues "attribute 'x' …"."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """How one type is stored. `raw`: the packed form is bytes, not a msgpack object."""

    code: int
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]
    raw: bool = False


def find(kind: type) -> Leaf | None:
    """The leaf for exactly this type; None if it is not one."""
    leaf = _LEAVES.get(kind)
    if leaf is None and issubclass(kind, np.generic):
        return None if kind.__module__ != "numpy" or kind is np.object_ else _NUMPY_SCALAR
    if leaf is None and kind.__module__ == "pyarrow.lib":
        return next((leaf for base, leaf in _ARROW_FAMILIES if issubclass(kind, base)), None)
    return leaf


def by_code(code: int) -> Leaf:
    try:
        return _BY_CODE[code]
    except KeyError:
        raise ValueError(f"no type has the code {code}") from None


# --- numbers --------------------------------------------------------------------------------------------------------


def big_int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _pack_int(value: int) -> int | bytes:
    return value if -(1 << 63) <= value < 1 << 63 else big_int_bytes(value)


def _unpack_int(body: Any) -> int:
    if type(body) is bytes:
        return int.from_bytes(body, "big", signed=True)
    if type(body) is not int:
        raise ValueError("an integer is expected")
    return body


def _ints(body: Any) -> list[int]:
    return [_unpack_int(part) for part in body]


def _unpack_decimal(body: Any) -> Decimal:
    if type(body) is not str:
        raise ValueError("a decimal is stored as text")
    return Decimal(body)


# --- time -----------------------------------------------------------------------------------------------------------


def _pack_timezone(zone: dt.timezone) -> Any:
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
    return [*_pack_timedelta(offset), *name]


def _unpack_timezone(body: Any) -> dt.timezone:
    days, seconds, micros, *name = body
    return dt.timezone(dt.timedelta(days, seconds, micros), *name)


def _pack_zone(zone: ZoneInfo) -> str:
    if zone.key is None or ZoneInfo(zone.key) is not zone:
        raise NotStorable("holds a ZoneInfo that its name does not bring back")
    return zone.key


def _pack_tzinfo(zone: dt.tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is dt.timezone:
        return _pack_timezone(zone)
    if type(zone) is ZoneInfo:
        return _pack_zone(zone)
    raise NotStorable(f"holds a time with a {type(zone).__qualname__}; use timezone or ZoneInfo")


def _unpack_tzinfo(body: Any) -> dt.tzinfo | None:
    if body is None:
        return None
    return ZoneInfo(body) if type(body) is str else _unpack_timezone(body)


def _pack_datetime(value: dt.datetime) -> Any:
    parts = [value.year, value.month, value.day, *_clock(value)]
    return [parts, value.fold, _pack_tzinfo(value.tzinfo)]


def _unpack_datetime(body: Any) -> dt.datetime:
    (year, month, day, *clock), fold, zone = body
    return dt.datetime.combine(dt.date(year, month, day), _unpack_time([clock, fold, zone]))


def _unpack_time(body: Any) -> dt.time:
    (hour, minute, second, micros), fold, zone = body
    return dt.time(hour, minute, second, micros, _unpack_tzinfo(zone), fold=fold)


def _clock(value: dt.datetime | dt.time) -> list[int]:
    return [value.hour, value.minute, value.second, value.microsecond]


def _pack_timedelta(value: dt.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


# --- NumPy ----------------------------------------------------------------------------------------------------------

_SIMPLE_DTYPE = re.compile(r"[<>|][biufcSUVMm][0-9]+(\[[0-9]*[a-zA-Z]+\])?")


def _pack_dtype(dtype: np.dtype[Any]) -> Any:
    body: Any = dtype.str if dtype.names is None else [list(field) for field in dtype.descr]
    try:
        if _unpack_dtype(body) == dtype and dtype.metadata is None:
            return body
    except (ValueError, TypeError):
        pass
    raise NotStorable(f"holds a NumPy value of type {dtype}, which is not plain data")


def _unpack_dtype(body: Any) -> np.dtype[Any]:
    if type(body) is list:
        fields = [(name, _unpack_dtype(kind), *map(tuple, shape)) for name, kind, *shape in body]
        return np.dtype(fields)
    if type(body) is not str or not _SIMPLE_DTYPE.fullmatch(body):
        raise ValueError("not a plain NumPy type")
    return np.dtype(body)


def _pack_array(array: np.ndarray[Any, Any]) -> Any:
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    order: Literal["C", "F"] = "F" if fortran else "C"
    return [_pack_dtype(array.dtype), list(array.shape), order, array.tobytes(order)]


def _unpack_array(body: Any) -> np.ndarray[Any, Any]:
    kind, shape, order, data = body
    dtype = _unpack_dtype(kind)
    count = 1
    for size in shape:
        count *= size
    if count * dtype.itemsize != len(data) or order not in ("C", "F") or min(shape, default=0) < 0:
        raise ValueError("a NumPy array does not have the size it announces")
    return np.ndarray(tuple(shape), dtype, buffer=bytearray(data), order=order)


def _pack_numpy_scalar(value: Any) -> Any:
    dtype = value.dtype
    body = _pack_dtype(dtype)
    if np.dtype(dtype.str).type is not type(value):
        raise NotStorable(
            f"holds a {type(value).__name__}, which NumPy stores as {dtype.name}; use that type"
        )
    return [body, value.tobytes()]


def _unpack_numpy_scalar(body: Any) -> Any:
    kind, data = body
    return _unpack_array([kind, [], "C", data])[()]


# --- Arrow ----------------------------------------------------------------------------------------------------------


def as_stream(data: pa.Table | pa.RecordBatch) -> bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return bytes(sink.getvalue())


def _unpack_table(data: bytes) -> pa.Table:
    return arrow_frames.read_stream(data)


def _unpack_batch(data: bytes) -> pa.RecordBatch:
    arrow_frames.check_stream(data)
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=True)
    return batch


def _pack_arrow_array(array: pa.Array) -> bytes:
    return as_stream(pa.record_batch([array], names=[""]))


def _unpack_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


_NUMPY_SCALAR = Leaf(codes.NUMPY_SCALAR, _pack_numpy_scalar, _unpack_numpy_scalar)

_ARROW_FAMILIES = (
    (pa.Array, Leaf(codes.ARROW_ARRAY, _pack_arrow_array, lambda b: _unpack_batch(b).column(0), raw=True)),
    (
        pa.Scalar,
        Leaf(
            codes.ARROW_SCALAR,
            lambda v: _pack_arrow_array(pa.array([v], v.type)),
            lambda b: _unpack_batch(b).column(0)[0],
            raw=True,
        ),
    ),
)

_LEAVES: dict[type, Leaf] = {
    bytearray: Leaf(codes.BYTEARRAY, bytes, bytearray, raw=True),
    dt.datetime: Leaf(codes.DATETIME, _pack_datetime, _unpack_datetime),
    dt.date: Leaf(codes.DATE, lambda v: [v.year, v.month, v.day], lambda b: dt.date(*b)),
    dt.time: Leaf(codes.TIME, lambda v: [_clock(v), v.fold, _pack_tzinfo(v.tzinfo)], _unpack_time),
    dt.timedelta: Leaf(codes.TIMEDELTA, _pack_timedelta, lambda b: dt.timedelta(*b)),
    dt.timezone: Leaf(codes.TIMEZONE, _pack_timezone, _unpack_timezone),
    ZoneInfo: Leaf(codes.ZONE_INFO, _pack_zone, ZoneInfo),
    Decimal: Leaf(codes.DECIMAL, str, _unpack_decimal),
    Fraction: Leaf(
        codes.FRACTION,
        lambda v: [_pack_int(v.numerator), _pack_int(v.denominator)],
        lambda b: Fraction(*_ints(b)),
    ),
    UUID: Leaf(codes.UUID, lambda v: v.bytes, lambda b: UUID(bytes=b), raw=True),
    complex: Leaf(
        codes.COMPLEX,
        lambda v: struct.pack("<dd", v.real, v.imag),
        lambda b: complex(*struct.unpack("<dd", b)),
        raw=True,
    ),
    range: Leaf(
        codes.RANGE, lambda v: [_pack_int(n) for n in (v.start, v.stop, v.step)], lambda b: range(*_ints(b))
    ),
    np.ndarray: Leaf(codes.NUMPY_ARRAY, _pack_array, _unpack_array),
    np.str_: Leaf(
        codes.NUMPY_STR,
        lambda v: str.encode(v, "utf-8", "surrogatepass"),
        lambda b: np.str_(b.decode("utf-8", "surrogatepass")),
        raw=True,
    ),
    np.bytes_: Leaf(codes.NUMPY_BYTES, bytes, np.bytes_, raw=True),
    pa.Table: Leaf(codes.ARROW_TABLE, as_stream, _unpack_table, raw=True),
    pa.RecordBatch: Leaf(codes.ARROW_BATCH, as_stream, _unpack_batch, raw=True),
    pa.ChunkedArray: Leaf(
        codes.ARROW_CHUNKED,
        lambda v: as_stream(pa.table([v], names=[""])),
        lambda b: _unpack_table(b).column(0),
        raw=True,
    ),
    pa.Schema: Leaf(codes.ARROW_SCHEMA, lambda v: bytes(v.serialize()), _unpack_schema, raw=True),
}

_BY_CODE = {
    leaf.code: leaf for leaf in (*_LEAVES.values(), _NUMPY_SCALAR, *(leaf for _, leaf in _ARROW_FAMILIES))
}
