"""Fork: a new store whose regions begin with an epoch of another store, which is only read.

Unchanged operators keep their state, sources their position. Operators that the next topology does not have are named
(`drop`), so that nobody loses state by a typo. See `founding.py` for what the new store is.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.change.founding import Founded, Pieces, Seed, found_store, region_epochs, schemas_of
from holdfast.checkpoint.look import epochs
from holdfast.checkpoint.manifest import Manifest
from holdfast.errors import ConfigError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store
from holdfast.store.urls import open_store


def resolve(store: Store, wanted: str, region: str | None = None) -> dict[RegionName, Epoch]:
    """What EPOCH|SAVEPOINT means: an epoch of one region, or a savepoint in every region that has it.
    ConfigError listing what there is."""
    if wanted.isdigit():
        where = epochs.choose_region(store, region)
        return {where: epochs.choose_epoch(store, where, wanted)}
    points = epochs.choose_savepoint(store, wanted, region)
    return {where: point.epoch for where, point in points.items()}


def seed_of(store: Store, chosen: Mapping[RegionName, Epoch], kind: str, drop: Collection[str] = ()) -> Seed:
    """The epochs as something a new store can begin with."""
    identity = store.read_identity()
    manifests = tuple(epochs.read_manifest(store, region, epoch) for region, epoch in chosen.items())
    refuse_unknown(manifests, drop)
    schemas = {name: s for name, s in schemas_of(store, manifests).items() if name not in drop}
    pieces, dropped = Pieces(partial(get_blob, store), store.fetch_segment), tuple(sorted(set(drop)))
    return Seed(kind, store.url, identity.job_id, identity.topology, manifests, schemas, pieces, dropped)


def refuse_unknown(manifests: Collection[Manifest], drop: Collection[str]) -> None:
    """ConfigError if an operator that is to be dropped is not there."""
    there = sorted({name for manifest in manifests for name in manifest.fingerprint})
    if unknown := sorted(set(drop) - set(there)):
        raise ConfigError(
            f"there is no operator {unknown[0]!r} to drop.", cure=f"Operators are {', '.join(there)}."
        )


def fork(
    source: Store | str | Path,
    wanted: str | int,
    target: Store | str | Path,
    *,
    region: str | None = None,
    drop: Collection[str] = (),
    wall: float | None = None,
) -> Founded:
    """Make a new store that begins with an epoch or savepoint of another. A run may go on on that one meanwhile."""
    store, new = epochs.open_reader(source), open_store(target)
    if store.url == new.url:
        raise ConfigError(f"{store.url} cannot be forked into itself.", cure="Name another place.")
    chosen = resolve(store, str(wanted), region)
    try:
        seed = seed_of(store, chosen, "fork", drop)
        return found_store(new, seed, time.time() if wall is None else wall)
    except StoreError as error:
        raise gone(store, chosen) or error from error


def gone(store: Store, chosen: Mapping[RegionName, Epoch]) -> ConfigError | None:
    """What to say if an epoch that was being read is not there any more: its owner deletes old ones."""
    left = {region: epoch for region, epoch in chosen.items() if epoch not in store.epochs(region)}
    if not left:
        return None
    return ConfigError(
        f"{region_epochs(left)} was deleted by the run on {store.url} while it was read.",
        cure="Make a savepoint and use its name: savepoints stay.",
    )
