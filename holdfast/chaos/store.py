"""The simulated outside world: what survives every crash.

Parts of epochs, manifests, the controller's record, and what the sinks show. Writes are atomic here; the simulator
decides when they happen and whether their answer arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.chaos.checkers import Checkers
from holdfast.chaos.shapes import Scene
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol.messages import ControllerRecord

Batch = tuple[int, int, int]
"""(lane of the sender, first row, row after the last)."""
Captured = tuple[tuple[ConnectionId, Batch], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What one element pinned for an epoch. Numbers are per lane; `kept` are batches sent after its own token,
    `captured` those that waited ahead of a token on its input links."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt
    position: int
    consumed: tuple[int, ...]
    emitted: tuple[int, ...]
    kept: tuple[Batch, ...]
    staged_from: tuple[int, ...]
    captured: Captured = ()


Manifest = dict[ElementName, Part]


class SimStore:
    """Durable state of one region. `owner` rises with every run; a publish under an older one is refused."""

    def __init__(self, scene: Scene, checkers: Checkers) -> None:
        self._scene = scene
        self._checkers = checkers
        self.owner = 0
        self.record: ControllerRecord | None = None
        self.uploaded: set[tuple[ElementName, Epoch, Attempt]] = set()
        self.manifests: dict[Epoch, Manifest] = {INITIAL_EPOCH: self._initial()}
        self.newest = INITIAL_EPOCH
        senders = {link.source for link in scene.region.links if not link.control}
        self.sinks = {e: [0] * len(scene.lanes[e]) for e in scene.region.elements if e not in senders}
        self.committed: dict[ElementName, Epoch] = dict.fromkeys(self.sinks, INITIAL_EPOCH)

    def _initial(self) -> Manifest:
        none = Attempt(0)
        return {
            element: Part(element, INITIAL_EPOCH, none, 0, zeros, zeros, (), zeros)
            for element, lanes in self._scene.lanes.items()
            for zeros in [(0,) * len(lanes)]
        }

    def upload(self, part: Part) -> None:
        self.uploaded.add((part.element, part.epoch, part.attempt))

    def publish(self, epoch: Epoch, attempt: Attempt, parts: dict[ElementName, object], owner: int) -> bool:
        """Write a manifest; False if a newer owner fenced the writer off."""
        if owner != self.owner:
            return False
        manifest = {name: part for name, part in parts.items() if isinstance(part, Part)}
        self._checkers.published(epoch, attempt, manifest, self.newest, self.uploaded)
        self.manifests[epoch] = manifest
        self.newest = epoch
        return True

    def commit(self, sink: ElementName, epoch: Epoch) -> None:
        """Make what `sink` staged for `epoch` visible; a second time changes nothing."""
        if self.committed[sink] >= epoch:
            return
        part = self.manifests[epoch][sink] if epoch in self.manifests else None
        shown = self.sinks[sink]
        self._checkers.shown(sink, epoch, self.newest, part, shown)
        if part is not None:
            shown[:] = part.consumed
        self.committed[sink] = epoch
