"""Where a region may go back to: its sources are told, so that those who keep rows for them let go of the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.plan import Plan, RegionPlan
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, OperatorName
from holdfast.language.connectors import Source
from holdfast.language.graph import SourceSpec
from holdfast.state.values import codec
from holdfast.store.base import Store

logger = logging.getLogger("holdfast.region")


class KeptPositions:
    """Of the sources of a region that want to know. Used by the region's thread. An epoch is read once: it never changes."""

    def __init__(
        self, plan: Plan, region: RegionPlan, store: Store, read: Callable[[Epoch], Manifest]
    ) -> None:
        self._region = region
        self._store = store
        self._read = read
        members = [plan.graph.operators[name] for name in region.members]
        self._sources: dict[OperatorName, Source] = {
            op.name: op.spec.source
            for op in members
            if isinstance(op.spec, SourceSpec) and type(op.spec.source).kept is not Source.kept
        }
        self._known: dict[Epoch, dict[OperatorName, Any]] = {}

    def tell_sources(self, epoch: Epoch) -> None:
        """An epoch was published, and old ones were let go. Must not fail: what is told too late is kept too long."""
        if not self._sources:
            return
        try:
            there = self._store.epochs(self._region.name)
            self._known = {each: self._known.get(each) or self._positions(each) for each in there}
            for name, source in self._sources.items():
                source.kept([known[name] for known in self._known.values() if name in known], int(epoch))
        except (HoldfastError, OSError) as error:
            logger.warning("region %s: its sources were not told what is kept: %s", self._region.name, error)

    def are_owed(self, keep: int) -> bool:
        """True if some of the newest `keep` epochs, which stay whatever their age, have a source elsewhere than the newest one: with
        another epoch like it sources may let go of more. False also if that cannot be told."""
        if not self._sources:
            return False
        try:
            there = self._store.epochs(self._region.name)[-max(1, keep) :]
            found = [self._known.get(each) or self._positions(each) for each in there]
        except (HoldfastError, OSError):
            return False
        return any(each != found[-1] for each in found[:-1])

    def _positions(self, epoch: Epoch) -> dict[OperatorName, Any]:
        """Of the sources that the epoch knows."""
        parts = self._read(epoch).operators()
        return {
            name: codec.decode(get_blob(self._store, part.blob))
            for name in self._sources
            if (part := parts.get(name)) is not None and part.blob is not None
        }
