"""Savepoints: names for epochs. An epoch with a name is never collected.

    record savepoints.<region>      JSON {"format": 1, "savepoints": {name: {"epoch": e, "wall": seconds}}}

What must hold: a name stands for a published epoch of its region. An epoch is published before it is named and its name
is deleted before it is; both by the owner of the store, so nobody can collect it in between.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.checkpoint.stored_names import record_name
from holdfast.errors import ConfigError, DamagedError, MismatchError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, RegionName, is_safe_name
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A named epoch. `wall`: when it got its name, for people."""

    region: RegionName
    name: str
    epoch: Epoch
    wall: float


def check_name(name: str) -> str:
    """Return `name` if it can be the name of a savepoint. A number cannot: it would be taken for an epoch."""
    if not is_safe_name(name) or name.isdigit():
        raise ConfigError(
            f"{name[:60]!r} cannot be the name of a savepoint.",
            cure="Use letters, digits, '_', '-' and '.', not digits alone, at most 100 characters.",
        )
    return name


FORMAT = 1
"""Of the record."""


def read(store: Store, region: RegionName) -> dict[str, Savepoint]:
    """The savepoints of a region by name, oldest epoch first. Any process may ask."""
    raw = store.load_record(record_name("savepoints", region))
    if raw is None:
        return {}
    try:
        found = json.loads(raw)
        if found["format"] > FORMAT:
            raise MismatchError(
                f"the savepoints of region {region!r} in {store.url} have format {found['format']}; "
                f"this holdfast knows formats up to {FORMAT}.",
                cure="Use the newer holdfast that wrote them.",
            )
        points = [
            Savepoint(region, str(name), Epoch(int(point["epoch"])), float(point["wall"]))
            for name, point in found["savepoints"].items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedError(
            f"the record {record_name('savepoints', region)!r} in {store.url} does not hold savepoints.",
            cure="Nothing was changed. Restore the record from a backup.",
        ) from error
    return {point.name: point for point in sorted(points, key=lambda point: (point.epoch, point.name))}


def names_by_epoch(store: Store, region: RegionName) -> dict[int, str]:
    """For lists: the names of each epoch that has some."""
    names: dict[int, list[str]] = {}
    for point in read(store, region).values():
        names.setdefault(point.epoch, []).append(point.name)
    return {epoch: ", ".join(of_epoch) for epoch, of_epoch in names.items()}


class Savepoints:
    """A region's savepoints as their owner changes them; from several threads."""

    def __init__(self, store: Store, region: RegionName) -> None:
        self._store = store
        self._region = region
        self._lock = threading.Lock()

    def refuse_taken(self, name: str) -> None:
        """ConfigError if the name cannot be given to the next epoch."""
        taken = read(self._store, self._region).get(check_name(name))
        if taken is not None:
            raise ConfigError(
                f"region {self._region!r} has a savepoint {name!r} already: epoch {taken.epoch}.",
                cure="Choose another name, or delete that savepoint first.",
            )

    def add(self, name: str, epoch: Epoch, wall: float) -> Savepoint:
        """Name a published epoch, durably."""
        with self._lock:
            self.refuse_taken(name)
            if epoch not in self._store.epochs(self._region):
                raise ConfigError(
                    f"region {self._region!r} in {self._store.url} has no epoch {epoch} to name.",
                    cure="See `holdfast checkpoints list`.",
                )
            fp("savepoint.name")
            point = Savepoint(self._region, name, epoch, wall)
            self._write([*read(self._store, self._region).values(), point])
            return point

    def remove(self, name: str) -> Savepoint:
        """Take a name away; its epoch goes with the next collection unless something else keeps it."""
        with self._lock:
            points = read(self._store, self._region)
            if name not in points:
                raise ConfigError(
                    f"region {self._region!r} in {self._store.url} has no savepoint {name!r}.",
                    cure=f"Savepoints are {', '.join(points) or 'none'}.",
                )
            self._write([point for point in points.values() if point.name != name])
            return points[name]

    def _write(self, points: Collection[Savepoint]) -> None:
        named = {point.name: {"epoch": point.epoch, "wall": point.wall} for point in points}
        data = json.dumps({"format": FORMAT, "savepoints": named}, sort_keys=True).encode()
        self._store.save_record(record_name("savepoints", self._region), data)
