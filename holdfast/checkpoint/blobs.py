"""Small state as bytes in the store: one `put` per element and epoch, chunked above the store's value limit.

A reference names entry, key, size and checksum; the manifest holds references, so every byte a restore reads is
covered by the manifest's own checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.failpoints import fp
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Where a blob is. `size`, `crc`: of the whole; `chunks` > 1: it lies under `key.0`, `key.1`, …, and `key` ends with
    a `+`, which no name does: the chunks of `a` are not the blob of an operator called `a.0`."""

    entry: str
    key: str
    size: int
    crc: int
    chunks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.chunks <= max(1, self.size):
            raise ValueError(f"has {self.size} bytes in {self.chunks} chunks")

    @property
    def keys(self) -> list[str]:
        """Every key of the store that the blob needs."""
        return [self.key] if self.chunks == 1 else [f"{self.key}.{n}" for n in range(self.chunks)]


def put_blobs(store: Store, entry: str, blobs: Mapping[str, bytes]) -> dict[str, BlobRef]:
    """Write all blobs durably by one `put`; returns a reference per key."""
    pairs: dict[str, bytes] = {}
    refs: dict[str, BlobRef] = {}
    limit = store.value_limit
    for key, data in blobs.items():
        fp("ckpt.op.serialize")
        count = max(1, -(-len(data) // limit))
        label = key if count == 1 or "~" in key else f"{key}+"
        refs[key] = BlobRef(entry, label, len(data), checksum(data), count)
        for index, name in enumerate(refs[key].keys):
            pairs[name] = data[index * limit : (index + 1) * limit]
    if pairs:
        store.put(entry, pairs)
    return refs


def get_blob(store: Store, ref: BlobRef | None) -> bytes:
    """The blob's bytes, verified against the reference. None: somebody needs a value, and an epoch refers to none."""
    if ref is None:
        raise DamagedError(
            f"an operator in {store.url} needs a value, but the epoch refers to none.",
            cure="Start from another epoch.",
        )
    parts: list[bytes] = []
    for name in ref.keys:
        part = store.get(ref.entry, name)
        if part is None:
            raise DamagedError(
                f"{store.describe(ref.entry, name)} is missing, but an epoch refers to it.",
                cure="Restore the file from a backup, or start from another epoch.",
            )
        parts.append(part)
    data = b"".join(parts)
    if len(data) != ref.size or checksum(data) != ref.crc:
        raise DamagedError(
            f"{store.describe(ref.entry, ref.key)} is damaged: its checksum does not match the manifest.",
            cure="Restore the file from a backup, or start from another epoch.",
        )
    return data
