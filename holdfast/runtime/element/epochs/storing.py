"""An element's state at an epoch, pinned between two steps, and on its way into the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.checkpoint.parts import ElementPart, Kept, KeptBatch
from holdfast.checkpoint.stored_names import batch_key, entry_of, state_key
from holdfast.durable import checksum_file
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, OperatorName, RegionName
from holdfast.runtime.element.borders import BorderNumbers
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, SinkRun, store_values
from holdfast.store.base import SegmentRef, Store

Batches = Mapping[ConnectionId, tuple[Batch, ...]]


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """What a restored element sends again first, and what it is given back before all else."""

    kept: Batches = field(default_factory=dict)
    captured: Batches = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pinned:
    """An element's state at an epoch, safe from later steps."""

    epoch: Epoch
    attempt: Attempt
    operators: Mapping[OperatorName, Any]
    kept: Batches
    captured: Batches
    borders: BorderNumbers

    @property
    def batches(self) -> Iterator[Batch]:
        for batches in (*self.kept.values(), *self.captured.values()):
            yield from batches


class Storing:
    """Makes the pins of one element durable, one at a time."""

    def __init__(self, element: ElementName, runs: Mapping[OperatorName, Remembering]) -> None:
        self._element, self._runs = element, runs
        self._sinks = [run for run in runs.values() if isinstance(run, SinkRun)]
        self._files: dict[str, SegmentRef] = {}
        """Files of batches that the newest epoch holds."""

    def forget(self) -> None:
        """The newest epoch is given up: what was stored for it does not count."""
        self._files = {}

    def part_of(self, pinned: Pinned, store: Store, region: RegionName) -> ElementPart:
        """Make a pin durable. Called in the background."""
        entry = entry_of(region, self._element)
        key = partial(state_key, pinned.epoch, pinned.attempt)
        prepared = self._prepared(pinned)
        operators = store_values(store, entry, key, pinned.epoch, prepared)
        before, self._files = self._files, {}

        def put(file: str) -> SegmentRef:
            # A batch that waits for long is captured by epoch after epoch, and stored once.
            ref = before.get(file) or self._files.get(file)
            self._files[file] = ref or _put_file(file, store, entry, pinned)
            return self._files[file]

        def put_all(found: Batches) -> Kept:
            return {
                connection: tuple(
                    KeptBatch(b.rows + b.skip, tuple(map(put, b.files)), b.skip) for b in batches
                )
                for connection, batches in found.items()
                if batches
            }

        kept, captured = put_all(pinned.kept), put_all(pinned.captured)
        place = (self._element, pinned.epoch, pinned.attempt)
        return ElementPart(*place, operators, kept, captured, pinned.borders)

    def _prepared(self, pinned: Pinned) -> dict[Remembering, Prepared]:
        """Of all operators, in their order. Sinks beside the state: both mostly wait for the disk."""

        def part_of(run: Remembering) -> Prepared:
            return run.part_of(pinned.epoch, pinned.operators[run.name])

        if not self._sinks or len(self._sinks) == len(self._runs):
            return {run: part_of(run) for run in self._runs.values()}
        with ThreadPoolExecutor(len(self._sinks), thread_name_prefix="holdfast-prepare") as pool:
            beside = {run: pool.submit(part_of, run) for run in self._sinks}
            done = {run: part_of(run) for run in self._runs.values() if run not in beside}
            return {run: beside[run].result() if run in beside else done[run] for run in self._runs.values()}


def _put_file(file: str, store: Store, entry: str, pinned: Pinned) -> SegmentRef:
    path = Path(file)
    key = batch_key(pinned.epoch, pinned.attempt, path.name)
    return store.put_segment(entry, key, path, checksum_file(path)[0])
