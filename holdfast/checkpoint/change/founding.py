"""A new store that begins with epochs of another one: what `fork` and `import` have in common.

    record founding     JSON {"state": "under way" | "done", "kind", "store", "job", "epochs", "dropped"}

The new store is a job of its own: own identity, own output. It is written in this order: identity, record "under way",
pieces, records of sources and controllers, manifests, record "done". A run refuses a store whose founding is under way,
so it never begins with half of it; doing it again goes on, and doing another one there is refused.

Sinks take nothing along: what they showed belongs to the job they showed it for. An operator that is dropped leaves its
state behind. An operator that the first run finds missing here begins with its initial state (`Manifest.may_begin`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.blobs import BlobRef, put_blobs
from holdfast.checkpoint.manifest import Manifest, Origin
from holdfast.checkpoint.parts import Piece, Place
from holdfast.checkpoint.stored_names import record_name
from holdfast.durable import translate_os_errors
from holdfast.errors import ConfigError, DamagedError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Epoch, OwnerToken, RegionName
from holdfast.protocol.messages import ControllerRecord
from holdfast.store import sealed_file
from holdfast.store.base import Identity, SegmentRef, Store
from holdfast.store.files.file_store import FileStore
from holdfast.store.sqlite.sqlite_store import SqliteStore

RECORD = "founding"
UNDER_WAY, DONE = "under way", "done"

Refs = Mapping[Place, BlobRef]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where the stored pieces of the epochs come from. Both verify what they give: DamagedError otherwise."""

    blob: Callable[[BlobRef], bytes]
    segment: Callable[[SegmentRef, Path], None]


@dataclass(frozen=True, slots=True)
class Seed:
    """What a new store begins with. `store` and `job`: where it comes from, for people."""

    kind: str
    store: str
    job: str
    topology: str
    manifests: tuple[Manifest, ...]
    schemas: Mapping[str, bytes]
    """Stored schemas by source."""
    pieces: Pieces
    dropped: tuple[str, ...] = ()

    @property
    def epochs(self) -> dict[str, int]:
        return {str(manifest.region): int(manifest.epoch) for manifest in self.manifests}

    def described(self) -> dict[str, Any]:
        source = {"kind": self.kind, "store": self.store, "job": self.job}
        return {**source, "epochs": self.epochs, "dropped": list(self.dropped)}


@dataclass(frozen=True, slots=True)
class Founded:
    """A new store. `pieces` and `bytes` of state were put there."""

    job: str
    epochs: Mapping[str, int]
    pieces: int
    bytes: int


def refuse_unfinished(store: Store) -> None:
    """Before a run: ConfigError if the store was only half made."""
    found = _record(store)
    if found is not None and found["state"] != DONE:
        raise ConfigError(
            f"{store.url} was not finished: the {found['kind']} of {found['store']} that makes it broke off.",
            cure=f"Do that {found['kind']} again, with the same arguments, or delete the store.",
        )


def found_store(store: Store, seed: Seed, wall: float) -> Founded:
    """Make the new store, or go on with what an earlier attempt left. The source is only read."""
    kept = tuple(_without(manifest, seed) for manifest in seed.manifests)
    _refuse_another(store, seed)
    identity = store.open(seed.topology)
    token = store.acquire()
    try:
        if store.load_record(RECORD) is None and store.entries():
            raise _exists(store)  # another process made it meanwhile
        _save(store, UNDER_WAY, seed)
        fp("founding.begun")
        pieces = distinct(kept)
        refs = _copy(store, seed.pieces, pieces)
        for name, schema in seed.schemas.items():
            store.save_record(record_name("schema", name), schema)
        fp("founding.copied")
        for manifest in kept:
            _publish(store, _as_own(manifest, refs, identity, token, seed, wall))
        _save(store, DONE, seed)
    finally:
        store.release()
    return Founded(identity.job_id, seed.epochs, len(pieces), sum(piece.ref.size for piece in pieces))


# --- what is there already ------------------------------------------------------------------------------------------


def _refuse_another(store: Store, seed: Seed) -> None:
    """ConfigError unless the place is free, or holds the beginning of this very founding."""
    try:
        store.read_identity()
    except StoreError as error:
        if isinstance(error, DamagedError):
            raise
        return  # there is no store; if there is something else, opening it says so
    found = _record(store)
    if found is None and not store.entries() and not store.events():
        return  # broken off right behind the identity
    if found is None or found["state"] == DONE:
        raise _exists(store)
    if {**found, "state": "", "store": ""} != {**seed.described(), "state": "", "store": ""}:
        raise ConfigError(
            f"{store.url} is half of another {found['kind']}, of {found['store']}.",
            cure="Do that one again with the same arguments, or delete the store.",
        )


