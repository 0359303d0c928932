"""Which epochs and stored pieces may go. Decided from manifests re-read from the store, by the owner only.

`choose` is pure; `collect` acts. Killed anywhere, `collect` can run again: an epoch's manifest goes before the
pieces only it needed, so what a retained manifest refers to is never touched, and orphans go the next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.checkpoint import manifest as manifests
from holdfast.failpoints import fp
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store

KEEP_EPOCHS = 3


def choose(epochs: Sequence[Epoch], keep: int = KEEP_EPOCHS) -> list[Epoch]:
    """Epochs that may be deleted: all but the newest `keep`."""
    return sorted(epochs)[:-keep] if keep else sorted(epochs)


def unneeded(
    existing: Mapping[str, Iterable[str]], needed: Collection[tuple[str, str]], under_way: Collection[str]
) -> dict[str, list[str]]:
    """Keys per entry that no retained epoch refers to. Keys that begin with a prefix in `under_way` are being
    uploaded for an epoch not published yet and stay."""
    result: dict[str, list[str]] = {}
    for entry, keys in existing.items():
        gone = [
            key
            for key in keys
            if (entry, key) not in needed and not any(key.startswith(prefix) for prefix in under_way)
        ]
        if gone:
            result[entry] = gone
    return result


def collect(
    store: Store, region: RegionName, *, under_way: Collection[str] = (), keep: int = KEEP_EPOCHS
) -> int:
    """Delete old epochs of a region and the pieces only they needed. Returns the number of pieces deleted."""
    fp("gc.list")
    published = store.epochs(region)
    doomed = choose(published, keep)
    if not doomed:
        return 0
    retained = [e for e in published if e not in set(doomed)]
    needed: set[tuple[str, str]] = set()
    for epoch in retained:
        data = store.manifest(region, epoch)
        needed |= manifests.references(manifests.decode(data, f"epoch {epoch} of region {region}"))
    fp("gc.select")
    existing = {entry: store.keys(entry) for entry in store.entries() if belongs(entry, region)}
    for epoch in doomed:
        store.delete_epoch(region, epoch)
    gone = unneeded(existing, needed, under_way)
    for entry, keys in gone.items():
        fp("gc.delete")
        store.delete(entry, keys)
    return sum(len(keys) for keys in gone.values())


def entry_of(region: RegionName, operator: str) -> str:
    """The store entry of an operator's state in a region."""
    return f"{operator}@{region}"


def belongs(entry: str, region: RegionName) -> bool:
    """True if the entry holds state of the region."""
    return entry.endswith(f"@{region}")
