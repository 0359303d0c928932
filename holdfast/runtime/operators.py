"""Run-time side of operators that have something to remember: sources, sinks, keyed and hosted operators.

Each can be pinned between steps (`pin`, quick), made durable in the background (`part_of`, may be slow) and restored.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.blobs import get_blob
from holdfast.errors import StateError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OperatorName
from holdfast.language.connectors import Sink, Slice, Source, Stamp
from holdfast.language.graph import HostedSpec
from holdfast.runtime.engine import Engine, KeyedState, KeyedTask
from holdfast.runtime.rows import Outbox, rows_of, stamp
from holdfast.state import codec, hosted
from holdfast.state.declarations import declared
from holdfast.state.segment import Segment
from holdfast.state.sizes import state_size
from holdfast.store.base import SegmentRef, Store


@dataclass
class DurablePart:
    """An operator's share of an epoch: a small blob (stored by the worker, many in one write) and stored segments."""

    blob: bytes | None = None
    segments: list[list[SegmentRef]] = field(default_factory=list)


class Remembering(ABC):
    """Run-time side of one operator with state."""

    name: OperatorName

    @abstractmethod
    def pin(self, epoch: Epoch) -> Any:
        """The state as of now, safe from later steps. Called between steps."""

    @abstractmethod
    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        """Make segments durable and encode the rest. Called in the background."""

    @abstractmethod
    def restore(self, epoch: Epoch, part: dict[str, Any] | None, store: Store | None) -> None:
        """Go to the state of `part`; None: the initial state."""


class SourceRun(Remembering):
    """A source and where it is."""

    def __init__(self, name: OperatorName, source: Source, stamp: Stamp | None) -> None:
        self.name = name
        self.source = source
        self.stamp = stamp
        self.dry = False
        """True if the last `next_slice` found nothing."""

    def next_slice(self) -> Slice | None:
        piece = self.source.next_slice()
        self.dry = piece is None
        return piece

    def pin(self, epoch: Epoch) -> Any:
        return self.source.snapshot()

    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        return DurablePart(codec.encode(pinned, path=f"position of source {self.name!r}"))

    def restore(self, epoch: Epoch, part: dict[str, Any] | None, store: Store | None) -> None:
        fp("reset.source.seek")
        self.dry = False
        self.source.seek(None if part is None else codec.decode(_blob(store, part)))


class SinkRun(Remembering):
    """A sink inside a region."""

    def __init__(self, name: OperatorName, sink: Sink) -> None:
        self.name = name
        self.sink = sink

    def pin(self, epoch: Epoch) -> Any:
        return self.sink.seal(epoch)

    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        return DurablePart(
            codec.encode(self.sink.prepare(epoch, pinned), path=f"output of sink {self.name!r}")
        )

    def restore(self, epoch: Epoch, part: dict[str, Any] | None, store: Store | None) -> None:
        self.sink.restore(epoch, None if part is None else codec.decode(_blob(store, part)))


class KeyedRun(Remembering):
    """A keyed operator: its current version is a set of immutable segments."""

    def __init__(self, name: OperatorName, task: KeyedTask, engine: Engine, entry: str) -> None:
        self.name = name
        self.task = task
        self._engine = engine
        self._entry = entry
        self._store: Store | None = None
        self._stored: dict[str, SegmentRef] = {}
        """Live segments whose bytes the store already has: later epochs refer to them again."""
        self._held: list[KeyedState] = []
        """Pinned versions whose upload is not finished."""
        self._live: dict[str, Segment] = {}
        self._lock = threading.Lock()
        self.state = KeyedState(tuple(() for _ in range(engine.partitions)))

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.state.counts)

    def advance(self, state: KeyedState) -> None:
        """A step succeeded: `state` is the current version; segments nobody needs any more are removed."""
        with self._lock:
            self.state = state
            self._live.update((s.name, s) for partition in state.partitions for s in partition)
            needed = {s.name for version in (state, *self._held) for p in version.partitions for s in p}
            gone = [self._live.pop(name) for name in list(self._live) if name not in needed]
        for segment in gone:
            self._engine.remove_live(segment)

    def pin(self, epoch: Epoch) -> Any:
        with self._lock:
            self._held.append(self.state)
        return self.state

    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        assert self._store is not None
        try:
            self._put_new(pinned)
        finally:
            with self._lock:
                self._held = [version for version in self._held if version is not pinned]
        segments = [[self._stored[segment.name] for segment in partition] for partition in pinned.partitions]
        live = {segment.name for partition in pinned.partitions for segment in partition}
        self._stored = {name: ref for name, ref in self._stored.items() if name in live}
        if pinned.meta is None and not pinned.counts:
            return DurablePart(None, segments)
        return DurablePart(codec.encode({"meta": pinned.meta, "counts": dict(pinned.counts)}), segments)

    def restore(self, epoch: Epoch, part: dict[str, Any] | None, store: Store | None) -> None:
        self._store = store
        with self._lock:
            self._held.clear()
        self._stored.clear()
        segments = [] if part is None else [[SegmentRef(*ref) for ref in p] for p in part["segments"]]
        stored = {} if part is None or part["blob"] is None else codec.decode(_blob(store, part))
        loaded = self._engine.load_keyed(self.task, segments, store)
        meta = self.task.logic.resumed(stored.get("meta"))
        self.advance(KeyedState(loaded, meta, stored.get("counts", {})))
        for refs, partition in zip(segments, self.state.partitions, strict=False):
            self._stored.update(
                {s.name: ref for s, ref in zip(partition, refs, strict=False) if s.name == ref.key}
            )

    def _put_new(self, pinned: KeyedState) -> None:
        """Store the segments the store does not have yet."""
        assert self._store is not None
        new = [
            (number, segment)
            for number, partition in enumerate(pinned.partitions)
            for segment in partition
            if segment.name not in self._stored
        ]
        for (_, segment), ref in zip(
            new, self._engine.put_segments(self._entry, new, self._store), strict=True
        ):
            self._stored[segment.name] = ref


