"""Read everything an epoch needs and compare it with what was written. Every damaged piece is reported, not only the first.

What must hold: nothing is written into the store, its owner is not disturbed, and nothing that is stored is executed: blobs
are decoded as data, tables are checked as those of strangers. An epoch that its owner deletes meanwhile is no damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.blobs import BlobRef, get_blob
from holdfast.checkpoint.look.epochs import read_manifest
from holdfast.checkpoint.look.segment_files import SegmentFiles
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import Piece
from holdfast.checkpoint.stored_names import record_name
from holdfast.errors import DamagedError, HoldfastError, MismatchError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.state.columns import arrow_frames, parquet_frames
from holdfast.state.values import codec
from holdfast.store import sealed_file
from holdfast.store.base import SegmentRef, Store
from holdfast.store.files import pack_format
from holdfast.store.files.file_store import FileStore
from holdfast.store.files.packs import chain_of

AT_ONCE = 4
"""Pieces read at the same time: checksums leave Python's lock."""

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """A piece that is not as written. `name`: file, or store and key; `needed_by`: epochs that need it."""

    name: str
    why: str
    needed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what is wrong with it. `gone`: epochs that were deleted while they were looked at."""

    epochs: tuple[str, ...]
    pieces: int
    bytes: int
    problems: tuple[Problem, ...]
    gone: tuple[str, ...] = ()


Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, from the thread that called `verify`."""


def verify(
    store: Store, chosen: Sequence[tuple[RegionName, Epoch]], progress: Progress | None = None
) -> Verified:
    """Look at these epochs. A piece that several need is read once."""
    found, problems = _manifests(store, chosen)
    needed: dict[Piece, list[str]] = {}
    for manifest in found:
        for piece in manifest.pieces():
            needed.setdefault(piece, []).append(_name(manifest.region, manifest.epoch))
    problems += [*_records(store, found), *_packs(store, needed), *_pieces(store, needed, progress)]
    still_there = {_name(region, epoch) for region, _ in chosen for epoch in store.epochs(region)}
    gone = [name for name in (_name(*each) for each in chosen) if name not in still_there]
    counts = [p for p in problems if not p.needed_by or set(p.needed_by) - set(gone)]
    return Verified(
        epochs=tuple(_name(*each) for each in chosen),
        pieces=len(needed) + len(chosen),
        bytes=sum(piece.ref.size for piece in needed),
        problems=tuple(sorted(_once(counts), key=lambda problem: problem.name)),
        gone=tuple(gone),
    )


def _name(region: RegionName, epoch: Epoch) -> str:
    return f"{region}/{epoch}"


def _once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """A damaged file may hold many pieces: it is reported once, with all who need it."""
    merged: dict[tuple[str, str], tuple[str, ...]] = {}
    for problem in problems:
        known = merged.get((problem.name, problem.why), ())
        merged[problem.name, problem.why] = tuple(dict.fromkeys((*known, *problem.needed_by)))
    return (Problem(name, why, needed_by) for (name, why), needed_by in merged.items())


def _manifests(
    store: Store, chosen: Sequence[tuple[RegionName, Epoch]]
) -> tuple[list[Manifest], list[Problem]]:
    """Manifests that could be read, and those that could not."""
    found: list[Manifest] = []
    problems: list[Problem] = []
    for region, epoch in chosen:
        try:
            found.append(read_manifest(store, region, epoch))
        except (StoreError, MismatchError) as error:
            place = manifests.where(store, region, epoch)
            if isinstance(store, FileStore):
                place = str(store.manifest_path(region, epoch))
            problems.append(Problem(place, error.message, (_name(region, epoch),)))
    return found, problems


def _records(store: Store, known: Iterable[Manifest]) -> Iterator[Problem]:
    """Small records that a restore reads beside the epoch: absent ones are fine."""
    names = dict.fromkeys(record_name("controller", manifest.region) for manifest in known)
    for manifest in known:
        names.update(
            dict.fromkeys(
                record_name("schema", op) for op, of in manifest.fingerprint.items() if of.kind == "source"
            )
        )
    for name in names:
        try:
            store.load_record(name)
        except (StoreError, MismatchError) as error:
            place = store.record_path(name) if isinstance(store, FileStore) else f"{store.url} ({name})"
            yield Problem(str(place), error.message)