def _exists(store: Store) -> ConfigError:
    return ConfigError(
        f"{store.url} is a store already; nothing was changed.", cure="Name a place where there is none."
    )


def _record(store: Store) -> dict[str, Any] | None:
    raw = store.load_record(RECORD)
    with sealed_file.understood(f"the record {RECORD!r} in {store.url}"):
        found = None if raw is None else dict(json.loads(raw))
        return found if found is None else {**found, "state": str(found["state"]), "kind": str(found["kind"])}


def _save(store: Store, state: str, seed: Seed) -> None:
    store.save_record(RECORD, json.dumps({"state": state, **seed.described()}, sort_keys=True).encode())


def distinct(found: Iterable[Manifest]) -> list[Piece]:
    """All pieces that some epochs need, each once."""
    return list({piece.place: piece for manifest in found for piece in manifest.pieces()}.values())


# --- copying --------------------------------------------------------------------------------------------------------


def _copy(store: Store, source: Pieces, pieces: Sequence[Piece]) -> Refs:
    """Put pieces into the new store; returns the new references of blobs: another store may cut them otherwise."""
    there = set(store.entries())
    for entry in sorted({piece.ref.entry for piece in pieces} - there):
        store.create_entry(entry)
    refs: dict[Place, BlobRef] = {}
    with (
        translate_os_errors(store.url),
        tempfile.TemporaryDirectory(prefix=".holdfast-", dir=_near(store)) as scratch,
    ):
        for number, piece in enumerate(pieces):
            if isinstance(piece.ref, BlobRef):
                entry, key = piece.place
                refs[piece.place] = put_blobs(store, entry, {key: source.blob(piece.ref)})[key]
            else:
                local = Path(scratch) / str(number)
                source.segment(piece.ref, local)
                store.put_segment(*piece.place, local, piece.ref.crc)
                local.unlink()
    return refs


def _near(store: Store) -> Path | None:
    """A directory on the new store's file system, where segments can be linked instead of copied."""
    if isinstance(store, FileStore):
        return store.root.parent
    return store.path.parent if isinstance(store, SqliteStore) else None


def _publish(store: Store, manifest: Manifest) -> None:
    # Attempts go on where they were: names of segments carry them and must not come again.
    record = ControllerRecord(manifest.epoch, Epoch(manifest.epoch + 1), manifest.attempt, 0)
    store.save_record(record_name("controller", manifest.region), json.dumps(asdict(record)).encode())
    if manifest.epoch not in store.epochs(manifest.region):
        store.publish(manifest.region, manifest.epoch, manifests.encode(manifest))


# --- the new manifest -----------------------------------------------------------------------------------------------


def _without(manifest: Manifest, seed: Seed) -> Manifest:
    """The manifest without sinks and dropped operators, and without the numbers of rows that crossed the region's border:
    outside of it everything begins anew."""
    gone = {name for name, of in manifest.fingerprint.items() if of.kind == "sink"} | set(seed.dropped)
    parts = {element: replace(part.without(gone), borders={}) for element, part in manifest.parts.items()}
    kept = {name: of for name, of in manifest.fingerprint.items() if name not in gone}
    return replace(manifest, parts=parts, fingerprint=kept)


def _as_own(
    manifest: Manifest, refs: Refs, identity: Identity, token: OwnerToken, seed: Seed, wall: float
) -> Manifest:
    """The manifest as an epoch of the new job."""
    # Operators that were reset and have not run since begin with their initial state here too.
    reset = () if manifest.origin is None else manifest.origin.reset
    return replace(
        manifest,
        job=identity.job_id,
        topology=identity.topology,
        token=token,
        wall=wall,
        previous=INITIAL_EPOCH,
        parts={element: part.moved(refs) for element, part in manifest.parts.items()},
        origin=Origin(seed.kind, manifest.epoch, seed.store, seed.job, seed.dropped, reset),
    )


def schemas_of(store: Store, manifests_: Sequence[Manifest]) -> dict[str, bytes]:
    """Stored schemas of the sources that take part in these epochs."""
    names = [name for one in manifests_ for name, of in one.fingerprint.items() if of.kind == "source"]
    found = {name: store.load_record(record_name("schema", name)) for name in names}
    return {name: schema for name, schema in found.items() if schema is not None}


def region_epochs(found: Mapping[RegionName, Epoch]) -> str:
    """For sentences: `epoch 4 of region 'books'`."""
    return ", ".join(f"epoch {epoch} of region {region!r}" for region, epoch in found.items())
