"""Run-time side of operators that have something to remember: sources and sinks here, keyed_run.py, hosted_run.py.

Each can be pinned between steps (`pin`, quick), made durable in the background (`part_of`, may be slow) and restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.blobs import BlobRef, get_blob
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OperatorName
from holdfast.language.connectors import Sink, Slice, Source, Stamp
from holdfast.state.values import codec
from holdfast.store.base import SegmentRef, Store


@dataclass
class DurablePart:
    """An operator's share of an epoch: a small blob (stored by the worker, many in one write) and stored segments."""

    blob: bytes | None = None
    segments: list[list[SegmentRef]] = field(default_factory=list)
    form: dict[str, Any] | None = None
    """What kind of checkpoint it is, for people and for the next one."""
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    """More to store with the blob, by kind; the key is the blob's with ~ and the kind."""
    older: Sequence[BlobRef] = ()
    """Pairs of earlier epochs that a restore needs too."""


class Remembering(ABC):
    """Run-time side of one operator with state."""

    name: OperatorName

    @abstractmethod
    def pin(self, epoch: Epoch) -> Any:
        """The state as of now, safe from later steps. Called between steps."""

    @abstractmethod
    def part_of(self, epoch: Epoch, pinned: Any) -> DurablePart:
        """Make segments durable and encode the rest. Called in the background."""

    def stored(self, epoch: Epoch, pairs: Sequence[BlobRef]) -> None:
        """The pairs of `part_of` are durable, in its order. Called in the background."""

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
        self.beginning: Any = None
        """Where it goes on if no epoch knows it: it was outside of regions before."""

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
        self.source.seek(self.beginning if part is None else codec.decode(blob_of(store, part)))


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
        # An epoch made without a run carries on what an earlier one was to show.
        shown = Epoch(epoch if part is None else part.get("epoch", epoch))
        self.sink.restore(shown, None if part is None else codec.decode(blob_of(store, part)))


def blob_of(store: Store | None, part: dict[str, Any]) -> bytes:
    """The bytes of an operator part's blob, verified."""
    assert store is not None
    fp("reset.op.load")
    data = get_blob(store, part["blob"])
    fp("reset.op.loaded")
    return data
