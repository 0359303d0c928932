"""A region's epochs in the store: finding the newest, reading a part of it, publishing, making output visible."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint import savepoints
from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.change.founding import refuse_unfinished
from holdfast.checkpoint.look.epochs import newest_manifest, regions
from holdfast.checkpoint.manifest import Manifest, references
from holdfast.checkpoint.parts import ElementPart, Kept, KeptBatch
from holdfast.checkpoint.read_ahead import SeenPairs
from holdfast.checkpoint.retention import Collector, Retention
from holdfast.checkpoint.savepoints import Savepoints
from holdfast.checkpoint.stored_names import record_name
from holdfast.compiler.plan import Plan, RegionPlan
from holdfast.durable import remove_quietly
from holdfast.errors import DamagedError, MismatchError, NoSpaceError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import (
    INITIAL_EPOCH,
    Attempt,
    ConnectionId,
    ElementName,
    Epoch,
    OperatorName,
    OwnerToken,
    RegionName,
)
from holdfast.language.graph import SinkSpec
from holdfast.protocol.messages import ControllerRecord
from holdfast.runtime.element.epochs.storing import OnTheWay, Pinned
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.links.batch import Batch, batch_of
from holdfast.runtime.persisted.kept_positions import KeptPositions
from holdfast.runtime.region.topology_fit import RegionNow
from holdfast.runtime.source_positions import RegionThen
from holdfast.runtime.telling.events import TopologyChanged
from holdfast.state.values import codec
from holdfast.store.base import Identity, Store

PROBE_BYTES = 256 << 10


class RegionEpochs:
    """Reads and writes one region's epochs. `current` is the newest published manifest known here.

    Called by the region's thread, except `upload` and `restore`, which element threads call.
    """

    def __init__(
        self, plan: Plan, region: RegionPlan, store: Store, identity: Identity, token: OwnerToken, live: Path
    ) -> None:
        self.store = store
        self.current: Manifest | None = None
        self.region = region.name
        self._identity = identity
        self._token = token
        self.live = live
        settings = region.settings
        self._keep = settings.keep
        self._collector = Collector(store, region.name, Retention(settings.keep, settings.keep_for_s))
        self._positions = KeptPositions(plan, region, store, self.read)
        self.savepoints = Savepoints(store, region.name)
        self.seen = SeenPairs(store)
        """What was read to verify the epoch to begin with, for restoring it."""
        self._withdrawn: Epoch | None = None
        self._fetched = itertools.count()
        members = set(region.members)
        self._now = RegionNow(plan, region)
        self._sinks = {
            op.name: op.spec.sink
            for op in plan.graph.operators.values()
            if op.name in members and isinstance(op.spec, SinkSpec)
        }

    # --- finding ------------------------------------------------------------------------------------------------

    def find(self) -> tuple[Epoch, ControllerRecord | None]:
        """The newest epoch, verified and fitting this topology, and the controller's record.

        Older epochs are looked at too: retention reads their manifests later, and a refusal is better now.
        """
        fp("reset.choose_epoch")
        refuse_unfinished(self.store)
        for epoch in self.store.epochs(self.region):
            self.current = self.read(epoch)
        savepoints.read(self.store, self.region)  # so does retention
        self._check_fit()
        raw = self.store.load_record(record_name("controller", self.region))
        newest = INITIAL_EPOCH if self.current is None else self.current.epoch
        return newest, None if raw is None else ControllerRecord(**json.loads(raw))

    def go_back(self, epoch: Epoch) -> None:
        """Begin with an epoch before the newest one, which goes before anything else changes."""
        self._withdrawn = None if self.current is None else self.current.epoch
        self.seen.forget()
        self.current = self.read(epoch) if epoch else None
        self._check_fit()

    def stay(self) -> None:
        """Undo `go_back`: nothing was performed yet."""
        self._withdrawn = None

    def withdraw(self) -> None:
        """Perform what `go_back` decided."""
        if self._withdrawn is not None:
            self.store.delete_epoch(self.region, self._withdrawn)
            self._withdrawn = None

    def save(self, record: ControllerRecord) -> None:
        self.store.save_record(record_name("controller", self.region), json.dumps(asdict(record)).encode())

    def read(self, epoch: Epoch) -> Manifest:
        """The manifest of an epoch, verified."""
        return manifests.read(self.store, self.region, epoch, self._identity.job_id)

    def _check_fit(self) -> None:
        if self.current is not None:
            self._now.check(self.current)

    def change(self) -> TopologyChanged | None:
        """What the topology has that the epoch to begin with has not, and the other way round. A region that the store
        knows nothing of, though it has epochs of others, is new."""
        if self.current is not None:
            return self._now.change_since(self.current)
        known = self.store.load_record(record_name("controller", self.region)) is not None
        if known or not regions(self.store):
            return None
        return TopologyChanged(self.region, INITIAL_EPOCH, tuple(sorted(self._now.fingerprint)))

    @property
    def is_outdated(self) -> bool:
        """The newest epoch is not one of this program as it is, or sources have to hear of one more like it. The first one comes in any case."""
        if self.current is None:
            return False
        is_another = self.current.origin is not None or self.change() is not None
        return is_another or self.current.numbers != self._now.numbers or self._positions.are_owed(self._keep)

    # --- what elements ask ----------------------------------------------------------------------------------------

    def upload(self, pinned: Pinned, worker: Worker) -> ElementPart:
        return worker.upload(pinned, self.store, self.region)

    def restore(self, worker: Worker, epoch: Epoch, attempt: Attempt) -> OnTheWay:
        """Load an element's state of `epoch`; returns the batches that were on their way at it."""
        if epoch == INITIAL_EPOCH:
            worker.adopt(self.store)
            return OnTheWay()
        assert self.current is not None
        assert self.current.epoch == epoch
        self._collector.sweep_next()  # an epoch that was abandoned left something behind
        new = [name for name in worker.runs if self.current.may_begin(name)]
        worker.restore(epoch, {**dict.fromkeys(new), **self.current.operators()}, self.store, self.seen)
        part = self.current.parts.get(worker.element.name)
        if part is None:
            return OnTheWay()
        return OnTheWay(self._fetch_kept(part.kept, attempt), self._fetch_kept(part.captured, attempt))

    def _fetch_kept(self, kept: Kept, attempt: Attempt) -> dict[ConnectionId, tuple[Batch, ...]]:
        return {
            connection: tuple(self._fetch_batch(batch, attempt) for batch in batches)
            for connection, batches in kept.items()
        }

    def _fetch_batch(self, batch: KeptBatch, attempt: Attempt) -> Batch:
        directory = self.live / "kept"
        directory.mkdir(parents=True, exist_ok=True)
        files = []
        for ref in batch.files:
            # A name for each: several connections may have kept one batch, and each removes its own files.
            files.append(directory / f"a{attempt}-{threading.get_ident()}-{next(self._fetched)}-{ref.key}")
            self.store.fetch_segment(ref, files[-1])
        return batch_of(files, batch.rows).behind(batch.skip)

    # --- publishing -----------------------------------------------------------------------------------------------

    def publish(
        self, epoch: Epoch, attempt: Attempt, parts: Mapping[ElementName, ElementPart], wall: float
    ) -> int:
        """Write the manifest, atomically and durably; returns the bytes the epoch added to the store."""
        previous = INITIAL_EPOCH if self.current is None else self.current.epoch
        manifest = Manifest(
            job=self._identity.job_id,
            topology=self._identity.topology,
            region=self.region,
            epoch=epoch,
            attempt=attempt,
            token=self._token,
            wall=wall,
            fingerprint=self._now.fingerprint,
            parts=dict(parts),
            previous=previous,
            numbers=self._now.numbers,
        )
        data = manifests.encode(manifest)
        try:
            self.store.publish(self.region, epoch, data)
            fp("ckpt.epoch.published")
        except Exception as error:
            # Whether the epoch counts is looked up, never assumed: a reset to the one before withdraws its output.
            is_certain = isinstance(error, StoreError) and not isinstance(error, NoSpaceError)
            if is_certain or not self._is_published(epoch, data):
                raise
        added = len(data) + stored_bytes(manifest, self.current)
        self.current = manifest
        self.seen.forget()
        return added

    @property
    def whole_bytes(self) -> int:
        """All that restoring the newest epoch reads, besides its manifest."""
        return 0 if self.current is None else sum(piece.ref.size for piece in self.current.pieces())

    def _is_published(self, epoch: Epoch, data: bytes) -> bool:
        return epoch in self.store.epochs(self.region) and self.store.manifest(self.region, epoch) == data

    def has_space(self) -> bool:
        """Probe: do the store, the sinks and the live directory accept writes again?"""
        return (
            self.store.accepts_writes()
            and all(sink.accepts_writes() for sink in self._sinks.values())
            and _accepts_writes(self.live)
        )

    def make_visible(self, epoch: Epoch) -> None:
        """Commit every sink, then delete what no retained epoch needs."""
        assert self.current is not None
        assert self.current.epoch == epoch
        operators = self.current.operators()
        for name, sink in self._sinks.items():
            sink.commit(epoch, codec.decode(get_blob(self.store, operators[name].blob)))
        self.store.check_owner()
        self.let_old_go(self.current.wall)

    def let_old_go(self, now: float) -> None:
        """Delete epochs whose time is over; no epoch may be under way. Then sources hear of what is left."""
        assert self.current is not None
        self._collector.collect(now)
        self._positions.tell_sources(self.current.epoch)

    def until_next_goes(self, now: float) -> float | None:
        """Seconds until the time of an epoch is over that stays for that alone; None: there is none."""
        return self._collector.until_next_goes(now)

    @property
    def owes_positions(self) -> bool:
        """Another epoch would let sources let go of more."""
        return self._positions.are_owed(self._keep)


