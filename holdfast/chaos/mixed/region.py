"""A region among elements outside of regions, driven by the real `RegionController` and `ElementMachine`.

Smaller than `world.py`, which breaks the region's own protocol in every way: here rows enter by autonomous ports and
leave to elements outside. Rows are taken and sent on at once; each actor performs one command at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from holdfast.chaos.checkers import InvariantBroken
from holdfast.chaos.mixed.actor import Actor, Around
from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.graph import Element, MixedGraph
from holdfast.chaos.mixed.store import MixedPart
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol import commands, messages
from holdfast.protocol.accounts import TakenByRegion
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.shape import Mode

LINK_CAPACITY = 3


class RegionElement:
    """An element of the region: its machine, its volatile state, its links and borders."""

    def __init__(
        self, plan: Element, region: SimRegion, connections: dict[ConnectionId, SimConnection]
    ) -> None:
        self.plan = plan
        self.region = region
        self.machine = ElementMachine(region.shape, plan.name)
        self.ports = [connections[w.id] for w in plan.inputs if not w.is_link]
        self.borders = [connections[w.id] for w in plan.outputs if not w.is_link]
        part = region.store.epoch[plan.name]
        self.state = part.state
        self.position = part.position
        self.kept: list[int] | None = None
        self.pin: MixedPart | None = None
        self.todo: deque[messages.ElementCommand] = deque()

    def feed(self, event: messages.ElementEvent) -> None:
        self.todo.extend(self.machine.handle(event))

    # --- one thing at a time ------------------------------------------------------------------------------------

    def act(self) -> bool:
        if self.todo:
            self._perform(self.todo.popleft())
            return True
        if self.region.random() < 0.5:
            return self._take_from_link() or self._take_from_port() or self._read()
        return self._read() or self._take_from_port() or self._take_from_link()

    def _take_from_link(self) -> bool:
        for wire in self.plan.inputs:
            queue = self.region.links.get(wire.id)
            if not queue:
                continue
            head = queue[0]
            if isinstance(head, messages.Marker):
                if self.machine.delivers(wire.id, head):
                    queue.popleft()
                    self.feed(messages.MarkerArrived(wire.id, head))
                    return True
                continue
            fate = self.machine.fate(wire.id)
            if fate == "wait" or (fate == "process" and not self._has_room()):
                continue
            queue.popleft()
            if fate == "process":
                self._process(head << wire.shift)
            return True
        return False

    def _take_from_port(self) -> bool:
        if not self.machine.may_read_sources or not self._has_room():
            return False
        for connection in self.ports:
            if connection.items:
                self._process(connection.take())
                return True
        return False

    def _read(self) -> bool:
        plan = self.plan
        if not self.machine.may_read_sources or self.position == plan.row_count or not self._has_room():
            return False
        end = min(plan.row_count, self.position + 1 + int(self.region.random() * 2))
        rows = ((1 << (end - self.position)) - 1) << (plan.first_row + self.position)
        self.position = end
        self._process(rows)
        return True

    def _has_room(self) -> bool:
        links = self.region.links
        return not any(c.is_full for c in self.borders) and all(
            len(links[w.id]) < LINK_CAPACITY for w in self.plan.outputs if w.is_link
        )

    def _process(self, rows: int) -> None:
        if self.state & rows:
            raise InvariantBroken(f"{self.plan.name} has {self.state & rows:b} twice")
        self.state |= rows
        if self.kept is not None:
            self.kept.append(rows)
        for wire in self.plan.outputs:
            if wire.is_link:
                self.region.links[wire.id].append(rows)
        for connection in self.borders:
            connection.put(rows)
        if not self.machine.has_stirred:
            self.feed(messages.Stirred())

    def is_read(self) -> bool:
        """Its source and its ports will bring nothing more."""
        return self.position == self.plan.row_count and all(c.closed and not c.items for c in self.ports)

    # --- commands -----------------------------------------------------------------------------------------------

    def _perform(self, command: messages.ElementCommand) -> None:
        region = self.region
        match command:
            case messages.Forward(marker):
                for wire in self.plan.outputs:
                    if wire.is_link:
                        if marker.kind == "reset":
                            region.links[wire.id].clear()
                        region.links[wire.id].append(marker)
            case messages.Tell(event):
                region.pending.append(event)
            case messages.Pin(epoch, attempt):
                self._pin(epoch, attempt)
            case messages.Upload():
                assert self.pin is not None
                region.pending.append(self.pin)
            case messages.KeepOutputs():
                self.kept = []
            case messages.Restore():
                with region.checkers.destroying():
                    self._restore(region.store.epoch[self.plan.name])
                region.reached("reset")
            case _:
                pass  # nothing is held back, so there is nothing to drain

    def _pin(self, epoch: Epoch, attempt: Attempt) -> None:
        self.pin = MixedPart(
            self.plan.name, epoch, attempt, self.position, self.state, tuple(self.kept or ()),
            {c.wire.id: c.sent for c in self.borders},
            {c.wire.id: self.taken_along(c) for c in self.ports},
        )  # fmt: skip
        self.kept = None

    def taken_along(self, port: SimConnection) -> TakenByRegion:
        return TakenByRegion(port.taken, port.lost)

    def _restore(self, part: MixedPart) -> None:
        self.state = part.state
        self.position = part.position
        self.kept = None
        for rows in part.kept:
            for wire in self.plan.outputs:
                if wire.is_link:
                    self.region.links[wire.id].append(rows)
        for connection in self.ports:
            taken = part.taken[connection.wire.id]
            connection.restored(taken.row, taken.lost)
            if connection.lost > taken.lost and not self.machine.has_stirred:
                self.feed(messages.Stirred())  # what was lost has to be stored
        for connection in self.borders:
            connection.rewind(part.sent[connection.wire.id])

    def break_down(self) -> None:
        """What it was doing failed; its state is worthless."""
        if self.machine.phase is not ElementPhase.BROKEN:
            self.todo.clear()
            self.feed(messages.Broke("simulated"))


@dataclass(frozen=True, slots=True)
class Letter:
    """A message of the controller under way to an element."""

    to: ElementName
    event: messages.ElementEvent


class SimRegion(Actor):
    """The controller and what is under way to and from it. `fails_next`: the next upload or publication fails."""

    element_class: type[RegionElement] = RegionElement

    def __init__(self, around: Around, graph: MixedGraph, mode: Mode, resets_max: int) -> None:
        super().__init__(around)
        assert graph.region is not None
        self.shape = graph.region
        self.links: dict[ConnectionId, deque[int | messages.Marker]] = {
            link.id: deque() for link in self.shape.links
        }
        self.pending: list[object] = []
        self.todo: deque[commands.ControllerCommand] = deque()
        self.controller = RegionController(self.shape, mode, resets_max)
        self.elements = {
            e.number: self.element_class(e, self, around.connections) for e in graph.elements if e.in_region
        }
        self._by_name = {element.plan.name: element for element in self.elements.values()}
        self.fails_next = False
        self.is_stopping = False
        self.is_final_asked = False
        self.is_stopped = False

    def begin(self) -> None:
        self._tell(messages.Start(self.store.newest, self.store.controller))

    def _tell(self, event: messages.ControllerEvent) -> None:
        self.todo.extend(self.controller.handle(event))

    def stop(self) -> None:
        """Read no more; establish a last epoch."""
        self.is_stopping = True
        self.pending.append(messages.EpochDue(final=True))

    def resume(self) -> None:
        self._tell(messages.ResumeRequested())

    # --- one thing at a time ------------------------------------------------------------------------------------

    def act(self) -> bool:
        """Perform a command of the controller, or let something arrive."""
        if self.todo:
            self._perform(self.todo.popleft())
            return True
        if not self.pending:
            return False
        place = int(self.random() * len(self.pending))
        item = self.pending[place]
        if isinstance(item, commands.AwaitSpace) and self.store.full:
            return False
        if isinstance(item, Letter) and self._by_name[item.to].todo:
            return False
        del self.pending[place]
        self._arrive(item)
        return True

    def ask_for_epoch(self) -> bool:
        """The period has passed, or the input was read to its end."""
        if self.controller.phase is not ControllerPhase.RUNNING or self.is_stopping or self.todo:
            return False
        is_final = all(element.is_read() for element in self.elements.values())
        if is_final and self.is_final_asked:
            return False
        self.is_final_asked = is_final
        if not is_final and self.controller.is_idle:
            return False  # as nothing is new, none would come
        self._tell(messages.EpochDue(final=is_final, sticky=False, if_new=not is_final))
        return True

    def _arrive(self, item: object) -> None:
        match item:
            case Letter(to, event):
                self._by_name[to].feed(event)
            case MixedPart():
                self._upload(item)
            case commands.Publish():
                self._publish(item)
            case commands.CommitSinks(epoch):
                for name, part in self.store.epoch.items():
                    plan = self._by_name[name].plan
                    for sink, _ in plan.sinks:
                        self.checkers.shows(plan, sink, part.state)
                self._tell(messages.Committed(epoch))
            case commands.AwaitSpace():
                self._tell(messages.SpaceReturned())
            case _:
                self._tell(item)  # type: ignore[arg-type]

    def _refused(self) -> tuple[bool, bool]:
        """Whether a write fails, and whether for want of space."""
        failed, self.fails_next = self.fails_next, False
        return failed or self.store.full, self.store.full

    def _upload(self, part: MixedPart) -> None:
        fails, no_space = self._refused()
        element = self._by_name[part.element]
        if fails:
            element.feed(messages.UploadBroke(part.epoch, part.attempt, no_space))
        else:
            element.feed(messages.UploadFinished(part.epoch, part.attempt, part))

    def _publish(self, command: commands.Publish) -> None:
        fails, no_space = self._refused()
        if fails:
            self._tell(messages.PublishFailed(command.epoch, no_space))
            return
        parts = {name: part for name, part in command.parts.items() if isinstance(part, MixedPart)}
        self.store.newest, self.store.epoch = command.epoch, parts
        self.reached("published")
        self._tell(messages.Published(command.epoch))

    # --- the controller's commands ------------------------------------------------------------------------------

    def _perform(self, command: commands.ControllerCommand) -> None:
        match command:
            case commands.Persist(record):
                self.store.controller = record
            case (
                messages.BeginEpoch(elements=names)
                | messages.Resume(elements=names)
                | messages.GoOn(elements=names)
            ):
                self.pending += [Letter(name, command) for name in names]
            case messages.BeginReset(elements=names):
                self.is_final_asked = False
                self._throw_away(now=False)
                self.pending += [Letter(name, command) for name in names]
            case commands.Publish() | commands.CommitSinks() | commands.AwaitSpace():
                self.pending.append(command)
            case commands.Park():
                self._throw_away(now=True)
                self.reached("parked")
            case commands.Stop():
                self.is_stopped = True
                self._throw_away(now=True)
                for element in self.elements.values():
                    for connection in element.borders:
                        connection.closed = True
            case _:
                pass  # timers and files of epochs are not simulated here

    def _throw_away(self, *, now: bool) -> None:
        """Rows for a region that takes none are thrown away at its border."""
        with self.checkers.destroying():
            for element in self.elements.values():
                for connection in element.ports:
                    connection.throws_away = now
                    if now:
                        connection.throw()
