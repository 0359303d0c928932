"""Nested values as JSON texts, column by column: no loop over rows."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def json_text(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Each value as one JSON text; null stays null. Times are ISO texts, bytes Base64, NaN and infinities texts."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunks, or too long for one
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return pc.if_else(pc.is_valid(array), _text(array), pa.scalar(None, pa.string()))


def _text(array: pa.Array) -> pa.Array:
    """JSON of every value; "null" for null."""
    return pc.if_else(pc.is_valid(array), _of_type(array), "null")


def _of_type(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        return _object(array)
    if pa.types.is_map(kind):
        return _map(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _list(array, _text(array.flatten()), "[", "]")
    if pa.types.is_floating(kind):
        text = array.cast(pa.string())
        return pc.if_else(pc.is_finite(array), text, _wrapped('"', text, '"'))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        coded = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return _wrapped('"', pa.array(coded, pa.string()), '"')
    if pa.types.is_timestamp(kind):
        return _wrapped('"', pc.replace_substring(array.cast(pa.string()), " ", "T"), '"')
    return _quoted(array.cast(pa.string()))


def _object(array: pa.StructArray) -> pa.Array:
    parts: list[object] = []
    for number, field in enumerate(array.type):
        parts += [
            f"{',' if number else '{'}{json.dumps(field.name)}:",
            _text(pc.struct_field(array, [number])),
        ]
    if not parts:
        return pa.array(["{}"] * len(array), pa.string())
    return _joined(*parts, "}")


def _map(array: pa.MapArray) -> pa.Array:
    """A map is an object; keys that are no texts become texts."""
    entries = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    flat = entries.flatten()
    key = pc.struct_field(flat, [0])
    if not (pa.types.is_string(key.type) or pa.types.is_large_string(key.type)):
        key = _text(key)
        key = pc.if_else(pc.starts_with(key, '"'), key, _wrapped('"', key, '"'))
    else:
        key = _quoted(key)
    return _list(entries, _joined(key, ":", _text(pc.struct_field(flat, [1]))), "{", "}")


def _list(array: pa.Array, texts: pa.Array, begin: str, end: str) -> pa.Array:
    """Texts of the flat values, joined per list."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts)
    return _wrapped(begin, pc.binary_join(lists, ","), end)


def _quoted(text: pa.Array) -> pa.Array:
    """Texts as JSON spells them."""
    text = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(text, "[\x00-\x1f]")).as_py():
        for code in range(0x20):
            text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return _wrapped('"', text, '"')


def _wrapped(begin: str, text: pa.Array, end: str) -> pa.Array:
    return _joined(begin, text, end)


def _joined(*parts: object) -> pa.Array:
    """Texts one behind the other; null if one of them is null."""
    return pc.binary_join_element_wise(*parts, "")
