"""Looking at the epochs of a store: which there are, what each consists of. Reads only; any process may, at any time.

Nothing here needs the topology: what is told comes from the store's identity and the manifests. An epoch that its owner
deletes while somebody looks is left out, or told by one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.checkpoint import chain, savepoints
from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import OperatorPart, Place
from holdfast.checkpoint.savepoints import Savepoint
from holdfast.checkpoint.stored_names import region_of
from holdfast.errors import ConfigError, StoreError
from holdfast.ids import INITIAL_EPOCH, Epoch, RegionName
from holdfast.state.values import codec
from holdfast.store.base import Store
from holdfast.store.urls import open_store


def open_reader(where: str | Path | Store) -> Store:
    """The store to look at. It must exist: StoreError or ConfigError otherwise, MismatchError if it is newer."""
    store = open_store(where)
    store.read_identity()
    return store


# --- which epochs there are -----------------------------------------------------------------------------------------


def regions(store: Store) -> list[RegionName]:
    """Regions that have a published epoch. Their entries name them; the last summary names regions whose entries are
    gone."""
    names = {region_of(entry) for entry in store.entries()} - {None}
    summaries = [event.data for event in store.events() if event.kind == "summary"]
    names.update(RegionName(name) for data in summaries[-1:] for name in data.get("regions", {}))
    return sorted(name for name in names if name and store.epochs(name))


def choose_region(store: Store, region: str | None, operator: str | None = None) -> RegionName:
    """The region that is meant: the one named, the one of the operator, or the only one. Else ConfigError."""
    found = regions(store)
    if not found:
        raise ConfigError(
            f"{store.url} has no published epoch yet.", cure="A run publishes its first one after a while."
        )
    if region is not None:
        if region in found:
            return RegionName(region)
        raise ConfigError(
            f"{store.url} has no epoch of a region {region!r}.", cure=f"Regions are {_listed(found)}."
        )
    if operator is not None:
        found = [r for r in found if operator in newest_manifest(store, r).operators()] or found
    if len(found) == 1:
        return found[0]
    raise ConfigError(f"{store.url} has several regions.", cure=f"Name one of {_listed(found)}.")


def choose_epoch(store: Store, region: RegionName, epoch: int | str | None = None) -> Epoch:
    """The epoch that is meant, by number or as the name of a savepoint; None: the newest. ConfigError listing those there
    are if it is not there."""
    published = store.epochs(region)
    if epoch is None and published:
        return published[-1]
    points = savepoints.read(store, region)
    if isinstance(epoch, str):
        epoch = int(epoch) if epoch.isdecimal() else points[epoch].epoch if epoch in points else epoch
    if epoch in published:
        return Epoch(int(epoch))
    named = f"; savepoints are {_listed(list(points))}" if points else ""
    raise ConfigError(
        f"region {region!r} in {store.url} has no epoch {epoch}; it was never published, or is deleted.",
        cure=f"Epochs are {_listed(published)}{named}.",
    )


def chosen_regions(store: Store, region: str | None) -> list[RegionName]:
    """The region that is named, or all that have an epoch. ConfigError if there is none."""
    return regions(store) if region is None and regions(store) else [choose_region(store, region)]


def choose_savepoint(store: Store, name: str, region: str | None = None) -> dict[RegionName, Savepoint]:
    """The savepoint of that name in every region that has it, or in one. ConfigError listing those there are."""
    points = {where: savepoints.read(store, where) for where in chosen_regions(store, region)}
    found = {where: of_region[name] for where, of_region in points.items() if name in of_region}
    if not found:
        names = sorted({each for of_region in points.values() for each in of_region})
        raise ConfigError(f"{store.url} has no savepoint {name!r}.", cure=f"Savepoints are {_listed(names)}.")
    return found


def newest_manifest(store: Store, region: RegionName) -> Manifest:
    return read_manifest(store, region, choose_epoch(store, region))


def read_manifest(store: Store, region: RegionName, epoch: Epoch) -> Manifest:
    """The manifest, verified, and of this very job, region and epoch."""
    return manifests.read(store, region, epoch, store.read_identity().job_id)


def find_operator(manifest: Manifest, operator: str) -> OperatorPart:
    """The operator's part of the epoch. ConfigError listing those there are."""
    found = manifest.operators()
    if operator in found:
        return found[operator]
    raise ConfigError(
        f"epoch {manifest.epoch} of region {manifest.region!r} has no operator {operator!r} with a state.",
        cure=f"Operators are {_listed(sorted(found))}.",
    )


def _listed(names: Sequence[object]) -> str:
    return ", ".join(map(str, names)) or "none"


def value_of(store: Store, part: OperatorPart) -> Any:
    """The operator's small state, verified and decoded; None if it has none. Of variables that are stored as a base and
    deltas, what they come to. Data only: nothing is executed."""
    if part.blob is not None:
        return codec.decode(get_blob(store, part.blob))
    if part.pairs:
        restored = chain.restore(store, part.pairs)
        return {"variables": dict(restored.payloads), "rest": restored.rest}
    return None


# --- epochs at a glance ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """One line of `holdfast checkpoints list`."""

    region: str
    epoch: int
    wall: float
    previous: int
    attempt: int
    forms: Mapping[str, str]
    """Per operator whose manifest tells: base, delta or full."""
    bytes: int
    """Of everything the epoch needs."""
    added_bytes: int | None
    """Of what the epoch before did not need; None: that one is not there any more."""
    segments: int
    operators: int
    newest: bool
    savepoint: str | None = None


def summaries(store: Store, region: RegionName) -> list[EpochSummary]:
    """Every epoch of a region, oldest first."""
    found: list[EpochSummary] = []
    sizes: dict[int, dict[Place, int]] = {INITIAL_EPOCH: {}}
    names = savepoints.names_by_epoch(store, region)
    published = store.epochs(region)
    for epoch in published:
        try:
            manifest = read_manifest(store, region, epoch)
        except StoreError:
            if epoch not in store.epochs(region):
                continue  # its owner has just deleted it
            raise
        pieces = list(manifest.pieces())
        sizes[epoch] = {piece.place: piece.ref.size for piece in pieces}
        before = sizes.get(manifest.previous)
        fresh = None if before is None else sizes[epoch].keys() - before.keys()
        found.append(
            EpochSummary(
                region=region,
                epoch=epoch,
                wall=manifest.wall,
                previous=manifest.previous,
                attempt=manifest.attempt,
                forms=forms_of(manifest),
                bytes=sum(sizes[epoch].values()),
                added_bytes=None if fresh is None else sum(sizes[epoch][name] for name in fresh),
                segments=sum(piece.kind == "segment" for piece in pieces),
                operators=len(manifest.operators()),
                newest=epoch == published[-1],
                savepoint=names.get(epoch),
            )
        )
    return found


def forms_of(manifest: Manifest) -> dict[str, str]:
    """Per operator the form in which the epoch holds it, where the manifest tells."""
    return {name: part.form.kind for name, part in manifest.operators().items() if part.form is not None}
