"""What a store needs of an object store, and no more: create once, read, list, delete. And its errors as ours.

There is no rename and no lock. An object is whole or absent; `create` succeeds for one caller only. If the answer is
lost, the object is read back: what it holds tells who made it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import ConfigError, HoldfastError, NoSpaceError, StoreError
from holdfast.store.objects.url import OURS, Place

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
        try:
            self._create(name, data)
            return True
        except Exception as error:
            found = self.read(name)
            if found is None:
                raise self.translated(f"creating {name}", error) from error
            return found == data

    def _create(self, name: str, data: bytes) -> None:
        path = self.path(name)
        if self.place.protocol in ("file", "local"):
            _place(Path(path), partial(durable.write_staged, data=data), os.link)
        elif self.place.protocol == "memory":
            with _in_memory:
                self.fs.pipe_file(path, data, mode="create")
        else:
            self.fs.pipe_file(path, data, mode="create")

    def create_file(self, name: str, local: Path, crc: int, size: int) -> bool:
        """Create an object from a local file, in pieces. False: there is one of this name with other bytes."""
        path = self.path(name)
        try:
            if self.place.protocol in ("file", "local"):
                _place(Path(path), partial(_copy, local), os.link)
            elif self.place.protocol == "memory":
                self._create(name, Path(local).read_bytes())
            else:
                self.fs.put_file(str(local), path, mode="create")
            return True
        except Exception as error:
            found = self.measure(name)
            if found is None:
                raise self.translated(f"creating {name}", error) from error
            return found == (crc, size)

    def replace(self, name: str, data: bytes) -> None:
        """Create an object or replace it: for hints and signs of life, never for what is restored."""
        try:
            if self.place.protocol in ("file", "local"):
                _place(Path(self.path(name)), partial(durable.write_staged, data=data), os.replace)
            else:
                self.fs.pipe_file(self.path(name), data)
        except Exception as error:
            raise self.translated(f"writing {name}", error) from error

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """An object's bytes, or some of them. None: there is no such object."""
        try:
            return bytes(self.fs.cat_file(self.path(name), start=start, end=end))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self.translated(f"reading {name}", error) from error

    def exists(self, name: str) -> bool:
        try:
            return bool(self.fs.exists(self.path(name)))
        except Exception as error:
            raise self.translated(f"looking for {name}", error) from error

    def names(self, directory: str = "") -> list[str]:
        """Sorted last parts of the names in a directory; empty if there is none."""
        try:
            found = self.fs.ls(self.path(directory), detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self.translated(f"listing {directory or 'it'}", error) from error
        names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in names if name and not name.startswith("."))

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are not there are fine."""
        for name in names:
            try:
                self.fs.rm_file(self.path(name))
            except FileNotFoundError:
                pass
            except Exception as error:
                raise self.translated(f"deleting {name}", error) from error

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
        try:
            size = int(self.fs.size(self.path(name)))
        except FileNotFoundError:
            yield None
            return
        except Exception as error:
            raise self.translated(f"reading {name}", error) from error
        for start in range(0, size, PIECE_BYTES):
            yield self.read(name, start, min(size, start + PIECE_BYTES))

    def check_exclusive(self) -> None:
        """ConfigError if a second creation of the same object succeeds: old servers ignore the condition."""
        if not self.place.exclusive or self.place.protocol in OURS:
            return
        name = f"probe/{secrets.token_hex(8)}"
        try:
            self.create(name, b"first")
            if self.create(name, b"second"):
                raise ConfigError(
                    f"{self.url} replaces objects although it was told not to: two runs could both write.",
                    cure="Use a server with conditional writes, or add exclusive=no and start one run only.",
                )
        finally:
            self.delete([name])

    def translated(self, what: str, error: Exception) -> HoldfastError:
        """Our error for one of the file system's."""
        if isinstance(error, HoldfastError):
            return error
        if isinstance(error, OSError) and error.errno in (28, 122):
            return NoSpaceError(
                f"no space left while {what} in {self.url}.",
                cure="Free some space; the run goes on by itself from the last published epoch.",
            )
        text = str(error) or type(error).__name__
        return StoreError(
            f"{what} in {self.url} failed: {text}.",
            cure="Check the network, the credentials and the permissions, then start the run again.",
        )


def _place(path: Path, write: Callable[[Path], object], name: Callable[[Path, Path], None]) -> None:
    """A local file, whole from the moment it has its name. `name` gives it, and may refuse one that is taken."""
    durable.make_directory(path.parent)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        write(staged)
        name(staged, path)
    finally:
        durable.remove_quietly(staged)
    durable.fsync_directory(path.parent)


def _copy(local: Path, staged: Path) -> None:
    with open(local, "rb") as source, open(staged, "xb") as out:
        os.fchmod(out.fileno(), durable.FILE_MODE)
        while piece := source.read(PIECE_BYTES):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