class HostedRun(Remembering):
    """A Python operator in the driver."""

    def __init__(
        self, name: OperatorName, spec: HostedSpec, source_index: int, stamped: tuple[bool, ...]
    ) -> None:
        self.name = name
        self._spec = spec
        self._source_index = source_index
        self._stamped = stamped
        self._outbox = Outbox(name, spec.schemas)
        self._checked = False
        self.instance: Any = None
        self._emitted = [0] * len(spec.schemas)
        self._pristine: Any = None

    def process(self, table: pa.Table, port: int) -> None:
        if hasattr(self.instance, "process_batch"):
            self._outbox.submit_all(self.instance.process_batch(table, port))
        else:
            process = self.instance.process
            for row in rows_of(table):
                self._outbox.submit_all(process(row, port))

    def drain(self) -> None:
        if hasattr(self.instance, "drain"):
            self._outbox.submit_all(self.instance.drain())

    def take_outputs(self) -> list[pa.Table]:
        """What was submitted, stamped where somebody orders by it."""
        tables = self._outbox.take()
        for port, table in enumerate(tables):
            if self._stamped[port]:
                tables[port] = stamp(table, self._source_index, self._emitted[port])
            self._emitted[port] += table.num_rows
        return tables

    def check_state(self) -> None:
        """After the first step: the state survives encoding, or the user hears which attribute does not."""
        if not self._checked:
            try:
                hosted.check_state(self.instance)
            except StateError as error:
                raise StateError(f"operator {self.name!r}: {error.message}", cure=error.cure) from error
            self._checked = True

    @property
    def counts(self) -> dict[str, int]:
        """The size of the state, if the operator declares it."""
        if self.instance is None or not declared(type(self.instance)):
            return {}
        return {"state_bytes": state_size(self.instance)}

    def pin(self, epoch: Epoch) -> Any:
        # Encoded at once: the operator goes on changing its own objects in the next step.
        return codec.encode({"state": hosted.take_state(self.instance), "emitted": list(self._emitted)})

    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        return DurablePart(pinned)

    def restore(self, epoch: Epoch, part: dict[str, Any] | None, store: Store | None) -> None:
        self._outbox = Outbox(self.name, self._spec.schemas)
        stored = None if part is None else codec.decode(_blob(store, part))
        if self.instance is None:
            self.instance = self._spec.make()
            self._pristine = hosted.initial_state(self.instance)
            self.instance._submit = self._outbox_submit
        hosted.restore(self.instance, None if stored is None else stored["state"], self._pristine)
        self._emitted = list(stored["emitted"]) if stored else [0] * len(self._spec.schemas)

    def close(self) -> None:
        if self.instance is not None and hasattr(self.instance, "close"):
            self.instance.close()

    def _outbox_submit(self, item: Any, port: int = 0) -> None:
        self._outbox.submit(item, port)


def _blob(store: Store | None, part: dict[str, Any]) -> bytes:
    assert store is not None
    fp("reset.op.load")
    data = get_blob(store, part["blob"])
    fp("reset.op.loaded")
    return data