def _packs(store: Store, needed: dict[Piece, list[str]]) -> Iterator[Problem]:
    """Every damaged pack of a store of plain files: one of them makes all pairs of its entry unreadable."""
    if not isinstance(store, FileStore):
        return
    job = store.read_identity().job_id
    entries: dict[str, list[str]] = {}
    for piece, epochs in needed.items():
        if isinstance(piece.ref, BlobRef):
            entries.setdefault(piece.ref.entry, []).extend(epochs)
    for entry, epochs in sorted(entries.items()):
        directory = store.root / "entries" / entry
        for pack in chain_of(sealed_file.list_directory(directory)):
            if why := _pack_damage(directory / pack.file, job):
                yield Problem(str(directory / pack.file), why, tuple(dict.fromkeys(epochs)))


def _pack_damage(path: Path, job: str) -> str | None:
    try:
        data = sealed_file.read_whole(path)
        if data is not None:  # else it has gone meanwhile: nothing in it counted
            name = f"{job}/{path.parent.name}/{path.name}"
            pack_format.decode(data, path, name, base=path.suffix == ".base")
    except (StoreError, MismatchError) as error:
        return error.message
    return None


# --- pieces -----------------------------------------------------------------------------------------------------------


def _pieces(store: Store, needed: dict[Piece, list[str]], progress: Progress | None) -> list[Problem]:
    total = sum(piece.ref.size for piece in needed)
    problems: list[Problem] = []
    done = 0
    with SegmentFiles(store) as files, ThreadPoolExecutor(AT_ONCE) as pool:
        looks = {pool.submit(_look, store, files, piece): piece for piece in needed}
        for look in as_completed(looks):
            piece = looks[look]
            if (error := look.result()) is not None:
                problems.append(
                    Problem(_place(store, piece, error), error.message, tuple(dict.fromkeys(needed[piece])))
                )
            done += piece.ref.size
            if progress is not None:
                progress(done, total)
    return problems


def _place(store: Store, piece: Piece, error: HoldfastError) -> str:
    """The file or key that is damaged. A pack that makes others unreadable is the one to be named."""
    if isinstance(store, FileStore):
        if not isinstance(piece.ref, BlobRef):
            return str(store.segment_path(*piece.place))
        directory = store.root / "entries" / piece.ref.entry
        named = [
            file for file in sealed_file.list_directory(directory) if str(directory / file) in error.message
        ]
        if named:
            return str(directory / named[0])
    return store.describe(*piece.place)


def _look(store: Store, files: SegmentFiles, piece: Piece) -> HoldfastError | None:
    """What is wrong with a piece, if anything."""
    for attempt in range(_ATTEMPTS):
        try:
            if isinstance(piece.ref, BlobRef):
                _look_at_value(store, piece.ref, encoded=piece.kind == "blob")
            else:
                files.check(piece.ref, _frame_of(piece.ref))
        except (DamagedError, MismatchError) as error:
            return error
        except StoreError as error:  # the store was busy, or changed faster than it could be read
            if attempt == _ATTEMPTS - 1:
                return error
        else:
            return None
    return None


def _look_at_value(store: Store, ref: BlobRef, encoded: bool) -> None:
    data = get_blob(store, ref)
    if not encoded:
        return
    try:
        codec.decode(data)
    except DamagedError as error:
        place = store.describe(ref.entry, ref.key)
        raise DamagedError(f"{place}: {error.message}", cure=error.cure) from error
    except HoldfastError:
        pass  # a registered class of the topology that is not there now: the bytes are well


def _frame_of(ref: SegmentRef) -> Callable[[Path], object]:
    """How to see that a file with the right bytes is what it should be, all of it."""
    return parquet_frames.check if ref.key.endswith(".parquet") else arrow_frames.read_file
