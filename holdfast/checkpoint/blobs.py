"""Small state as bytes in the store: one `put` per element and epoch, chunked above the store's value limit.

A reference names entry, key, size and checksum; the manifest holds references, so every byte a restore reads is
covered by the manifest's own checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.failpoints import fp
from holdfast.store.base import Store


class BlobRef(TypedDict):
    """Where a blob is. `chunks` > 1: keys are `key.0`, `key.1`, …, and `key` ends with a `+`, which no name does: the
    chunks of `a` are not the blob of an operator called `a.0`."""

    entry: str
    key: str
    size: int
    crc: int
    chunks: int


def put_blobs(store: Store, entry: str, blobs: Mapping[str, bytes]) -> dict[str, BlobRef]:
    """Write all blobs durably by one `put`; returns a reference per key."""
    pairs: dict[str, bytes] = {}
    refs: dict[str, BlobRef] = {}
    limit = store.value_limit
    for key, data in blobs.items():
        fp("ckpt.op.serialize")
        count = max(1, -(-len(data) // limit))
        label = key if count == 1 or "~" in key else f"{key}+"
        refs[key] = BlobRef(entry=entry, key=label, size=len(data), crc=checksum(data), chunks=count)
        for index, name in enumerate(_names(label, count)):
            pairs[name] = data[index * limit : (index + 1) * limit]
    if pairs:
        store.put(entry, pairs)
    return refs


def get_blob(store: Store, ref: BlobRef) -> bytes:
    """The blob's bytes, verified against the reference."""
    parts: list[bytes] = []
    for name in _names(ref["key"], ref["chunks"]):
        part = store.get(ref["entry"], name)
        if part is None:
            raise DamagedError(
                f"{store.describe(ref['entry'], name)} is missing, but an epoch refers to it.",
                cure="Restore the file from a backup, or start from another epoch.",
            )
        parts.append(part)
    data = b"".join(parts)
    if len(data) != ref["size"] or checksum(data) != ref["crc"]:
        raise DamagedError(
            f"{store.describe(ref['entry'], ref['key'])} is damaged: its checksum does not match the manifest.",
            cure="Restore the file from a backup, or start from another epoch.",
        )
    return data


def keys_of(ref: BlobRef) -> list[str]:
    """Every store key the reference needs."""
    return _names(ref["key"], ref["chunks"])


def _names(key: str, count: int) -> list[str]:
    return [key] if count == 1 else [f"{key}.{index}" for index in range(count)]
