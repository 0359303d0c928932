"""The pairs of one entry in a directory store: a chain of pack files, the newest value of a key wins.

Packs are numbered without gaps; a gap is damage, for the missing one may hold newer values. A pack is never changed.
Three things keep the chain short: the oldest packs go as soon as nothing in them counts, a delete writes a small pack
of deletions otherwise, and a chain with too many packs or too many dead bytes is rewritten as one *base*.

Readers in other processes list the directory each time; what they know of a pack stays true, since packs never
change. One object per entry and process; methods hold its lock.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import durable
from holdfast.errors import DamagedError, NoSpaceError, StoreError
from holdfast.store import sealed_file
from holdfast.store.files import pack_format
from holdfast.store.files.lease import Lease
from holdfast.store.files.pack_format import Record

PACKS_MAX = 32
BYTES_PER_EXTRA_PACK = 1 << 16
DEAD_BYTES_MIN = 1 << 20
_READ_ATTEMPTS = 5

_NAME = re.compile(r"(?P<number>\d{12})-(?P<token>\d{10})-[0-9a-f]{8}\.(?P<kind>pack|base)")


@dataclass(frozen=True, slots=True, order=True)
class PackName:
    """A pack's file name, in the order of the chain."""

    number: int
    base: bool
    file: str


class Chain:
    """The packs of one entry."""

    def __init__(self, directory: Path, job: str) -> None:
        self._directory = directory
        self._label = f"{job}/{directory.name}"
        self._lock = threading.RLock()
        self._chain: list[PackName] = []
        self._live: dict[str, tuple[str, Record]] = {}
        self._sizes: dict[str, int] = {}
        self._known = False

    def keys(self) -> list[str]:
        with self._lock:
            self._refresh()
            return sorted(self._live)

    def get(self, key: str) -> bytes | None:
        with self._lock:
            for _ in range(_READ_ATTEMPTS):
                self._refresh()
                if key not in self._live:
                    return None
                value = self._value(key)
                if value is not None:
                    return value
        raise StoreError(f"{self._directory} changes faster than it can be read.", cure="Try again.")

    def holds(self, key: str) -> bool:
        """Whether there is a pair of this name, as the owner knows: nobody else writes pairs, so that the directory is
        looked at once."""
        with self._lock:
            if not self._known:
                self._refresh()
            return key in self._live

    def file_of(self, key: str) -> Path | None:
        with self._lock:
            self._refresh()
            return self._directory / self._live[key][0] if key in self._live else None

    def put(self, lease: Lease, pairs: Mapping[str, bytes]) -> None:
        with self._lock:
            self._refresh()
            self._write(lease, pairs.items(), base=False)
            self._shorten(lease)

    def delete(self, lease: Lease, keys: Sequence[str]) -> None:
        """Delete keys; absent ones are fine."""
        with self._lock:
            self._refresh()
            doomed = {key for key in keys if key in self._live}
            if not doomed:
                return
            needed = {file for key, (file, _) in self._live.items() if key not in doomed}
            oldest = next((i for i, name in enumerate(self._chain) if name.file in needed), len(self._chain))
            buried = {name.file for name in self._chain[oldest:]}
            rest = sorted(key for key in doomed if self._live[key][0] in buried)
            if rest:
                self._write(lease, ((key, None) for key in rest), base=False)
            self._drop(lease, self._chain[:oldest])
            self._shorten(lease)

    def _shorten(self, lease: Lease) -> None:
        """Rewrite the chain as one base if that pays."""
        live = sum(record.size for _, record in self._live.values())
        dead = sum(self._sizes.values()) - live
        many = len(self._chain) > PACKS_MAX + live // BYTES_PER_EXTRA_PACK
        if not many and dead <= max(DEAD_BYTES_MIN, live):
            return
        pairs = [(key, self._value(key)) for key in sorted(self._live)]
        before = list(self._chain)
        try:
            self._write(lease, pairs, base=True)
        except NoSpaceError:
            return  # what the caller asked for is done; shortening waits for space
        self._drop(lease, before)

    def _write(self, lease: Lease, pairs: Iterable[tuple[str, bytes | None]], *, base: bool) -> None:
        number = self._chain[-1].number + 1 if self._chain else 1
        # The random part: a name is never used twice, so what is known of a name stays true.
        unique = secrets.token_hex(4)
        file = f"{number:012d}-{lease.token:010d}-{unique}.{'base' if base else 'pack'}"
        data = pack_format.encode(f"{self._label}/{file}", pairs, base=base)
        durable.write_file(self._directory / file, data, temporary=lease.temporary())
        self._refresh()

    def _drop(self, lease: Lease, doomed: Sequence[PackName]) -> None:
        """Remove the oldest packs, oldest first. Made durable one by one, lest a power cut leave a gap."""
        for index, name in enumerate(doomed):
            if index:
                durable.fsync_directory(self._directory)
            lease.discard(self._directory / name.file)
        self._refresh()

    def _refresh(self) -> None:
        """Bring what is known up to the directory's state."""
        for _ in range(_READ_ATTEMPTS):
            chain = self._list()
            self._forget_dropped(chain)
            known = len(self._chain)
            if chain[:known] != self._chain or any(name.base for name in chain[known:]):
                self._chain, self._live, self._sizes, known = [], {}, {}, 0
            if all(self._learn(name) for name in chain[known:]):
                self._known = True
                return
        raise StoreError(f"{self._directory} changes faster than it can be read.", cure="Try again.")

    def _forget_dropped(self, chain: list[PackName]) -> None:
        """Oldest packs in which nothing counted may have gone; that does not change what the others say."""
        dropped = [name.file for name in self._chain if not chain or name < chain[0]]
        if not dropped or {file for file, _ in self._live.values()} & set(dropped):
            return
        self._chain = self._chain[len(dropped) :]
        for file in dropped:
            del self._sizes[file]

    def _list(self) -> list[PackName]:
        """The valid chain: from the newest base on, without gaps."""
        names = sealed_file.list_directory(self._directory)
        # A listing is no snapshot. Two equal ones in a row are: what replaces a pack is there before it goes.
        while names != (again := sealed_file.list_directory(self._directory)):
            names = again
        found = sorted(
            PackName(int(match["number"]), match["kind"] == "base", file)
            for file in names
            if (match := _NAME.fullmatch(file))
        )
        bases = [index for index, name in enumerate(found) if name.base]
        chain = found[bases[-1] :] if bases else found
        for earlier, later in itertools.pairwise(chain):
            if later.number != earlier.number + 1:
                missing = f"the pack between {earlier.file} and {later.file}"
                raise DamagedError(f"{self._directory}: {missing} is missing.", cure=sealed_file.RESTORE)
        return chain

    def _learn(self, name: PackName) -> bool:
        """Add the next pack to what is known. False: it has gone meanwhile."""
        path = self._directory / name.file
        data = sealed_file.read_whole(path)
        if data is None:
            return False
        for record in pack_format.decode(data, path, f"{self._label}/{name.file}", base=name.base):
            if record.gone:
                self._live.pop(record.key, None)
            else:
                self._live[record.key] = (name.file, record)
        self._chain.append(name)
        self._sizes[name.file] = len(data)
        return True

    def _value(self, key: str) -> bytes | None:
        """A live key's value, read and verified. None: its pack has gone meanwhile."""
        file, record = self._live[key]
        path = self._directory / file
        with sealed_file.opened(path) as opened:
            if opened is None:
                return None
            data = os.pread(opened.fileno(), record.size, record.offset)
        return pack_format.decode_record(data, 0, path)[1]
