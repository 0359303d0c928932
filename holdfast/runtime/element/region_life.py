"""An element in a region: obeys the region's protocol. The rim of `protocol/element.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.failpoints import fp
from holdfast.ids import Attempt, ConnectionId, Epoch
from holdfast.protocol import messages
from holdfast.protocol.element import ElementMachine
from holdfast.runtime.element.borders import Borders, lost_at_reset, replayed_inputs
from holdfast.runtime.element.epochs.milestones import Milestones
from holdfast.runtime.element.epochs.overtaking import Overtaking
from holdfast.runtime.element.epochs.pauses import EpochPauses
from holdfast.runtime.element.epochs.python_care import PythonCare
from holdfast.runtime.element.epochs.repeating import Repeating
from holdfast.runtime.element.epochs.rereading import Rereading
from holdfast.runtime.element.epochs.size_watch import SizeWatch
from holdfast.runtime.element.epochs.stirring import Stirring
from holdfast.runtime.element.epochs.storing import OnTheWay, Pinned
from holdfast.runtime.element.epochs.uploading import Uploading
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.element.life import Life
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.engines.engine import StepName
from holdfast.runtime.failures import check_engine, is_fatal, is_no_space, may_pass, own_failure, story_of
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.links.connection import Interrupted, Parcel
from holdfast.runtime.links.entered_log import EnteredLog
from holdfast.runtime.region.region_side import RegionSide
from holdfast.runtime.telling.events import AttributesFilled, ElementFailed


class RegionLife(Life):
    """`send`, `pause` may be called from any thread; the rest by the element's."""

    def __init__(
        self,
        loop: ElementLoop,
        machine: ElementMachine,
        region: RegionSide,
        operator_driven: bool,
        repeating: Repeating | None,
        log: EnteredLog | None,
    ) -> None:
        self.repeating = repeating
        self.machine = machine
        self.pauses = EpochPauses(loop.clock)
        self.milestones = Milestones(loop.clock)
        self.loop = loop
        self._region = region
        self.care = PythonCare(loop, machine, region, self.guarded, self.feed)
        self._stirring = Stirring(loop, machine, self.feed)
        self._operator_driven = operator_driven
        self._mail: deque[messages.ElementEvent] = deque()
        self._paused = False
        self._awaits_epoch = False
        self._ends_with_borders, self._reads_on = False, True
        self._kept: dict[ConnectionId, list[Batch]] | None = None
        self._pinned: Pinned | None = None
        self.rereading = Rereading(loop, region.rows_replayed)
        self._overtaking = Overtaking(loop.ends.inputs, loop.ends.signals, loop.clock)
        self._uploading = Uploading(loop.worker, region, self.send)
        self.moved_at = 0.0
        """When the machine last heard of something."""
        self.error: BaseException | None = None
        """Why it broke last."""
        self.looks_around = False
        self.sizes: SizeWatch | None = None
        """Set where epochs are timed by the size of state, and the element has some."""
        plan = loop.plan
        connections = (*plan.inputs, *plan.outputs)
        self._links = {c.id for c in connections if c.region is not None and c.region == plan.region}
        ends = loop.ends
        entering = {id: c for id, c in ends.inputs.items() if id not in self._links}
        leaving = {id: c for id, c in ends.outputs.items() if id not in self._links}
        self.borders = Borders(entering, leaving, log, replayed_inputs(plan))
        loop.life = self

    @property
    def is_fed_from_outside(self) -> bool:
        """True if rows enter the region here: by a source, or over the region's border."""
        worker = self.loop.worker
        return bool(worker.sources or worker.begins or self.loop.ends.inputs.keys() - self._links)

    def send(self, event: messages.ElementEvent) -> None:
        """Deliver a control message."""
        with self.loop.ends.signals.condition:
            self._mail.append(event)
            self.loop.ends.signals.condition.notify_all()

    def pause(self, now: bool) -> None:
        """Run no step while it is true: the store has no space, or the region is parked."""
        self._paused = now
        self.loop.ends.signals.notify()

    def end_with_borders(self, reads_on: bool) -> None:
        """The run is to end: what sources have does not count any more, only what comes from outside of the region. `reads_on`:
        they are read until the last epoch begins, as operators must come to a point. Any thread may call it."""
        self._reads_on, self._ends_with_borders = reads_on, True
        self.loop.ends.signals.notify()

    def count_lost(self, lost: Mapping[ConnectionId, int]) -> None:
        """Rows lost so far at each entrance of a region, over all runs."""
        self.borders.lost.update({id: lost.get(id, 0) for id in self.borders.lost})
        self.loop.metrics.lost_rows = sum(self.borders.lost.values())

    # --- what the loop asks -------------------------------------------------------------------------------------

    @property
    def waiting(self) -> str:
        if self.care.unready:
            return f"a point at which {', '.join(self.care.unready)} may be checkpointed"
        return "input" if self.machine.may_step else self.machine.phase.value

    @property
    def may_step(self) -> bool:
        return self.machine.may_step and not self.machine.is_storing and not self._paused

    @property
    def may_read_sources(self) -> bool:
        return self.machine.may_read_sources and not self._awaits_epoch and self._reads_on

    def takes(self, connection: ConnectionId) -> bool:
        if connection in self._links:
            return self.machine.fate(connection) == "process"
        return self.machine.may_read_sources

    def again(self) -> Work | None:
        return None if self.repeating is None else self.repeating.next_work()

    def begin(self) -> None:
        pass

    def turn(self) -> bool:
        done = self.care.turn() or self._handle_mail() or self._handle_markers() or self._overtake()
        return done or self._drain_again()

    def name_step(self, number: int) -> StepName:
        return StepName(self.loop.name, self.machine.attempt, number, int(self._region.epoch))

    def step(self, work: Work) -> None:
        self.pauses.working()
        if self.repeating is not None:
            self.repeating.begins(work)
        self.guarded(lambda: self._run(work))

    def _run(self, work: Work) -> None:
        self.borders.record(work.parcels)
        self.loop.run_step(work)
        self._stirring.stepped()
        if self.sizes is not None:
            self.sizes.look()
        if self._operator_driven and any(piece.boundary for piece in work.slices.values()):
            self._awaits_epoch = True
            self._region.epoch_wanted()

    def sends(self, connection: ConnectionId, batch: Batch) -> None:
        if self._kept is not None and connection in self._links:
            batch.hold.take()
            self._kept.setdefault(connection, []).append(batch)

    def attempt(self, plan: Callable[[], Any]) -> Any:
        found: list[Any] = []
        self.guarded(lambda: found.append(plan()))
        return found[0] if found else None

    def must_give_up(self) -> bool:
        """Is there a reset (own mail, or a marker on an input) or a stop?"""
        if self.loop.stopping or any(isinstance(event, messages.BeginReset) for event in self._mail):
            return True
        heads = [connection.head() for connection in self.loop.ends.inputs.values()]
        return any(isinstance(head, messages.Marker) and head.kind == "reset" for head in heads)

    def must_hurry(self) -> bool:
        """A token must not wait for the space that the batches ahead of it need, nor an element for one that is held."""
        return self._region.is_held or any(isinstance(event, messages.BeginEpoch) for event in self._mail)

    def rest(self) -> None:
        self._note_exhaustion()
        self.guarded(self._stirring.look)
        if self.sizes is not None and self.machine.may_step:
            self.guarded(self.sizes.look_again)
        with self.loop.ends.signals.condition:
            if self._mail:
                return
            held_back = self._is_held_back()
            if not held_back:
                self.pauses.working()
            with self.pauses.during(held_back):
                self.loop.wait()

    def is_over(self) -> bool:
        return False  # the region's controller ends it

    def end(self) -> None:
        pass

    def fatal(self, error: BaseException) -> None:
        self._region.fatal(error)

    def close(self) -> None:
        self._uploading.close()

    # --- messages and markers -----------------------------------------------------------------------------------

    def _handle_mail(self) -> bool:
        with self.loop.ends.signals.condition:
            event = next((event for event in self._mail if not self._must_wait(event)), None)
            if event is None:
                return False
            self._mail.remove(event)
        self.feed(event)
        return True

    def _must_wait(self, event: messages.ElementEvent) -> bool:
        """No epoch while the element does again what it did before: it would drain where it did not drain then."""
        is_early = self.repeating is not None and self.repeating.is_under_way
        return is_early and isinstance(event, messages.BeginEpoch)

    def _drain_again(self) -> bool:
        if self.repeating is None or not self.may_step or not self.repeating.takes_drain():
            return False
        self.guarded(self._drain)
        self._stirring.stepped()
        return True

    def _handle_markers(self) -> bool:
        return any(self._handle_marker(id) for id in self.loop.ends.inputs if id in self._links)

    def _handle_marker(self, id: ConnectionId) -> bool:
        connection = self.loop.ends.inputs[id]
        with self.loop.ends.signals.condition:
            head = connection.head()
            if isinstance(head, Parcel) and self.machine.fate(id) == "drop":
                connection.pop()
                head.batch.hold.let_go()
                return True
            if not isinstance(head, messages.Marker) or not self.machine.delivers(id, head):
                return False
            connection.pop()
        self.feed(messages.MarkerArrived(id, head))
        return True

    def _overtake(self) -> bool:
        """Let tokens go ahead of the batches that wait before them, if that takes long."""
        event = self._overtaking.due(self.machine.awaited, at_once=self.machine.is_held)
        if event is None:
            return False
        self.feed(event)
        return True

    def _is_held_back(self) -> bool:
        """True if an epoch lets input wait: batches behind its marker, or sources of an element that drains."""
        if not self.machine.may_step:
            return False
        if self.loop.worker.sources and not self.machine.may_read_sources and not self.loop.exhausted:
            return True
        return any(
            isinstance(connection.head(), Parcel) and self.machine.fate(id) == "wait"
            for id, connection in self.loop.ends.inputs.items()
            if id in self._links
        )

    def _note_exhaustion(self) -> None:
        if self.loop.exhausted or not self.machine.may_read_sources:
            return
        borders = [c for id, c in self.loop.ends.inputs.items() if id not in self._links]
        dry = all(run.dry for run in self.loop.worker.sources)
        dry = dry and all(run.is_over for run in self.loop.worker.begins)
        if (
            (dry or self._ends_with_borders)
            and not self._awaits_epoch
            and all(c.closed and c.empty for c in borders)
        ):
            self.loop.exhausted = True
            self.loop.ends.signals.notify()

    # --- commands -----------------------------------------------------------------------------------------------

    def feed(self, event: messages.ElementEvent) -> None:
        """Give an event to the machine and perform what it answers."""
        commands = self.machine.handle(event)
        self.moved_at = self.loop.clock.monotonic()
        if commands:
            with self.pauses.during(not any(isinstance(command, messages.Restore) for command in commands)):
                self.guarded(lambda: self._perform(commands))

    def _perform(self, commands: list[messages.ElementCommand]) -> None:
        for command in commands:
            self.milestones.note(command)
            match command:
                case messages.RunDrain():
                    if self.repeating is not None:
                        self.repeating.begins_drain()
                    self._drain()
                case messages.Forward(marker):
                    for id in self._links & self.loop.ends.outputs.keys():
                        self.loop.ends.outputs[id].put_marker(marker)
                case messages.KeepOutputs():
                    self._kept = {}
                case messages.Pin(epoch, attempt, captured):
                    self._pin(epoch, attempt, captured)
                case messages.Upload():
                    assert self._pinned is not None
                    self._uploading.begin(self._pinned)
                case messages.Restore(epoch, attempt):
                    self._restore(epoch, attempt)
                case messages.Tell(event):
                    fp("drain.op.ack")
                    self._region.tell(event)

    def _drain(self) -> None:
        fp("drain.begin")
        self.loop.emit(self.loop.worker.drain(self.loop.next_name()))

    def published(self, epoch: Epoch) -> None:
        """The element's state of `epoch` counts. Called by the region's thread."""
        self.borders.published(epoch)
        if self.repeating is not None:
            self.repeating.published(epoch)

    def _pin(self, epoch: Epoch, attempt: Attempt, links: frozenset[ConnectionId]) -> None:
        kept = {id: tuple(batches) for id, batches in (self._kept or {}).items()}
        token = messages.Marker("token", epoch, attempt)
        with self.loop.ends.signals.condition:
            captured = {id: self.loop.ends.inputs[id].ahead_of(token) or () for id in links}
            on_the_way = OnTheWay(kept, captured)
            self._pinned = self.loop.worker.pin(epoch, attempt, on_the_way, self.borders.pinned(epoch))
        if self.repeating is not None:
            self.repeating.pinned(epoch)
        self._overtaking.over()
        self._awaits_epoch = False
        self.rereading.pinned(epoch)
        self._drop_kept()
        self.pauses.pinned()

    def _drop_kept(self) -> None:
        for batches in (self._kept or {}).values():
            for batch in batches:
                batch.hold.let_go()
        self._kept = None

    def _restore(self, epoch: Epoch, attempt: Attempt) -> None:
        fp("reset.begin")
        self.pauses.forget()
        self._uploading.wait()
        self._drop_kept()
        self.rereading.restored(epoch)
        self._pinned = None
        self._awaits_epoch = False
        self.loop.exhausted = False
        waiting = self._region.restore(self.loop.worker, epoch, attempt)
        for run in self.loop.worker.hosted:
            if run.filled:
                self._region.announce(AttributesFilled(run.name, run.filled, self.loop.plan.region))
        self.loop.metrics.counts = self.loop.worker.counts
        if self.sizes is not None:
            self.sizes.anew()
        for id, batches in waiting.captured.items():
            self.loop.ends.inputs[id].put_first([Parcel(batch, batch.rows) for batch in batches])
        for id, batches in waiting.kept.items():
            for batch in batches:
                self.loop.ends.outputs[id].put_batch(batch, self.must_give_up)
        lost = self.borders.restored(epoch)
        if self.repeating is not None:
            self.repeating.restored(epoch)
        if lost:
            self._stirring.stepped()
            self.loop.metrics.lost_rows += lost
            self._region.announce(lost_at_reset(self.loop.worker.plan, self.loop.plan, lost))
        fp("reset.resume")

    def guarded(self, act: Callable[[], object]) -> None:
        """Run `act`; a failure breaks the element (its region resets), a reset on its way makes it irrelevant."""
        try:
            act()
        except Interrupted:
            return
        except BaseException as error:
            if is_fatal(error):
                raise
            check_engine(self.loop.worker.engine.is_alive(), error)
            if is_no_space(error):
                # A full disk is no failure of the element: it must not use up the region's resets.
                self._region.wait_for_space(f"no space: {error}", self.must_give_up)
            self.error = error
            own = own_failure(error)
            failed = ElementFailed(self.loop.name, own or story_of(error), self.loop.plan.region)
            self._region.announce(failed)
            for command in self.machine.handle(messages.Broke(story_of(error), may_pass(error), own)):
                assert isinstance(command, messages.Tell)
                self._region.tell(command.event)
