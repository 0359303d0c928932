"""Export and import: epochs as one self-contained file. Format: docs/formats/export.md.

    holdfast-export       index: a line `holdfast-export 1 crc32=…`, then JSON
    manifest-0000 …       manifests as they were published
    piece-000000 …        blobs and segments, in the order of the index

Reading trusts nothing: members must have exactly the names, order and sizes of the index, the index must list exactly
what the manifests refer to, and every byte is verified before a new store is begun.
"""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from holdfast import durable
from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint import typed_json
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.change import archive
from holdfast.checkpoint.change.archive import Member, chunks_of, refused
from holdfast.checkpoint.change.fork import gone, refuse_unknown, resolve, seed_of
from holdfast.checkpoint.change.founding import Founded, Pieces, Seed, distinct, found_store
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import Piece
from holdfast.checkpoint.stored_names import record_name
from holdfast.durable import checksum, translate_os_errors
from holdfast.errors import ConfigError, StoreError
from holdfast.ids import is_safe_name
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef, Store
from holdfast.store.names import check_epoch, check_name

MAGIC = "holdfast-export"
FORMAT = 1
INDEX_BYTES_MAX = 64 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that holds epochs."""

    file: str
    epochs: dict[str, int]
    pieces: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """What the file says it holds."""

    job: str
    topology: str
    store: str
    schemas: Mapping[str, str]
    manifests: tuple[tuple[int, ...], ...]
    """(size, checksum) of each."""
    pieces: tuple[SegmentRef, ...]
    """Blobs and segments; of both entry, key, size and checksum."""


# --- export -----------------------------------------------------------------------------------------------------------


def export(store: Store, wanted: str, target: Path, *, region: str | None = None) -> Exported:
    """Write an epoch or savepoint to a new file: whole and durable, or not at all."""
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; nothing was changed.", cure="Name a new file.")
    epochs = resolve(store, wanted, region)
    staged = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        seed = seed_of(store, epochs, "export")
        pieces = distinct(seed.manifests)
        with translate_os_errors(str(target)):
            try:
                _write(staged, seed, [store.manifest(r, e) for r, e in epochs.items()], pieces)
                os.link(staged, target)  # refuses what another process put there meanwhile
                durable.fsync_directory(target.parent)
            finally:
                durable.remove_quietly(staged)
    except StoreError as error:
        raise gone(store, epochs) or error from error
    return Exported(str(target), seed.epochs, len(pieces), target.stat().st_size)


def _write(staged: Path, seed: Seed, bodies: Sequence[bytes], pieces: Sequence[Piece]) -> None:
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, durable.FILE_MODE)
    with (
        open(fd, "wb") as file,
        tempfile.TemporaryDirectory(prefix=".holdfast-", dir=staged.parent) as scratch,
    ):
        index = _index(seed, bodies, pieces)
        archive.write_member(file, MAGIC, len(index), [index])
        for number, body in enumerate(bodies):
            archive.write_member(file, f"manifest-{number:04d}", len(body), [body])
        for number, piece in enumerate(pieces):
            chunks = _bytes_of(seed, piece, Path(scratch) / "piece")
            archive.write_member(file, f"piece-{number:06d}", piece.ref.size, chunks)
        archive.write_end(file)
        file.flush()
        os.fsync(file.fileno())


def _index(seed: Seed, bodies: Sequence[bytes], pieces: Sequence[Piece]) -> bytes:
    index = Index(
        job=seed.job,
        topology=seed.topology,
        store=seed.store,
        schemas={name: base64.b64encode(raw).decode() for name, raw in seed.schemas.items()},
        manifests=tuple((len(body), checksum(body)) for body in bodies),
        pieces=tuple(SegmentRef(*piece.place, piece.ref.size, piece.ref.crc) for piece in pieces),
    )
    return typed_json.encode(MAGIC, FORMAT, index)


def _bytes_of(seed: Seed, piece: Piece, scratch: Path) -> Iterator[bytes]:
    """A piece's bytes, verified by the store."""
    if isinstance(piece.ref, BlobRef):
        yield seed.pieces.blob(piece.ref)
        return
    seed.pieces.segment(piece.ref, scratch)
    with open(scratch, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


# --- import -----------------------------------------------------------------------------------------------------------


def import_into(
    source: Path, store: Store, *, drop: Collection[str] = (), wall: float | None = None
) -> Founded:
    """Make a new store that begins with the epochs of a file. Every byte of the file is verified first."""
    fd = sealed_file.open_regular(source.resolve())
    if fd is None:
        raise ConfigError(f"there is no file {source}.", cure="Check the path.")
    with open(fd, "rb") as file:
        bundle = Bundle(file, str(source))
        refuse_unknown(bundle.manifests, drop)
        schemas = {name: raw for name, raw in bundle.schemas.items() if name not in drop}
        pieces, dropped = Pieces(bundle.blob, bundle.segment), tuple(sorted(set(drop)))
        origin = ("import", bundle.store, bundle.job, bundle.topology)
        seed = Seed(*origin, bundle.manifests, schemas, pieces, dropped)
        return found_store(store, seed, time.time() if wall is None else wall)


class Bundle:
    """An exported file, verified when it is made. Gives pieces for `founding.Pieces`."""

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        members = archive.read_members(file, where)
        try:
            self._take(self._read_index(members), members[1:])
        except ValueError as error:
            raise refused(where, f"its index is not what it should be ({error})") from error
        for member, crc in self._members.values():
            for _ in chunks_of(file, member, crc, where):
                pass

    def blob(self, ref: BlobRef) -> bytes:
        return b"".join(chunks_of(self._file, *self._members[ref.entry, ref.key], self._where))

    def segment(self, ref: SegmentRef, local: Path) -> None:
        with translate_os_errors(str(local)), open(local, "xb") as file:
            for chunk in chunks_of(self._file, *self._members[ref.entry, ref.key], self._where):
                file.write(chunk)

    def _read_index(self, members: Sequence[Member]) -> Index:
        if not members or members[0].name != MAGIC or members[0].size > INDEX_BYTES_MAX:
            raise refused(self._where, "it does not begin with an index")
        self._file.seek(members[0].offset)
        return typed_json.decode(Index, self._file.read(members[0].size), MAGIC, FORMAT, self._where)

    def _take(self, index: Index, members: Sequence[Member]) -> None:
        count = len(index.manifests)
        names = [f"manifest-{n:04d}" for n in range(count)]
        names += [f"piece-{n:06d}" for n in range(len(index.pieces))]
        sizes = [size for size, _ in index.manifests] + [piece.size for piece in index.pieces]
        if [(member.name, member.size) for member in members] != list(zip(names, sizes, strict=True)):
            raise refused(self._where, "its members are not those of its index")
        self.job, self.topology, self.store = index.job, index.topology, index.store
        self.schemas = {name: base64.b64decode(raw, validate=True) for name, raw in index.schemas.items()}
        self.manifests = tuple(
            self._manifest(member, crc)
            for member, (_, crc) in zip(members[:count], index.manifests, strict=True)
        )
        self._members = {
            (check_name("entry", piece.entry), check_name("key", piece.key)): (member, piece.crc)
            for member, piece in zip(members[count:], index.pieces, strict=True)
        }
        needed = {p.place: (p.ref.size, p.ref.crc) for p in distinct(self.manifests)}
        if needed != {name: (member.size, crc) for name, (member, crc) in self._members.items()}:
            raise refused(self._where, "its pieces are not those that its manifests need")
        self._check_names()

    def _check_names(self) -> None:
        """All that founding a store will call something by: none of it is found wrong when half of the store is made."""
        regions = [manifest.region for manifest in self.manifests]
        if len(set(regions)) < len(regions) or not regions:
            raise refused(self._where, "it does not hold one epoch of each region")
        for name in [*self.schemas, *regions]:
            if not is_safe_name(name):
                raise refused(self._where, f"nothing can be called {name[:60]!r}")
        for manifest in self.manifests:
            check_name("record", record_name("controller", manifest.region))
            if not check_epoch(manifest.epoch) > 0:
                raise refused(self._where, "it holds an epoch that no run established")
        keys = [name for piece in distinct(self.manifests) for name in piece.names]
        if len(set(keys)) < len(keys):
            raise refused(self._where, "two of its pieces share their bytes")

    def _manifest(self, member: Member, crc: int) -> Manifest:
        body = b"".join(chunks_of(self._file, member, crc, self._where))
        found = manifests.decode(body, f"{member.name} in {self._where}")
        if found.job != self.job:
            raise refused(self._where, f"{member.name} belongs to another job")
        check_name("region", found.region)
        return found
