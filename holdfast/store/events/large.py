"""Events that are larger than a store takes in one piece: packed, and cut into parts that follow each other in the log.

    part     kind "part", data {"of": kind, "part": from 0 on, "parts": how many, "packed": a piece of base85(zlib(JSON of the data))}

The whole has the number of its last part. So whoever read while its last parts were still to come reads it with the next
look. One that lacks a part, since the log has let it go or lost it, is left out.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.store.events.as_bytes import EVENT_BYTES_MAX
from holdfast.store.events.values import Event, NewEvent

PART = "part"
PARTS_MAX = 32
"""What is larger is left out: the log says how large it was."""
_ROOM = EVENT_BYTES_MAX - 512
"""Bytes of a part without what stands beside them."""
_KIND_MAX = 100
_UNPACKED_MAX = 64 << 20
"""Whoever can write into a store may have written anything."""


def parted(events: Iterable[NewEvent]) -> list[NewEvent]:
    """The events as they are stored."""
    return [part for kind, data in events for part in _parts(kind, data)]


def _parts(kind: str, data: Mapping[str, Any]) -> Sequence[NewEvent]:
    text = json.dumps(dict(data), default=str, separators=(",", ":")).encode()
    if len(text) <= _ROOM:
        return [(kind, data)]
    packed = b85encode(zlib.compress(text, 6)).decode()
    pieces = [packed[start : start + _ROOM] for start in range(0, len(packed), _ROOM)]
    if len(pieces) > PARTS_MAX:
        return [(kind, {"left_out_bytes": len(text)})]
    told = {"of": kind[:_KIND_MAX], "parts": len(pieces)}
    return [(PART, {**told, "part": number, "packed": piece}) for number, piece in enumerate(pieces)]


def joined(events: Iterable[Event]) -> Iterator[Event]:
    """The events that were given to `parted`, in order."""
    parts: list[Event] = []
    for event in events:
        if event.kind != PART:
            parts = []
            yield event
            continue
        parts = [*parts, event] if event.data.get("part") else [event]
        whole = _whole(parts) if len(parts) == event.data.get("parts") else None
        if whole is not None:
            yield whole


def _whole(parts: Sequence[Event]) -> Event | None:
    """The event of these parts. None: they do not belong together, or are damaged."""
    last = parts[-1]
    try:
        if [part.data["part"] for part in parts] != list(range(len(parts))):
            return None
        unpacking = zlib.decompressobj()
        packed = b85decode("".join(part.data["packed"] for part in parts))
        text = unpacking.decompress(packed, _UNPACKED_MAX)
        return Event(last.number, last.wall, str(last.data["of"]), dict(json.loads(text)))
    except (KeyError, ValueError, TypeError, RecursionError, zlib.error):
        return None
