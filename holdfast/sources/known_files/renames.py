"""Files that have another name than when they were read: recognised by what is known of them, never by their names.

A file that stays as it is has the size, time of modification, beginning and end that it had. One that may grow begins with
the bytes that were read, also if it was compressed meanwhile, as rotated logs are.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable, Iterable, Mapping

from holdfast.errors import InputError
from holdfast.sources.known_files.facts import Fact, fingerprint, time_of

SURE_BYTES = 256
"""A longer file that begins with so many bytes that were read is that file; with fewer it may be one that begins alike."""
_COMPRESSED_LOOKS = 20
"""A compressed file is compared with so many of the last files that are gone: each costs a pass over it."""


class Homes:
    """Finds where files are now. `path_of` tells where a name lies, `may_grow` whether the file may. Used by one thread."""

    def __init__(self, path_of: Callable[[str], str], may_grow: Callable[[str], bool]) -> None:
        self._path_of, self._may_grow = path_of, may_grow
        self._ordinals: dict[tuple[int, int], list[int]] = {}
        """By size and time, to find one file among very many without looking at each."""
        self._count = 0

    def add(self, ordinal: int, fact: Fact) -> None:
        """A file has this form, from now on or too."""
        self._ordinals.setdefault(fact[:2], []).append(ordinal)

    def find(
        self, found: set[str], names: list[str], last: dict[str, int], fact_of: Callable[[int], Fact]
    ) -> dict[str, str]:
        """Old name to new one, of files with ordinals. `found` is there now; `names` are known by ordinal, `last` is the other way round.
        InputError if a file cannot be told from one that only begins alike."""
        for ordinal in range(self._count, len(names)):
            self.add(ordinal, fact_of(ordinal))
        self._count = len(names)
        homes = self._of_grown(found, {name: fact_of(n) for name, n in last.items() if self._may_grow(name)})
        for name in sorted(found - last.keys() - set(homes.values())):
            gone = [old for old in self._same(name, names, fact_of) if old not in found and old not in homes]
            homes.update(dict.fromkeys(gone[:1], name))
        return homes

    def _of_grown(self, found: set[str], known: dict[str, Fact]) -> dict[str, str]:
        displaced = {
            name: fact
            for name, fact in known.items()
            if fact.size > 0 and fact.check and (name not in found or self._is_another(name, fact))
        }
        homes: dict[str, str] = {}
        for name in sorted(n for n in found if n in displaced or n not in known) if displaced else ():
            left = [(old, fact) for old, fact in displaced.items() if old not in homes]
            if (old := self._which(self._path_of(name), left)) is not None:
                homes[old] = name
        return homes

    def _is_another(self, name: str, fact: Fact) -> bool:
        """Whether a file that may grow does not begin as it did."""
        try:
            path = self._path_of(name)
            return os.stat(path).st_size < fact.size or fingerprint(path, fact.size) != fact.check
        except FileNotFoundError:
            return True

    def _same(self, name: str, names: list[str], fact_of: Callable[[int], Fact]) -> list[str]:
        """Names of files that were just as this one is."""
        try:
            stat, path = os.stat(self._path_of(name)), self._path_of(name)
            alike = self._ordinals.get((stat.st_size, time_of(stat.st_mtime_ns)), []) if stat.st_size else []
            check = fingerprint(path, stat.st_size) if alike else 0
            return [names[ordinal] for ordinal in alike if fact_of(ordinal).check == check]
        except FileNotFoundError:
            return []  # on its way

    def _which(self, path: str, displaced: list[tuple[str, Fact]]) -> str | None:
        """The file that lies at `path` now, of those that may grow."""
        try:
            if path.endswith(".gz"):
                return self._compressed(path, displaced[-_COMPRESSED_LOOKS:])
            stat = os.stat(path)
            for old, fact in sorted(displaced, key=lambda each: -each[1].size):
                if fact.size > stat.st_size or fingerprint(path, fact.size) != fact.check:
                    continue
                same = fact.size == stat.st_size and fact.time in (0, time_of(stat.st_mtime_ns))
                if not same and fact.size < SURE_BYTES:
                    raise InputError(
                        f"{path} begins with the {fact.size} bytes that were read as {self._path_of(old)}, which is gone: "
                        "was it renamed? That is too little to be sure; its lines could come twice.",
                        cure="Give it its old name back, or move it out of the directory.",
                    )
                return old
        except FileNotFoundError:
            pass  # on its way
        return None

    def _compressed(self, path: str, displaced: Iterable[tuple[str, Fact]]) -> str | None:
        """The same for a file that was compressed since it was read."""
        try:
            for old, fact in displaced:
                if fingerprint(path, fact.size, gzip.open) != fact.check:
                    continue
                with gzip.open(path, "rb") as file:
                    file.seek(fact.size)
                    if file.read(1):
                        raise unread_compressed(path, self._path_of(old), fact.size)
                return old
        except (EOFError, OSError, zlib.error):
            pass  # still being written, or none: reading it will tell
        return None


def unread_compressed(path: str, before: str, size: int) -> InputError:
    """What lies at `path` is a log that was not read to its end, and cannot be read on."""
    return InputError(
        f"{path} is {before}, compressed before all of it was read: {size} bytes were.",
        cure="Uncompress it under its old name, and compress logs later (logrotate: delaycompress).",
    )


def new_names(names: list[str], homes: Mapping[str, str]) -> list[str]:
    """The names of all files, by ordinal, after some moved. What had a name that another file has taken, and is nowhere, gets one
    that no listing has."""
    taken = set(homes.values())
    return [
        homes.get(name) or (f".gone-{ordinal}-{name.replace('/', '-')}" if name in taken else name)
        for ordinal, name in enumerate(names)
    ]
