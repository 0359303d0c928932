"""Changes to a store that no run owns: name or un-name epochs, collect old ones. Each takes the store over for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from holdfast.checkpoint import savepoints
from holdfast.checkpoint.look.epochs import choose_savepoint, chosen_regions, newest_manifest
from holdfast.checkpoint.retention import Collected, Collector, Retention
from holdfast.checkpoint.savepoints import Savepoint, Savepoints
from holdfast.errors import OwnedError
from holdfast.ids import OwnerToken, RegionName
from holdfast.store.base import Store


@contextmanager
def owning(store: Store) -> Iterator[OwnerToken]:
    """Own the store for the length of a change. OwnedError if a run is alive."""
    try:
        token = store.acquire()
    except OwnedError as error:
        raise OwnedError(
            error.message, cure=f"Stop that run first: `holdfast stop {store.url}`. Nothing was changed."
        ) from error
    try:
        yield token
    finally:
        store.release()


def name_newest(store: Store, name: str, region: str | None, wall: float) -> list[Savepoint]:
    savepoints.check_name(name)
    with owning(store):
        epochs = {where: newest_manifest(store, where).epoch for where in chosen_regions(store, region)}
        for where in epochs:
            Savepoints(store, where).refuse_taken(name)
        points = [Savepoints(store, where).add(name, epoch, wall) for where, epoch in epochs.items()]
        store.append_events([("savepoint.named", _as_data(point)) for point in points])
        return points


def delete_name(store: Store, name: str, region: str | None) -> list[Savepoint]:
    with owning(store):
        points = [Savepoints(store, each).remove(name) for each in choose_savepoint(store, name, region)]
        store.append_events([("savepoint.deleted", _as_data(point)) for point in points])
        return points


def prune(
    store: Store, retention: Retention, region: str | None, now: float, *, dry_run: bool = False
) -> dict[RegionName, Collected]:
    """Delete what the retention does not keep, and what earlier collections left behind. `dry_run`: only tell."""
    places = chosen_regions(store, region)
    if dry_run:
        return {where: Collector(store, where, retention).would_collect(now) for where in places}
    with owning(store):
        done = {where: Collector(store, where, retention).collect(now) for where in places}
        store.append_events([("epochs.pruned", {"region": r, **asdict(c)}) for r, c in done.items()])
        return done


def _as_data(point: Savepoint) -> dict[str, Any]:
    return {"region": point.region, "name": point.name, "epoch": point.epoch}
