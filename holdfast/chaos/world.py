"""Elements and links in memory, driven by the real protocol machines.

The world performs the machines' commands and applies steps; it decides nothing about time. What it sends (messages,
uploads, writes) goes into `pending`, from which the simulator takes in any order it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from holdfast.chaos.checkers import Checkers
from holdfast.chaos.shapes import Scene
from holdfast.chaos.store import Batch, Captured, Part, SimStore
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol import messages
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.shape import MarkerKind

LOST = -1_000_000
"""What a crashed element's numbers become: any use of them before a restore is caught at once."""


@dataclass(slots=True)
class SimLink:
    """A connection. Only data links push back: see `World.has_room`."""

    id: ConnectionId
    control: bool
    queue: deque[Batch | messages.Marker]


@dataclass(frozen=True, slots=True)
class ToElement:
    element: ElementName
    event: messages.ElementEvent


@dataclass(frozen=True, slots=True)
class ToController:
    event: messages.ControllerEvent


@dataclass(frozen=True, slots=True)
class Uploading:
    """An upload in the background. It dies with the life of its element."""

    part: Part
    life: int


class SimElement:
    """An element: its machine, its volatile state, its links."""

    def __init__(self, name: ElementName, machine: ElementMachine, scene: Scene) -> None:
        self.name = name
        self.machine = machine
        self.rows = scene.rows.get(name)
        self.inputs: list[SimLink] = []
        self.outputs: list[SimLink] = []
        self.data_lanes = sum(not lane.control for lane in scene.lanes[name])
        self.lane_count = len(scene.lanes[name])
        self.life = 0
        self.breaks_next = False  # the next command list fails half-way
        self.lose_state()

    def lose_state(self) -> None:
        self.position = LOST
        self.consumed = [LOST] * self.lane_count
        self.emitted = [LOST] * self.lane_count
        self.staged_from: tuple[int, ...] = ()
        self.kept: list[Batch] | None = None
        self.pin: Part | None = None
        self.drained_for: Epoch | None = None  # drain marker is out, pin is not taken
        self.paused_for: Epoch | None = None  # pinned in drain style
        self.storing_for: Epoch | None = None  # pinned in cascade style, and not stored


