"""Base and delta checkpoints of an operator's variables in the store: three pairs per epoch. See docs/formats/incremental.md.

    e<epoch>-a<attempt>-<operator>~non      all that is always stored whole, with the names of the variables
    e<epoch>-a<attempt>-<operator>~incr     the new versions of the variables, one behind the other
    e<epoch>-a<attempt>-<operator>~index    per variable the form of its version, where it lies, and where the one before is

Every variable has a chain of its own: a base and the deltas since. What must hold:
- A version refers only to versions whose pairs are listed in the same operator part of the manifest. So retention keeps
  them as long as somebody needs them, and every byte of a restore is covered by the manifest's checksum.
- An epoch in which nothing of a variable changed is no link of its chain: the next version refers to the last real one.
- Nothing read is handed out before the checksums of all that was read fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint import index
from holdfast.checkpoint.adaptive import Form
from holdfast.checkpoint.blobs import BlobReader, BlobRef, PairReader, get_blob, unusable
from holdfast.checkpoint.index import Entry, Place
from holdfast.checkpoint.stored_names import INCR, INDEX, NON, kind_of
from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.state.values import codec
from holdfast.state.variables.versions import merged
from holdfast.state.variables.working_values import UNSET

Taken = tuple[Form, bytes]
"""A variable's new version: its form and bytes. A delta without bytes: unchanged."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The versions of variables that the store has, by name, the base first; and the pairs they lie in."""

    versions: Mapping[str, tuple[Place, ...]]
    pairs: tuple[BlobRef, ...] = ()

    def pairs_for(self, versions: Mapping[str, tuple[Place, ...]]) -> tuple[BlobRef, ...]:
        """Those of its pairs that `versions` need."""
        epochs = {place.epoch for places in versions.values() for place in places}
        return tuple(ref for ref in self.pairs if kind_of(ref)[0] in epochs and kind_of(ref)[1] != NON)


@dataclass(frozen=True, slots=True)
class Link:
    """What a checkpoint adds: bytes to store by kind of pair, what the variables' versions are then, older pairs they need."""

    epoch: Epoch
    data: Mapping[str, bytes]
    versions: Mapping[str, tuple[Place, ...]]
    older: tuple[BlobRef, ...]

    def stored(self, pairs: Iterable[BlobRef]) -> Chain:
        """The chain with this link in it, once its bytes are durable in `pairs`."""
        whole = Chain(self.versions, (*self.older, *pairs))
        return Chain(self.versions, whole.pairs_for(self.versions))


def add(
    chain: Chain, epoch: Epoch, taken: Mapping[str, Taken], described: Mapping[str, str], rest: Any
) -> Link:
    """The next link of a chain. `taken`: new versions by variable; `described`: what the variables are; `rest`: data
    that is stored whole.

    A delta must be relative to the newest version the chain has of its variable.
    """
    versions: dict[str, tuple[Place, ...]] = {}
    entries: list[Entry] = []
    offset = 0
    for row, (name, (form, data)) in enumerate(taken.items()):
        before = () if form == "base" else chain.versions[name]
        is_new = form == "base" or bool(data)
        versions[name] = (*before, Place(epoch, row)) if is_new else before
        entries.append(Entry(offset, len(data), before[-1] if before else None))
        offset += len(data)
    stored = {
        NON: codec.encode({"variables": {name: described[name] for name in taken}, "rest": rest}),
        INCR: b"".join(data for _, data in taken.values()),
        INDEX: index.encode(entries, epoch),
    }
    # A store need not keep empty values.
    return Link(
        epoch, {kind: each for kind, each in stored.items() if each}, versions, chain.pairs_for(versions)
    )


@dataclass(frozen=True, slots=True)
class Restored:
    """What a checkpoint holds."""

    rest: Any
    payloads: Mapping[str, Any]
    """Of the variables; one that is as declared is not there."""
    described: Mapping[str, str]
    chain: Chain


def restore(store: PairReader, pairs: Iterable[BlobRef]) -> Restored:
    return _Reading(store, tuple(pairs)).restored()


def rest_of(store: PairReader, pairs: Iterable[BlobRef]) -> Any:
    """What is not stored in versions, alone."""
    return _Reading(store, tuple(pairs)).non()[1]["rest"]


class _Reading:
    """One restore: indexes are read once, and each pair of versions piece by piece."""

    def __init__(self, store: PairReader, pairs: tuple[BlobRef, ...]) -> None:
        self._store = store
        self._pairs = pairs
        self._refs = {kind_of(ref): ref for ref in pairs}
        self._indexes: dict[Epoch, list[Entry]] = {}
        self._readers: dict[Epoch, BlobReader] = {}

    def non(self) -> tuple[Epoch, Any]:
        """The newest epoch of the chain, and its pair of what is not in versions."""
        epoch = max((epoch for epoch, kind in self._refs if kind == NON), default=INITIAL_EPOCH)
        return epoch, codec.decode(get_blob(self._store, self._ref(epoch, NON)))

    def restored(self) -> Restored:
        epoch, non = self.non()
        described: dict[str, str] = non["variables"]
        payloads: dict[str, Any] = {}
        versions: dict[str, tuple[Place, ...]] = {}
        for row, (name, description) in enumerate(described.items()):
            versions[name] = places = self._places(Place(epoch, row))
            payload = merged(description, (self._version(place) for place in places))
            if payload is not UNSET:
                payloads[name] = payload
        for reader in self._readers.values():
            reader.finish()
        needed = Chain(versions, self._pairs).pairs_for(versions)
        return Restored(non["rest"], payloads, described, Chain(versions, needed))

    def _places(self, newest: Place) -> tuple[Place, ...]:
        """The versions of a variable, the base first, without those in which it did not change."""
        found: list[Place] = []
        place: Place | None = newest
        while place is not None:
            entry = self._entry(place)
            if entry.previous is None or entry.size:
                found.append(place)
            place = entry.previous
        return tuple(reversed(found))

    def _version(self, place: Place) -> bytes:
        entry = self._entry(place)
        if place.epoch not in self._readers:
            self._readers[place.epoch] = BlobReader(self._store, self._ref(place.epoch, INCR))
        return self._readers[place.epoch].read(entry.offset, entry.size)

    def _entry(self, place: Place) -> Entry:
        epoch = place.epoch
        if epoch not in self._indexes:
            ref = self._ref(epoch, INDEX)
            where = self._store.describe(ref.entry, ref.key)
            self._indexes[epoch] = index.decode(get_blob(self._store, ref), epoch, where)
        rows = self._indexes[epoch]
        if place.row >= len(rows):
            raise unusable(
                f"the index of epoch {epoch} has no row {place.row}, but a later one refers to it."
            )
        return rows[place.row]

    def _ref(self, epoch: Epoch, kind: str) -> BlobRef:
        ref = self._refs.get((epoch, kind))
        if ref is None:
            raise unusable(
                f"the manifest lists no {kind!r} pair of epoch {epoch}, but a later one refers to it."
            )
        return ref
