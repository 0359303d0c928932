"""Trees of plain values as msgpack bytes, part by part.

One call for all of a large tree would keep other threads from working, and would copy what is in it several times. So a tree that is
large is packed in pieces, and large bytes in it are parts of their own, uncopied. The bytes are those of one call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import msgpack

PIECE = 1 << 13
"""So many keys and values are packed at once, at most; less than 65 536."""
HEAVY = 1 << 20
"""Bytes from which on a tree is packed in pieces."""
LARGE = 1 << 16
"""Bytes of a part of its own, and of a piece, about."""
BUFFER = 1 << 12
"""What a packer begins with: most of what is packed is small."""
FEW, LOOKED_AT, DEEP = 16, 3, 4


@dataclass(slots=True, eq=False)
class Later:
    """An extension whose body is a tree: packed when all of it is. No key of a map: bodies are not compared."""

    code: int
    body: Any


def pack(tree: Any) -> bytes:
    found = parts(tree)
    return found[0] if len(found) == 1 else b"".join(found)


def parts(tree: Any) -> list[bytes]:
    """What `pack` joins."""
    match tree:
        case bytes() if len(tree) >= LARGE:
            return [_bytes_header(len(tree)), tree]
        case msgpack.ExtType(code, data) if len(data) >= LARGE:
            return [_extension_header(code, len(data)), data]
        case Later(code, body) if weight(body) >= LARGE:
            packed = parts(body)
            return [_extension_header(code, sum(map(len, packed))), *packed]
        case dict() | list() if len(tree) > 4 * PIECE or weight(tree) > HEAVY:
            return _in_pieces(tree)
    return [_packed(tree)]


def weight(tree: Any, depth: int = DEEP) -> float:
    """How many bytes a tree has, about: of containers with many elements three are looked at."""
    match tree:
        case bytes() | str():
            return len(tree)
        case msgpack.ExtType(_, data):
            return len(data)
        case Later(_, body):
            return weight(body, depth)
        case dict() | list() if tree and depth:
            values: Iterable[Any] = tree.values() if isinstance(tree, dict) else tree
            step = 1 if len(tree) <= FEW else len(tree) // LOOKED_AT
            looked = [weight(value, depth - 1) for value in islice(values, 0, None, step)]
            return len(tree) * sum(looked) / len(looked)
    return 1.0


def _in_pieces(tree: dict[Any, Any] | list[Any]) -> list[bytes]:
    packer, is_map = msgpack.Packer(use_bin_type=True, buf_size=BUFFER), isinstance(tree, dict)
    found = [packer.pack_map_header(len(tree)) if is_map else packer.pack_array_header(len(tree))]
    items = chain.from_iterable(tree.items()) if isinstance(tree, dict) else iter(tree)
    piece, size = list[Any](), 0.0
    for item in items:
        heavy = weight(item) if type(item) in _WEIGHTY else 1.0
        if heavy >= LARGE:
            found += [*_piece(piece), *parts(item)]
            piece, size = [], 0.0
            continue
        piece.append(item)
        size += heavy
        if len(piece) == PIECE or size >= LARGE:
            found += _piece(piece)
            piece, size = [], 0.0
    return [*found, *_piece(piece)]


_WEIGHTY = frozenset({bytes, str, dict, list, msgpack.ExtType, Later})


def _piece(items: list[Any]) -> list[bytes]:
    """Some elements of a container."""
    header = 1 if len(items) <= 15 else 3  # of the array that they are not, in msgpack's format
    return [_packed(items)[header:]] if items else []


def _bytes_header(size: int) -> bytes:
    """As msgpack writes it: the shortest that has room."""
    if size < 1 << 8:
        return struct.pack(">BB", 0xC4, size)
    return struct.pack(">BH", 0xC5, size) if size < 1 << 16 else struct.pack(">BI", 0xC6, size)


def _extension_header(code: int, size: int) -> bytes:
    if size in (1, 2, 4, 8, 16):
        return struct.pack(">Bb", 0xD3 + size.bit_length(), code)
    if size < 1 << 8:
        return struct.pack(">BBb", 0xC7, size, code)
    return struct.pack(">BHb", 0xC8, size, code) if size < 1 << 16 else struct.pack(">BIb", 0xC9, size, code)


def _packed(tree: Any) -> bytes:
    return bytes(msgpack.packb(tree, default=_now, use_bin_type=True, buf_size=BUFFER))


def _now(later: Any) -> Any:
    assert type(later) is Later, "trees hold what msgpack knows"
    return msgpack.ExtType(later.code, pack(later.body))
