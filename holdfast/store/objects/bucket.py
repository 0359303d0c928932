"""What a store needs of an object store, and no more: create once, read, list, delete. And its errors as ours.

There is no rename and no lock. An object is whole or absent; `create` succeeds for one caller only. If the answer is
lost, the object is read back: what it holds tells who made it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import ConfigError, HoldfastError, StoreError
from holdfast.store.objects.url import OURS, Place

T = TypeVar("T")
PIECE_BYTES = 4 << 20
_in_memory = threading.Lock()
"""fsspec's file system in memory looks first and writes then: one thread at a time."""


class Bucket:
    """The objects of one store, by names relative to its place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.url = place.url
        self._fs: Any = None

    @property
    def fs(self) -> Any:
        if self._fs is None:
            self._fs = self.place.connect()
        return self._fs

    def path(self, name: str) -> str:
        return f"{self.place.path}/{name}" if name else self.place.path

    def create(self, name: str, data: bytes) -> bool:
        """Create an object. False: there is one of this name with other bytes. The same bytes count as created."""
        return self._create(name, data, data, self.read)

    def create_file(self, name: str, local: Path, crc: int, size: int) -> bool:
        """The same from a local file, in pieces."""
        return self._create(name, local, (crc, size), self.measure)

    def _create(self, name: str, source: bytes | Path, wanted: T, look: Callable[[str], T | None]) -> bool:
        try:
            self._write(name, source, exclusive=True)
            return True
        except Exception as error:
            found = look(name)
            if found is None and isinstance(error, FileExistsError):
                return False  # it was taken, and whoever took it has removed it since
            if found is None:
                raise self._translated(f"creating {name}", error) from error
            return found == wanted

    def replace(self, name: str, data: bytes) -> None:
        """Create an object or replace it: for hints and signs of life, never for what is restored."""
        try:
            self._write(name, data, exclusive=False)
        except Exception as error:
            raise self._translated(f"writing {name}", error) from error

    def _write(self, name: str, source: bytes | Path, *, exclusive: bool) -> None:
        path, mode = self.path(name), {"mode": "create"} if exclusive else {}
        if self.place.protocol in ("file", "local"):
            _write_file(Path(path), source, os.link if exclusive else os.replace)
        elif self.place.protocol == "memory":
            data = source.read_bytes() if isinstance(source, Path) else source
            with _in_memory:
                self.fs.pipe_file(path, data, **mode)
        elif isinstance(source, Path):
            self.fs.put_file(str(source), path, **mode)
        else:
            self.fs.pipe_file(path, source, **mode)

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """An object's bytes, or some of them. None: there is no such object."""
        found = self._ask(f"reading {name}", self.fs.cat_file, name, start=start, end=end)
        return None if found is None else bytes(found)

    def size(self, name: str) -> int | None:
        """How many bytes an object has. None: there is no such object."""
        found = self._ask(f"reading {name}", self.fs.size, name)
        return None if found is None else int(found)

    def exists(self, name: str) -> bool:
        return bool(self._ask(f"looking for {name}", self.fs.exists, name))

    def names(self, directory: str = "") -> list[str]:
        """Sorted last parts of the names in a directory; empty if there is none."""
        found = self._ask(f"listing {directory or 'it'}", self.fs.ls, directory, detail=False) or []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in names if name and not name.startswith("."))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are fine."""
        for name in names:
            self._ask(f"deleting {name}", self.fs.rm_file, name)

    def measure(self, name: str) -> tuple[int, int] | None:
        """(checksum, size) of an object, read in pieces. None: there is no such object."""
        crc = size = 0
        for piece in self.pieces(name):
            if piece is None:
                return None
            crc, size = checksum(piece, crc), size + len(piece)
        return crc, size

    def pieces(self, name: str) -> Iterator[bytes | None]:
        """An object piece by piece; None if it is not there, or not any more."""
        size = self.size(name)
        if size is None:
            yield None
            return
        for start in range(0, size, PIECE_BYTES):
            yield self.read(name, start, min(size, start + PIECE_BYTES))

    def _ask(self, what: str, call: Callable[..., Any], name: str, **settings: Any) -> Any:
        """What the file system answers about an object. None: there is no such object."""
        try:
            return call(self.path(name), **settings)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._translated(what, error) from error

    def check_exclusive(self) -> None:
        """ConfigError if a second creation of the same object succeeds: old servers ignore the condition."""
        if not self.place.exclusive or self.place.protocol in OURS:
            return
        name = f"probe/{secrets.token_hex(8)}"
        try:
            self.create(name, b"first")
            if self.create(name, b"second"):
                raise ConfigError(
                    f"{self.url} replaces objects although that was forbidden: two runs could both write.",
                    cure="Use a server with conditional writes, or add exclusive=no and start one run only.",
                )
        finally:
            self.delete([name])

    def _translated(self, what: str, error: Exception) -> HoldfastError:
        if isinstance(error, HoldfastError):
            return error
        if isinstance(error, OSError) and error.errno in durable.NO_SPACE:
            return durable.no_space(f"{what} in {self.url}")
        text = str(error) or type(error).__name__
        return StoreError(
            f"{what} in {self.url} failed: {text}.",
            cure="Check the network, the credentials and the permissions, then start the run again.",
        )


def _write_file(path: Path, source: bytes | Path, give_name: Callable[[Path, Path], None]) -> None:
    """A local file, whole from the moment it has its name. `give_name` may refuse one that is taken."""
    durable.make_directory(path.parent)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        if isinstance(source, Path):
            shutil.copyfile(source, staged)
            os.chmod(staged, durable.FILE_MODE)
            durable.fsync_file(staged)
        else:
            durable.write_staged(staged, source)
        give_name(staged, path)
    finally:
        durable.remove_quietly(staged)
    durable.fsync_directory(path.parent)
