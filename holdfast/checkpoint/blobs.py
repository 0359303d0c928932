"""Small state as bytes in the store: one `put` per element and epoch, chunked above the store's value limit.

A reference names entry, key, size and checksum; the manifest holds references, so every byte a restore reads is
covered by the manifest's own checksum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.failpoints import fp
from holdfast.store.base import Store

_WRONG = "is damaged: its checksum does not match the manifest"


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


class PairReader(Protocol):
    """What reading pairs needs of a store."""

    url: str

    def get(self, entry: str, key: str) -> bytes | None: ...

    def describe(self, entry: str, key: str) -> str:
        """For error messages."""
        ...


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


def get_blob(store: PairReader, ref: BlobRef | None) -> bytes:
    """The blob's bytes, verified against the reference. None: somebody needs a value, and an epoch refers to none."""
    if ref is None:
        raise unusable(f"an operator in {store.url} needs a value, but the epoch refers to none.")
    data = b"".join(_chunk(store, ref, key) for key in ref.keys)
    if len(data) != ref.size or checksum(data) != ref.crc:
        raise _damaged(store, ref, ref.key, _WRONG)
    return data


def _chunk(store: PairReader, ref: BlobRef, key: str) -> bytes:
    part = store.get(ref.entry, key)
    if part is None:
        raise _damaged(store, ref, key, "is missing, but an epoch refers to it")
    return part


def _damaged(store: PairReader, ref: BlobRef, key: str, what: str) -> DamagedError:
    return unusable(f"{store.describe(ref.entry, key)} {what}.")


def unusable(what: str) -> DamagedError:
    """The error for stored state that a restore cannot use."""
    return DamagedError(what, cure="Restore the file from a backup, or start from another epoch.")


class BlobReader:
    """Pieces of a stored blob, asked for in about the order they lie in. What `read` gave may be believed after `finish`.

    A chunk is fetched when the first byte of it is wanted, with all before it, and kept until what is wanted lies behind
    it. Whoever goes back further makes the reader fetch again.
    """

    def __init__(self, store: PairReader, ref: BlobRef) -> None:
        self._store = store
        self._ref = ref
        self._keys = ref.keys
        self._rewind()
        self._crc = 0
        self._seen = 0
        """Bytes the checksum covers."""

    def read(self, offset: int, size: int) -> bytes:
        if offset < self._begin:
            self._rewind()
        while self._end < offset + size and self._fetch():
            pass
        self._drop_before(offset)
        if self._end < offset + size:
            raise _damaged(self._store, self._ref, self._ref.key, "is too short")
        parts = []
        place = self._begin
        for chunk in self._chunks:
            parts.append(chunk[max(0, offset - place) : max(0, offset + size - place)])
            place += len(chunk)
        return b"".join(parts)

    def finish(self) -> None:
        """Fetch what was not wanted, and compare size and checksum with the reference."""
        self._chunks.clear()
        self._begin = self._end
        while self._fetch():
            self._drop_before(self._end)
        if self._seen != self._ref.size or self._crc != self._ref.crc:
            raise _damaged(self._store, self._ref, self._ref.key, _WRONG)

    def _rewind(self) -> None:
        self._chunks: list[bytes] = []
        self._next = 0
        """The chunk to fetch next."""
        self._begin = self._end = 0
        """What the chunks in memory cover."""

    def _fetch(self) -> bool:
        """One more chunk; False if there is none."""
        if self._next == len(self._keys):
            return False
        chunk = _chunk(self._store, self._ref, self._keys[self._next])
        if self._end == self._seen:
            self._crc = checksum(chunk, self._crc)
            self._seen += len(chunk)
        self._chunks.append(chunk)
        self._next += 1
        self._end += len(chunk)
        return True

    def _drop_before(self, offset: int) -> None:
        while self._chunks and self._begin + len(self._chunks[0]) <= offset:
            self._begin += len(self._chunks.pop(0))
