"""How the protocol grows with the region: messages and simulated time for an epoch, and for the recovery from a burst.

The machines are the real ones; time is counted, not spent. A message or marker takes 1 unit from one end to the other, making a
part durable 1 to 9, publishing and committing 5. A region is a grid, ten elements wide: each feeds one or two of the next row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from holdfast.ids import ConnectionId, ElementName, RegionName
from holdfast.protocol import commands, messages
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.shape import Link, Mode, RegionShape

WIDTH = 10
HOP, UPLOAD_MAX, STORE = 1.0, 9, 5.0
BURST = 0.1
"""The share of elements that fail at the same moment."""


@dataclass(frozen=True)
class Grown:
    """Figures of one region. Messages are control messages and markers."""

    mode: Mode
    elements: int
    links: int
    epoch_messages: int
    epoch_time: float
    recovery_messages: int
    recovery_time: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def grid(elements: int, rng: Random) -> RegionShape:
    """Ten elements wide, as deep as it takes."""
    names = tuple(ElementName(f"e{number}") for number in range(elements))
    links = []
    for number in range(WIDTH, elements):
        above = range(number - number % WIDTH - WIDTH, number - number % WIDTH)
        straight = number - WIDTH
        for source in {straight, rng.choice(above)}:
            links.append(Link(ConnectionId(f"{source}-{number}"), names[source], names[number]))
    return RegionShape(RegionName("grid"), names, tuple(links))


class ScaledRegion:
    """One region in simulated time."""

    def __init__(self, elements: int, mode: Mode, seed: int = 0) -> None:
        self._rng = Random(seed)
        self.shape = grid(elements, self._rng)
        self.machines = {name: ElementMachine(self.shape, name) for name in self.shape.elements}
        self.controller = RegionController(self.shape, mode, 5)
        self._targets = {link.id: link.target for link in self.shape.links}
        self._outputs = {name: self.shape.outputs(name) for name in self.shape.elements}
        self._arriving: list[tuple[float, int, ElementName | None, Any]] = []
        self._number = 0
        self.now = 0.0
        self.messages = 0

    def run_until(self, phase: ControllerPhase) -> None:
        """Let everything happen that is under way; the controller must end up in `phase`."""
        while self._arriving:
            self.now, _, element, event = heapq.heappop(self._arriving)
            if element is None:
                self._control(event)
            else:
                self._perform(element, self.machines[element].handle(event))
        assert self.controller.phase is phase, self.controller.phase

    def tell(self, event: messages.ControllerEvent) -> None:
        self._send(0.0, None, event)

    def burst(self) -> None:
        """A tenth of the elements fails at once, tell so, and are there again with machines that know nothing but the attempt."""
        count = max(1, int(len(self.shape.elements) * BURST))
        for name in self._rng.sample(self.shape.elements, count):
            attempt = self.machines[name].attempt
            self.machines[name] = ElementMachine(self.shape, name, attempt)
            self._count(1)
            self._send(HOP, None, messages.ElementFailed(name, attempt, "burst"))

    # --- what the machines command ------------------------------------------------------------------------------------

    def _send(self, delay: float, element: ElementName | None, event: Any) -> None:
        self._number += 1
        heapq.heappush(self._arriving, (self.now + delay, self._number, element, event))

    def _count(self, messages: int) -> None:
        self.messages += messages

    def _control(self, event: messages.ControllerEvent) -> None:
        for command in self.controller.handle(event):
            match command:
                case messages.BeginEpoch() | messages.BeginReset() | messages.GoOn() | messages.Resume():
                    self._count(len(command.elements))
                    for name in command.elements:
                        self._send(HOP, name, command)
                case commands.Publish(epoch):
                    self._send(STORE, None, messages.Published(epoch))
                case commands.CommitSinks(epoch):
                    self._send(STORE, None, messages.Committed(epoch))
                case _:
                    pass  # timers never end here, and records cost no message

    def _perform(self, element: ElementName, given: Iterable[messages.ElementCommand]) -> None:
        for command in given:
            match command:
                case messages.Forward(marker):
                    outputs = self._outputs[element]
                    self._count(len(outputs))
                    for link in outputs:
                        self._send(HOP, self._targets[link], messages.MarkerArrived(link, marker))
                case messages.Tell(event):
                    self._count(1)
                    self._send(HOP, None, event)
                case messages.Upload(epoch, attempt):
                    durable = messages.UploadFinished(epoch, attempt)
                    self._send(self._rng.randint(1, UPLOAD_MAX), element, durable)
                case _:
                    pass


def grown(elements: int, mode: Mode) -> Grown:
    """Start a region, establish an epoch, let a burst happen, recover."""
    region = ScaledRegion(elements, mode, seed=0)
    region.tell(messages.Start(region.controller.record.published, None))
    region.run_until(ControllerPhase.RUNNING)
    before, since = region.messages, region.now
    region.tell(messages.EpochDue())
    region.run_until(ControllerPhase.RUNNING)
    epoch_messages, epoch_time = region.messages - before, region.now - since
    before, since = region.messages, region.now
    region.burst()
    region.run_until(ControllerPhase.RUNNING)
    recovery = (region.messages - before, region.now - since)
    return Grown(mode, elements, len(region.shape.links), epoch_messages, epoch_time, *recovery)
