"""The invariants of the protocol, judged apart from the machines and the world they judge.

Each method is called at the moment the thing it judges could first go wrong. The numbers refer to design.md §9.

    complete      (1) a manifest has a part of every element, durable, all of one epoch and attempt
    consistent    (3) on every link: seen and captured by the receiver + kept by the sender = emitted by the sender
    exactly once  (3) a batch begins where its lane stands: nothing lost, nothing doubled, in every step
    visible       (3) sinks show published epochs only, in order, and never take back
    together      (3) the region goes on when every element restored the same attempt
    ordered           epochs and attempts strictly increase over all crashes; one epoch at a time
    recorded      (5) what the controller does, its record already says
    quiet             nothing is sent between drain marker and pin; nothing is read between pin and publication
    at rest           if nothing comes in and no further epoch will come by itself, everything that was read is visible
    pointed           an element with operators that have points of their own is pinned at such a point
    still             mode `token`: nothing is read or taken between an element's pin and its being durable
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.chaos.shapes import Lane, Scene
from holdfast.ids import Attempt, ElementName, Epoch
from holdfast.protocol.messages import BeginEpoch, BeginReset, ControllerRecord, Prepare, Resume

if TYPE_CHECKING:
    from holdfast.chaos.store import Part


class InvariantBroken(AssertionError):
    """A checker refused what happened."""


class Checkers:
    """Judges one run. Keeps its own account, so that a defect in what it judges cannot hide itself."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._newest_begun = 0
        self._newest_attempt = 0
        self._in_flight: Epoch | None = None
        self._aborted: set[Epoch] = set()
        self._restored: dict[ElementName, Attempt] = dict.fromkeys(scene.region.elements, Attempt(0))
        self._sender = {link.id: link.source for link in scene.region.links}

    def _demand(self, holds: bool, what: Callable[[], str]) -> None:
        if not holds:
            raise InvariantBroken(what())

    # --- the controller's acts ------------------------------------------------------------------------------------

    def begins_epoch(self, command: BeginEpoch, record: ControllerRecord | None) -> None:
        epoch = command.epoch
        self._demand(
            self._in_flight is None, lambda: f"epoch {epoch} begins while {self._in_flight} is in flight"
        )
        self._demand(
            epoch > self._newest_begun, lambda: f"epoch {epoch} begins after {self._newest_begun} was begun"
        )
        is_recorded = record is not None and record.next_epoch > epoch and record.attempt == command.attempt
        self._demand(is_recorded, lambda: f"epoch {epoch} begins but the record is {record}")
        self._newest_begun = epoch
        self._in_flight = epoch

    def prepares(self, command: Prepare | Resume) -> None:
        """An epoch whose elements get ready counts as begun."""
        if isinstance(command, Prepare):
            self._demand(
                self._in_flight is None, lambda: f"{command} while epoch {self._in_flight} is in flight"
            )

    def begins_reset(self, command: BeginReset, record: ControllerRecord | None, newest: Epoch) -> None:
        attempt = command.attempt
        self._demand(
            attempt > self._newest_attempt, lambda: f"attempt {attempt} follows {self._newest_attempt}"
        )
        is_recorded = record is not None and record.attempt == attempt
        self._demand(is_recorded, lambda: f"attempt {attempt} begins but the record is {record}")
        self._demand(command.epoch == newest, lambda: f"reset to {command.epoch}, but {newest} is published")
        self._newest_attempt = attempt
        self._in_flight = None

    def aborts_epoch(self, epoch: Epoch, newest: Epoch) -> None:
        self._demand(epoch > newest, lambda: f"epoch {epoch} is aborted, but {newest} is published")
        self._aborted.add(epoch)
        self._in_flight = None

    def settles_epoch(self) -> None:
        """The epoch in flight was published, or its controller is gone."""
        self._in_flight = None

    def records(self, old: ControllerRecord | None, new: ControllerRecord, newest: Epoch) -> None:
        self._demand(new.published <= newest, lambda: f"{new} is written, but {newest} is published")
        if old is not None:
            is_forward = new.attempt >= old.attempt and new.next_epoch >= old.next_epoch
            self._demand(
                is_forward and new.published >= old.published, lambda: f"{new} is written over {old}"
            )

    @property
    def epochs_begun(self) -> int:
        return self._newest_begun

    # --- steps --------------------------------------------------------------------------------------------------------

    def takes(self, element: ElementName, lane: int, stands_at: int, first: int) -> None:
        if stands_at != first:
            kind = "lost" if first > stands_at else "doubled"
            raise InvariantBroken(
                f"{kind}: {element} has rows up to {stands_at} of {self._scene.lanes[element][lane]}, "
                f"the batch begins at {first}"
            )

    def sends(self, element: ElementName, drained_for: Epoch | None) -> None:
        if drained_for is not None:
            raise InvariantBroken(
                f"{element} sends rows after its drain marker {drained_for} and before its pin"
            )

    def reads(self, element: ElementName, paused_for: Epoch | None, newest: Epoch) -> None:
        if paused_for is not None and paused_for > newest:
            raise InvariantBroken(f"{element} reads its source, but epoch {paused_for} is not published")

    def moves(self, element: ElementName, storing_for: Epoch | None) -> None:
        if storing_for is not None:
            raise InvariantBroken(f"{element} goes on, but its part of epoch {storing_for} is not stored")

    def pins(self, element: ElementName, is_ready: bool) -> None:
        if not is_ready:
            raise InvariantBroken(f"{element} is pinned, but its operators may not be checkpointed there")

    # --- epochs -------------------------------------------------------------------------------------------------------

    def published(
        self,
        epoch: Epoch,
        attempt: Attempt,
        parts: dict[ElementName, Part],
        newest: Epoch,
        uploaded: set[tuple[ElementName, Epoch, Attempt]],
    ) -> None:
        self._demand(epoch > newest, lambda: f"epoch {epoch} is published after {newest}")
        self._demand(epoch not in self._aborted, lambda: f"epoch {epoch} is published after it was aborted")
        for element in self._scene.region.elements:
            part = parts.get(element)
            if part is None:
                raise InvariantBroken(f"epoch {epoch} is published without a part of {element}")
            if (part.element, part.epoch, part.attempt) != (element, epoch, attempt):
                raise InvariantBroken(f"epoch {epoch} attempt {attempt} is published with {part}")
            if (element, epoch, attempt) not in uploaded:
                raise InvariantBroken(f"{element}'s part of {epoch} is not durable")
        for element, lanes in self._scene.lanes.items():
            for number, lane in enumerate(lanes):
                self._is_consistent(element, number, lane, parts)

    def _is_consistent(
        self, element: ElementName, number: int, lane: Lane, parts: dict[ElementName, Part]
    ) -> None:
        """What an element saw of a lane is what its source read, or what the sender sent and does not keep."""
        part = parts[element]
        seen = part.consumed[number]
        if lane.link is None:
            self._demand(
                seen == part.position,
                lambda: f"epoch {part.epoch}: {element} is at {part.position}, saw {seen}",
            )
            return
        sender = self._sender[lane.link]
        kept = sum(end - first for n, first, end in parts[sender].kept if n == lane.upstream)
        sent = parts[sender].emitted[lane.upstream]
        captured = sum(
            end - first for link, (n, first, end) in part.captured if (link, n) == (lane.link, lane.upstream)
        )
        self._demand(
            seen + captured + kept == sent,
            lambda: (
                f"epoch {part.epoch}, link {lane.link}: {element} saw {seen} and captured {captured}, "
                f"{sender} sent {sent} and kept {kept}"
            ),
        )

    def restores(self, element: ElementName, epoch: Epoch, attempt: Attempt, newest: Epoch) -> None:
        self._demand(epoch == newest, lambda: f"{element} restores {epoch}, but {newest} is published")
        self._restored[element] = attempt

    def goes_on(self, attempt: Attempt) -> None:
        late = [name for name, restored in self._restored.items() if restored != attempt]
        self._demand(not late, lambda: f"attempt {attempt} goes on, but {late} did not restore")

    # --- what the outside sees ------------------------------------------------------------------------------------------

    def shown(
        self, sink: ElementName, epoch: Epoch, newest: Epoch, part: Part | None, shown: list[int]
    ) -> None:
        self._demand(
            epoch <= newest and part is not None, lambda: f"{sink} shows {epoch}, but {newest} is published"
        )
        assert part is not None
        self._demand(
            tuple(shown) == part.staged_from,
            lambda: f"{sink} shows {shown}, its part of {epoch} begins at {part.staged_from}",
        )
        is_growing = all(old <= new for old, new in zip(shown, part.consumed, strict=True))
        self._demand(is_growing, lambda: f"{sink} takes back: {shown} -> {part.consumed}")

    def rests(self, sinks: dict[ElementName, list[int]], positions: dict[ElementName, int]) -> None:
        """Nothing will happen before more comes in. `positions`: how far sources were read."""
        for sink, shown in sinks.items():
            read = [positions[lane.source] for lane in self._scene.lanes[sink]]
            if shown != read:
                raise InvariantBroken(f"at rest {sink} shows {shown}, and {read} were read")

    def stops_early(self, was_told_to: bool) -> None:
        self._demand(
            was_told_to, lambda: "the region stopped before the end of its input, and nobody told it to"
        )

    def ended(self, sinks: dict[ElementName, list[int]]) -> None:
        """The golden result: each row of each source once per lane, in every sink."""
        for sink, shown in sinks.items():
            golden = [self._scene.rows[lane.source] for lane in self._scene.lanes[sink]]
            if shown != golden:
                raise InvariantBroken(f"{sink} shows {shown} at the end, should show {golden}")
