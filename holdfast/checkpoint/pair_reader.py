"""Reading pieces of a stored pair that may be cut into chunks, each chunk once, and verifying the whole of it.

Pieces are asked for in about the order they lie in. A chunk is fetched when the first byte of it is wanted, with all
before it, and kept until what is wanted lies behind it. Whoever goes back further makes the reader fetch again.
"""

from __future__ import annotations

from holdfast.checkpoint.blobs import BlobRef
from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.store.base import Store


class PairReader:
    """One stored pair. What `read` gave may be believed after `finish`."""

    def __init__(self, store: Store, ref: BlobRef) -> None:
        self._store = store
        self._ref = ref
        self._keys = ref.keys
        self._rewind()
        self._crc = 0
        self._seen = 0
        """Bytes the checksum covers."""

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`."""
        if offset < self._begin:
            self._rewind()
        while self._end < offset + size and self._fetch():
            pass
        self._drop_before(offset)
        if self._end < offset + size:
            raise self._damaged("is too short")
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
            raise self._damaged("is damaged: its checksum does not match the manifest")

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
        key = self._keys[self._next]
        chunk = self._store.get(self._ref.entry, key)
        if chunk is None:
            raise DamagedError(
                f"{self._store.describe(self._ref.entry, key)} is missing, but an epoch refers to it.",
                cure="Restore the file from a backup, or start from another epoch.",
            )
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

    def _damaged(self, why: str) -> DamagedError:
        return DamagedError(
            f"{self._store.describe(self._ref.entry, self._ref.key)} {why}.",
            cure="Restore the file from a backup, or start from another epoch.",
        )
