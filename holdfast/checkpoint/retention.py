"""Which epochs and stored pieces may go. Decided from manifests read from the store, by the owner only.

What must hold, whenever the process is killed:
1. The newest epoch and epochs with a name (savepoints) never go.
2. A piece that a retained manifest refers to is never touched.
3. An epoch's manifest goes before the pieces only it needed, and that is durable before the first piece goes.
4. Pieces left behind by a killed collection or an abandoned epoch are found later: a *sweep* lists what is stored and
   deletes what no manifest refers to. Only a new process, or a reset, can follow such a mishap; so the first collection
   of a `Collector` sweeps, and the first after a reset. All others delete what the epochs that go referred to, without
   listing anything.

`choose` is pure; a `Collector` acts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint import savepoints
from holdfast.checkpoint.parts import Place
from holdfast.checkpoint.stored_names import entries_of
from holdfast.failpoints import fp
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store

KEEP_EPOCHS = 3


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept: the newest `keep` epochs, and those younger than `keep_for_s` by the wall clock of their driver."""

    keep: int = KEEP_EPOCHS
    keep_for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What went, or would go."""

    epochs: tuple[Epoch, ...] = ()
    pieces: int = 0


def choose(
    walls: Mapping[Epoch, float], retention: Retention, named: Collection[Epoch] = (), now: float = 0.0
) -> list[Epoch]:
    """Epochs that may be deleted, oldest first. `walls`: of every published epoch the time of its publishing.
    A clock that was set back makes epochs look younger, and they stay; the newest ones stay whatever it says."""
    kept = set(sorted(walls)[-max(1, retention.keep) :]) | set(named)
    if retention.keep_for_s is not None:
        kept |= {epoch for epoch, wall in walls.items() if now - wall < retention.keep_for_s}
    return sorted(set(walls) - kept)


def unneeded(
    existing: Mapping[str, Iterable[str]], is_needed: Callable[[Place], bool], under_way: Collection[str] = ()
) -> dict[str, list[str]]:
    """Keys per entry that no retained epoch refers to. Keys that begin with a prefix in `under_way` are being
    uploaded for an epoch not published yet and stay."""
    result: dict[str, list[str]] = {}
    for entry, keys in existing.items():
        gone = [
            key
            for key in keys
            if not is_needed((entry, key)) and not any(key.startswith(prefix) for prefix in under_way)
        ]
        if gone:
            result[entry] = gone
    return result


class Collector:
    """Deletes old epochs of one region and the pieces only they needed. One thread of the owner calls it.

    What it has read of a manifest it knows for good: manifests never change, and only the owner publishes or deletes
    them. Memory follows the pieces that are stored, not the number of epochs.
    """

    def __init__(self, store: Store, region: RegionName, retention: Retention = Retention()) -> None:
        self._store = store
        self._region = region
        self._retention = retention
        self._walls: dict[Epoch, float] = {}
        self._uses: Counter[Place] = Counter()
        """How many published epochs refer to a piece."""
        self._sweep = True

    def sweep_next(self) -> None:
        """Something may have been left behind: the next collection looks for it."""
        self._sweep = True

    def would_collect(self, now: float) -> Collected:
        """What `collect` would delete. Changes nothing and needs no ownership."""
        self._learn()
        doomed = self._choose(now)
        gone = self._unneeded(self._used_by(doomed), ())
        return Collected(tuple(doomed), sum(map(len, gone.values())))

    def until_next_goes(self, now: float) -> float | None:
        """Seconds from `now` until an epoch is too old that is not kept for another reason; None: there is none."""
        lifetime = self._retention.keep_for_s
        if lifetime is None:
            return None
        self._learn()
        doomed = choose(self._walls, replace(self._retention, keep_for_s=None), self._named())
        return min((max(0.0, self._walls[epoch] + lifetime - now) for epoch in doomed), default=None)

    def collect(self, now: float = 0.0, *, under_way: Collection[str] = ()) -> Collected:
        """Delete what may go. If it raises, or the process is killed, a later collection goes on with it."""
        fp("gc.list")
        self._learn()
        doomed = self._choose(now)
        if not doomed and not self._sweep:
            return Collected()
        leaving = self._used_by(doomed)
        gone = self._unneeded(leaving, under_way)
        try:
            self._delete(doomed, gone)
        except BaseException:
            self._forget()
            raise
        self._sweep = False
        for epoch in doomed:
            del self._walls[epoch]
        for piece, count in leaving.items():
            self._uses[piece] -= count
            if not self._uses[piece]:
                del self._uses[piece]
        return Collected(tuple(doomed), sum(map(len, gone.values())))

    def _delete(self, doomed: Iterable[Epoch], gone: Mapping[str, list[str]]) -> None:
        fp("gc.select")
        for epoch in doomed:
            self._store.delete_epoch(self._region, epoch)
        fp("gc.pieces")
        for entry, keys in gone.items():
            fp("gc.delete")
            self._store.delete(entry, keys)

    def _forget(self) -> None:
        """Know nothing: the next collection reads and lists everything anew."""
        self._walls, self._uses, self._sweep = {}, Counter(), True

    def _learn(self) -> None:
        """Read the manifests that are new here."""
        published = self._store.epochs(self._region)
        if not self._walls.keys() <= set(published):
            self._forget()  # an epoch was withdrawn by other means
        for epoch in published:
            if epoch not in self._walls:
                manifest = self._manifest(epoch)
                self._uses.update(manifests.references(manifest))
                self._walls[epoch] = manifest.wall

    def _choose(self, now: float) -> list[Epoch]:
        return choose(self._walls, self._retention, self._named(), now)

    def _named(self) -> list[Epoch]:
        return [point.epoch for point in savepoints.read(self._store, self._region).values()]

    def _used_by(self, epochs: Iterable[Epoch]) -> Counter[Place]:
        """Pieces that some epochs refer to, and how many of them do."""
        leaving: Counter[Place] = Counter()
        for epoch in epochs:
            leaving.update(manifests.references(self._manifest(epoch)))
        return leaving

    def _unneeded(self, leaving: Counter[Place], under_way: Collection[str]) -> dict[str, list[str]]:
        """Keys per entry that nobody needs once the epochs that use `leaving` are gone."""
        existing: dict[str, list[str]] = {}
        if self._sweep:
            mine = entries_of(self._store, self._region)
            existing = {entry: self._store.keys(entry) for entry in mine}
        else:
            for entry, key in sorted(leaving):
                existing.setdefault(entry, []).append(key)
        return unneeded(existing, lambda piece: self._uses[piece] > leaving[piece], under_way)

    def _manifest(self, epoch: Epoch) -> manifests.Manifest:
        where = manifests.where(self._store, self._region, epoch)
        return manifests.decode(self._store.manifest(self._region, epoch), where)
