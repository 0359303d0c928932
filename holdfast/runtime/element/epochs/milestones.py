"""When an element came how far with an epoch: for people who ask where its time goes."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.ids import Epoch
from holdfast.protocol import messages


class Milestones:
    """Of one element, whose thread calls `note`; any thread may ask for those of an epoch."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: dict[str, float] = {}
        self._done: tuple[Epoch | None, Mapping[str, float]] = (None, {})

    def note(self, command: messages.ElementCommand) -> None:
        """The element is about to perform a command. Its state is pinned when it is about to upload it."""
        now = self._clock.monotonic()
        match command:
            case messages.Restore():
                self._under_way = {}
            case messages.Upload():
                self._under_way["pinned"] = now
            case messages.Tell(messages.Acked(epoch=epoch)):
                self._done, self._under_way = (epoch, {**self._under_way, "stored": now}), {}
            case messages.RunDrain() | messages.Forward() | messages.KeepOutputs() | messages.Pin():
                self._under_way.setdefault("begun", now)

    def of(self, epoch: Epoch) -> Mapping[str, float]:
        """Monotonic times; empty if it has not acknowledged that epoch last."""
        return self._done[1] if self._done[0] == epoch else {}
