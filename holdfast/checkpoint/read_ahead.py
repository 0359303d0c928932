"""Restores that do not wait for each pair: the next ones are fetched while one is decoded, and none is fetched twice.

`SeenPairs` keeps what a driver reads when it verifies an epoch before anything runs; `ReadAhead` fetches what a restore
will ask for, in about the order it will ask, and takes from `SeenPairs` what lies there. Both are bounded by bytes:
what does not fit is read when it is asked for, as without them.

Must hold:
- A pair that an epoch refers to never changes. So it does not matter when it is read, and whoever uses it compares it
  with the manifest's checksum anyway.
- An error of a read that was ahead is raised where the pair is asked for, not before, and not if nobody asks.
- `get` waits only for reads that have begun. Any thread may call it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from holdfast.checkpoint.blobs import BlobRef, PairReader
from holdfast.checkpoint.parts import OperatorPart
from holdfast.checkpoint.stored_names import INCR, INDEX, kind_of

AT_ONCE = 8
"""Reads under way at the same time: most of a small read is waiting for the answer."""
SLOW_S = 0.0005
"""Reads go ahead from the first one on that takes so long. Where answers come at once, threads cost more than they save."""
AHEAD_BYTES = 64 << 20
"""Fetched or being fetched, and not asked for yet."""
SEEN_BYTES = 64 << 20
"""Kept between verifying and restoring, of a region."""

Key = tuple[str, str]
"""Entry, key."""


class SeenPairs:
    """Reads pairs, and keeps what it read for the restore that follows."""

    def __init__(self, store: PairReader, bytes_max: int = SEEN_BYTES) -> None:
        self.url = store.url
        self._store = store
        self._room = bytes_max
        self._kept: dict[Key, bytes] = {}
        self._lock = threading.Lock()

    def get(self, entry: str, key: str) -> bytes | None:
        with self._lock:
            kept = self._kept.get((entry, key))
        if kept is not None:
            return kept
        found = self._store.get(entry, key)
        if found is not None:
            with self._lock:
                if len(found) <= self._room and (entry, key) not in self._kept:
                    self._kept[entry, key] = found
                    self._room -= len(found)
        return found

    def describe(self, entry: str, key: str) -> str:
        return self._store.describe(entry, key)

    def take(self, entry: str, key: str) -> bytes | None:
        """What is kept of a pair, which is not kept from then on."""
        with self._lock:
            found = self._kept.pop((entry, key), None)
            self._room += len(found or b"")
            return found

    def forget(self) -> None:
        with self._lock:
            self._room += sum(map(len, self._kept.values()))
            self._kept.clear()


class ReadAhead:
    """Reads pairs of a restore, those that `wanted` names ahead of being asked. Closed by `with`."""

    def __init__(
        self,
        store: PairReader,
        wanted: Iterable[tuple[Key, int]],
        seen: SeenPairs | None = None,
        bytes_max: int = AHEAD_BYTES,
        slow_s: float = SLOW_S,
    ) -> None:
        """`wanted`: keys in the order they will be asked for, with their bytes, about."""
        self.url = store.url
        self._store = store
        self._seen = seen
        self._sizes = dict(wanted)
        self._waiting = deque(self._sizes)
        self._begun: dict[Key, Future[bytes | None]] = {}
        self._room = bytes_max
        self._lock = threading.Lock()
        self._slow_s = slow_s
        self._pool: ThreadPoolExecutor | None = None
        """None: no read was slow yet."""
        self._is_closed = False

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def get(self, entry: str, key: str) -> bytes | None:
        asked = (entry, key)
        with self._lock:
            begun = self._begun.pop(asked, None)
            size = self._sizes.pop(asked, 0)
            if begun is not None:
                self._room += size
            self._begin()
        if begun is not None:
            return begun.result()
        started = time.monotonic()
        found = self._read(asked)
        if time.monotonic() - started >= self._slow_s:
            self._go_ahead()
        return found

    def _go_ahead(self) -> None:
        with self._lock:
            if self._pool is None and self._waiting and not self._is_closed:
                self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-ahead")
                self._begin()

    def describe(self, entry: str, key: str) -> str:
        return self._store.describe(entry, key)

    def _begin(self) -> None:
        """Begin reads as long as there is room."""
        while self._pool is not None and self._waiting and not self._is_closed:
            key = self._waiting[0]
            size = self._sizes.get(key)
            if size is not None:  # else it was asked for before its turn
                if size > self._room:
                    return
                self._room -= size
                self._begun[key] = self._pool.submit(self._read, key)
            self._waiting.popleft()

    def _read(self, key: Key) -> bytes | None:
        found = None if self._seen is None else self._seen.take(*key)
        return self._store.get(*key) if found is None else found


def keys_of(parts: Iterable[OperatorPart | None]) -> Iterator[tuple[Key, int]]:
    """What restoring operators one after the other will ask for, in that order, with its bytes."""
    for part in parts:
        if part is not None:
            yield from _chunks([] if part.blob is None else [part.blob])
            yield from _chunks(_in_order(part.pairs))


def _in_order(pairs: Iterable[BlobRef]) -> list[BlobRef]:
    """As chain.py reads them: what is stored whole, indexes from the newest back, versions from the base on."""
    named = [(kind_of(ref), ref) for ref in pairs]
    indexes = sorted((-epoch, n) for n, ((epoch, kind), _) in enumerate(named) if kind == INDEX)
    versions = sorted((epoch, n) for n, ((epoch, kind), _) in enumerate(named) if kind == INCR)
    whole = [ref for (_, kind), ref in named if kind not in (INDEX, INCR)]
    return [*whole, *(named[n][1] for _, n in indexes), *(named[n][1] for _, n in versions)]


def _chunks(refs: list[BlobRef]) -> Iterator[tuple[Key, int]]:
    """First chunks first: a variable needs the beginning of its base, then its deltas, before the next one needs more."""
    for number in range(max((ref.chunks for ref in refs), default=0)):
        for ref in refs:
            if number < ref.chunks:
                yield (ref.entry, ref.keys[number]), -(-ref.size // ref.chunks)