def _accepts_writes(live: Path) -> bool:
    probe = live / f"probe-{threading.get_ident()}"
    try:
        live.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(PROBE_BYTES))
    except OSError:
        return False
    finally:
        remove_quietly(probe)
    return True


def stored_bytes(manifest: Manifest, before: Manifest | None) -> int:
    """Bytes this epoch added to the store: of all pieces that the epoch before did not have."""
    known = set() if before is None else references(before)
    return sum(piece.ref.size for piece in manifest.pieces() if piece.names[0] not in known)


def sources_of_regions(store: Store) -> dict[RegionName, RegionThen]:
    """The regions of a store, and the sources whose positions their newest epochs hold. A damaged epoch tells nothing:
    it is dealt with when its region looks for the newest one."""
    found: dict[RegionName, RegionThen] = {}
    for region in regions(store):
        try:
            manifest = newest_manifest(store, region)
        except (DamagedError, MismatchError):
            continue
        sources = (OperatorName(name) for name, of in manifest.fingerprint.items() if of.kind == "source")
        found[region] = RegionThen(manifest.epoch, frozenset(sources))
    return found


def regions_gone(store: Store, plan: Plan) -> Iterator[TopologyChanged]:
    """Regions with epochs in the store that the topology does not have. Of a damaged epoch nothing is told."""
    for region in set(regions(store)) - {there.name for there in plan.regions}:
        try:
            manifest = newest_manifest(store, region)
        except (DamagedError, MismatchError):
            continue
        yield TopologyChanged(region, manifest.epoch, gone=tuple(sorted(manifest.fingerprint)))