class World:
    """All elements of a region. Subclasses plant defects by overriding one small method."""

    machine_class: type[ElementMachine] = ElementMachine

    def __init__(self, scene: Scene, store: SimStore, checkers: Checkers, rng: Random, capacity: int) -> None:
        self.scene = scene
        self.store = store
        self.checkers = checkers
        self.random = rng.random
        self.capacity = capacity
        self.haste = rng.choice((0.0, 0.05, 0.5))  # how soon tokens overtake
        self.source_pace = rng.choice((0.1, 1.0))  # slow sources spread their rows over the epochs
        self.cuts_at_points = False  # what sources read at once ends at a point, if it comes to one
        self.rests_for: Epoch | None = None  # at a point, sources wait until they are pinned for this epoch
        self.is_silent = False  # nothing comes in
        self.pending: list[object] = []
        self.style_of: dict[Epoch, MarkerKind] = {}  # of every epoch the controller began
        self.taken: set[tuple[ElementPhase, ElementPhase]] = set()
        self.ignored = 0
        self.elements = {name: self._new_element(name) for name in scene.region.elements}
        for link in scene.region.links:
            made = SimLink(link.id, link.control, deque())
            self.elements[link.source].outputs.append(made)
            self.elements[link.target].inputs.append(made)

    def _new_element(self, name: ElementName) -> SimElement:
        return SimElement(name, self.machine_class(self.scene.region, name), self.scene)

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self, element: SimElement, *, must_read: bool = False) -> bool:
        """Let an element do one thing it may do; False if there is none, or if its source takes its time."""
        if self.look(element):
            return True
        if (element.machine.is_held or self.random() < self.haste) and self.overtake(element):
            return True
        inputs = element.inputs
        choices = len(inputs) + (element.rows is not None)
        first = int(self.random() * choices)
        for turn in range(choices):
            number = (first + turn) % choices
            if number < len(inputs):
                if self._take(element, inputs[number]):
                    return True
            elif (must_read or self.random() < self.source_pace) and self._read(element):
                return True
        return False

    def look(self, element: SimElement) -> bool:
        """Between two steps: tell an element that waits for its operators when they may be checkpointed."""
        awaited = element.machine.awaits_operators
        if awaited is None or not self.is_ready(element):
            return False
        self.feed(element, awaited)
        return True

    def is_ready(self, element: SimElement) -> bool:
        """An operator with points of its own has one at every third row, and at the end."""
        if element.name not in self.scene.region.conditional:
            return True
        if self.cuts_at_points:  # rows of several ways come to a point where each of them does
            lanes = self.scene.lanes[element.name]
            return all(
                self.is_point(self.scene.rows[lane.source], seen)
                for lane, seen in zip(lanes, element.consumed, strict=True)
            )
        return sum(element.consumed) % 3 == 0 or self.is_complete(element.name, element.consumed)

    def is_point(self, rows: int, position: int) -> bool:
        """A source of so many rows comes to a point there."""
        return position % 3 == 0 or position == rows

    def rests(self) -> bool:
        """Every source is at a point, and waits there."""
        return all(self.is_point(e.rows, e.position) for e in self.elements.values() if e.rows is not None)

    def is_complete(self, name: ElementName, consumed: Sequence[int]) -> bool:
        """The element has all rows that will ever come to it."""
        lanes = self.scene.lanes[name]
        return all(self.scene.rows[lane.source] == seen for lane, seen in zip(lanes, consumed, strict=True))

    def overtake(self, element: SimElement) -> bool:
        """Tell an element which tokens wait in its queues; True if it lets them go ahead."""
        awaited = element.machine.awaited
        if awaited is None or not awaited[1]:
            return False
        token, missing = awaited
        here = frozenset(link.id for link in element.inputs if token in link.queue)
        if not missing & here:
            return False
        self.feed(element, messages.TokensWait(token.epoch, token.attempt, here))
        return element.machine.awaited is None

    def _take(self, element: SimElement, link: SimLink) -> bool:
        if not link.queue:
            return False
        head = link.queue[0]
        if isinstance(head, messages.Marker):
            if not element.machine.delivers(link.id, head):
                return False
            link.queue.popleft()
            self.feed(element, messages.MarkerArrived(link.id, head))
            return True
        fate = element.machine.fate(link.id)
        if fate == "wait" or (fate == "process" and not link.control and not self.has_room(element)):
            return False
        link.queue.popleft()
        if fate == "process":
            self._process(element, link, head)
        return True

    def _process(self, element: SimElement, link: SimLink, batch: Batch) -> None:
        sender_lane, first, end = batch
        lane = self.scene.lane_of[link.id, sender_lane]
        self.checkers.moves(element.name, element.storing_for)
        self.checkers.takes(element.name, lane, element.consumed[lane], first)
        element.consumed[lane] = end
        if not link.control and self.random() < 0.75:  # else the operator holds the rows back for now
            self._emit(element, lane)
        self.stir(element)

    def stir(self, element: SimElement) -> None:
        """A step is over."""
        if not element.machine.has_stirred:
            self.feed(element, messages.Stirred())

    def _read(self, element: SimElement) -> bool:
        assert element.rows is not None
        if not element.machine.may_read_sources or self.is_silent or element.position >= element.rows:
            return False
        if not self.has_room(element) or self._rests(element):
            return False
        self.checkers.reads(element.name, element.paused_for, self.store.newest)
        self.checkers.moves(element.name, element.storing_for)
        first = element.position
        self.checkers.takes(element.name, 0, element.consumed[0], first)
        end = min(element.rows, first + 1 + int(self.random() * 3))
        element.position = min(end, first - first % 3 + 3) if self.cuts_at_points else end
        element.consumed[0] = element.position
        self._emit(element, 0)
        self.stir(element)
        return True

    def _rests(self, element: SimElement) -> bool:
        assert element.rows is not None
        if self.rests_for is None or not self.is_point(element.rows, element.position):
            return False
        return element.pin is None or element.pin.epoch < self.rests_for

    def has_room(self, element: SimElement) -> bool:
        # Control links never push back: a full one that waits for a marker would stop the very element whose batches
        # that marker is behind.
        # While somebody holds still, who is not ready must go on: it may need rows that come after those of others.
        if any(one.machine.is_held for one in self.elements.values()):
            return True
        return all(link.control or len(link.queue) < self.capacity for link in element.outputs)

    def _emit(self, element: SimElement, lane: int) -> None:
        first, end = element.emitted[lane], element.consumed[lane]
        element.emitted[lane] = end
        if first == end or not element.outputs:
            return
        self.checkers.sends(element.name, element.drained_for)
        batch = (lane, first, end)
        if element.kept is not None:
            element.kept.append(batch)
        for link in element.outputs:
            link.queue.append(batch)

    # --- commands -------------------------------------------------------------------------------------------------------

    def feed(self, element: SimElement, event: messages.ElementEvent) -> None:
        """Give a machine an event and perform what it asks; if that fails half-way, tell it so."""
        if isinstance(event, messages.UploadFinished | messages.UploadBroke):
            element.storing_for = None
        commands: Sequence[messages.ElementCommand] = element.machine.handle(event)
        if commands and element.breaks_next and not isinstance(event, messages.Broke):
            element.breaks_next = False
            for command in commands[: int(self.random() * len(commands))]:
                self._perform(element, command)
            self.break_element(element)
            return
        for command in commands:
            self._perform(element, command)

    def _perform(self, element: SimElement, command: messages.ElementCommand) -> None:
        match command:
            case messages.Forward(marker):
                self._forward(element, marker)
            case messages.Tell(event):
                self.pending.append(ToController(event))
            case messages.RunDrain():
                for lane in range(element.data_lanes):
                    self._emit(element, lane)
            case messages.Pin(epoch, attempt, captured):
                self._pin(element, epoch, attempt, self.captured_of(element, captured, epoch, attempt))
            case messages.Upload():
                assert element.pin is not None
                self.pending.append(Uploading(element.pin, element.life))
            case messages.KeepOutputs():
                element.kept = []
            case messages.Restore(epoch, attempt):
                self._restore(element, epoch, attempt)

    def _forward(self, element: SimElement, marker: messages.Marker) -> None:
        for link in element.outputs:
            if marker.kind == "reset":
                self.put_reset(link, marker)
            else:
                link.queue.append(marker)
        is_pinned = element.pin is not None and element.pin.epoch == marker.epoch
        if marker.kind in ("drain", "cascade") and not is_pinned:
            element.drained_for = marker.epoch

    def put_reset(self, link: SimLink, marker: messages.Marker) -> None:
        link.queue.clear()
        link.queue.append(marker)

    def captured_of(
        self, element: SimElement, links: frozenset[ConnectionId], epoch: Epoch, attempt: Attempt
    ) -> Captured:
        """The batches ahead of the token on these links."""
        token = messages.Marker("token", epoch, attempt)
        return tuple(
            (link.id, item)
            for link in element.inputs
            if link.id in links
            for item in list(link.queue)[: link.queue.index(token)]
            if not isinstance(item, messages.Marker)
        )

    def _pin(self, element: SimElement, epoch: Epoch, attempt: Attempt, captured: Captured) -> None:
        consumed = tuple(element.consumed)
        self.checkers.pins(element.name, self.is_ready(element))
        element.pin = Part(
            element.name,
            epoch,
            attempt,
            element.position,
            consumed,
            tuple(element.emitted),
            self.kept_of(element),
            element.staged_from,
            captured,
        )
        if self.style_of.get(epoch) == "drain":
            element.paused_for = epoch
        elif self.style_of.get(epoch) == "cascade":
            element.storing_for = epoch
        element.staged_from = consumed
        element.kept = None
        element.drained_for = None

    def kept_of(self, element: SimElement) -> tuple[Batch, ...]:
        return tuple(element.kept or ())

    def _restore(self, element: SimElement, epoch: Epoch, attempt: Attempt) -> None:
        self.checkers.restores(element.name, epoch, attempt, self.store.newest)
        part = self.store.manifests[epoch][element.name]
        element.life += 1 if self.random() < 0.5 else 0  # uploads of earlier pins may still answer, or not
        position = element.position
        element.lose_state()
        element.position = self.sought(position, part)
        element.consumed = list(part.consumed)
        element.emitted = list(part.emitted)
        element.staged_from = part.consumed
        for id, batch in reversed(self.given_back(part)):
            next(link for link in element.inputs if link.id == id).queue.appendleft(batch)
        for batch in self.resent(part):
            for link in element.outputs:
                link.queue.append(batch)
        self.roll_sink(element, epoch)

    def roll_sink(self, element: SimElement, epoch: Epoch) -> None:
        """Finish a commit that a crash or failure left half-done."""
        if element.name in self.store.sinks:
            self.store.commit(element.name, epoch)

    def sought(self, position: int, part: Part) -> int:
        """Where the source stands after a restore."""
        return part.position

    def given_back(self, part: Part) -> Captured:
        return part.captured

    def resent(self, part: Part) -> tuple[Batch, ...]:
        return part.kept

    # --- crashes ----------------------------------------------------------------------------------------------------------

    def break_element(self, element: SimElement) -> None:
        """A step or command of the element raised: its state is worthless, its machine is told."""
        element.lose_state()
        element.life += 1
        self.feed(element, messages.Broke("simulated"))

    def lose_queues(self, element: SimElement) -> None:
        for link in element.inputs:
            link.queue.clear()

    def replace_element(self, element: SimElement, *, knows_attempt: bool) -> None:
        """A new machine and no state, as after the death of the process."""
        self.retire(element)
        attempt = element.machine.attempt if knows_attempt else Attempt(0)
        element.machine = self.machine_class(self.scene.region, element.name, attempt)
        element.life += 1
        element.breaks_next = False
        element.lose_state()

    def retire(self, element: SimElement) -> None:
        """Keep what a machine counted before it goes."""
        self.taken |= element.machine.taken
        self.ignored += element.machine.ignored

    def is_read(self) -> bool:
        """Every source is at its end."""
        return all(e.position == e.rows for e in self.elements.values() if e.rows is not None)
