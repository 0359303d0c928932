"""One thread per element of a region: takes batches and markers from connections, runs steps, obeys its machine.

The machine decides, the worker works, this file connects them. Events reach the machine only between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from holdfast.clock import Clock
from holdfast.compiler.plan import ElementPlan
from holdfast.errors import NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.language.connectors import Slice
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.messages import (
    BeginReset,
    Broke,
    ElementCommand,
    ElementEvent,
    Forward,
    KeepOutputs,
    Marker,
    MarkerArrived,
    Pin,
    Restore,
    RunDrain,
    Tell,
    Upload,
    UploadBroke,
    UploadFinished,
)
from holdfast.runtime.element.evaluation import Outcome, Work
from holdfast.runtime.element.pauses import EpochPauses
from holdfast.runtime.element.row_counting import count_later
from holdfast.runtime.element.worker import Pinned, Worker
from holdfast.runtime.engines.engine import Engine, StepName
from holdfast.runtime.failures import check_engine, is_fatal, is_no_space, story_of
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.links.connection import Connection, Interrupted, Signals
from holdfast.runtime.metrics import ElementMetrics
from holdfast.runtime.region.region_side import RegionSide

ROWS_PER_STEP = 1_000_000
IDLE_WAIT_S = 0.05


class ElementLoop:
    """The loop of one element in a region. `run` is the thread's body; `send` may be called from any thread."""

    def __init__(
        self,
        plan: ElementPlan,
        machine: ElementMachine,
        worker: Worker,
        engine: Engine,
        region: RegionSide,
        inputs: Mapping[ConnectionId, Connection],
        outputs: Mapping[ConnectionId, Connection],
        signals: Signals,
        clock: Clock,
        *,
        operator_driven: bool = False,
    ) -> None:
        self.plan = plan
        self.machine = machine
        self.worker = worker
        self.metrics = ElementMetrics()
        self._engine = engine
        self._region = region
        self._inputs = inputs
        self._outputs = outputs
        self._signals = signals
        self._clock = clock
        self._operator_driven = operator_driven
        self._mail: deque[ElementEvent] = deque()
        self._stopping = False
        self._paused = False
        self._step = 0
        self._kept: dict[ConnectionId, list[Batch]] | None = None
        self._pinned: Pinned | None = None
        self._rows_at: dict[Epoch, int] = {}
        """Rows read when an epoch was pinned or restored."""
        self.pauses = EpochPauses(clock)
        self._uploads = ThreadPoolExecutor(1, thread_name_prefix=f"upload-{plan.name}")
        self._upload: Future[None] | None = None
        self._awaiting_epoch = False
        self.finished = False
        self.exhausted = False
        """True while the bounded sources of this element have nothing more and its border inputs are closed."""

    @property
    def name(self) -> ElementName:
        return self.plan.name

    @property
    def is_fed_from_outside(self) -> bool:
        """True if rows enter the region here: by a source, or over the region's border."""
        return bool(self.worker.sources) or any(not self._in_region(id) for id in self._inputs)

    def send(self, event: ElementEvent) -> None:
        """Deliver a control message. A reset also interrupts the step under way."""
        with self._signals.condition:
            self._mail.append(event)
            self._signals.condition.notify_all()

    def interrupt(self) -> None:
        """What the element is doing no longer matters: cancel its jobs."""
        self._engine.cancel(self.name)

    def pause(self) -> None:
        """Run no step until `unpause` (the store has no space)."""
        self._paused = True

    def unpause(self) -> None:
        self._paused = False

    def stop(self) -> None:
        with self._signals.condition:
            self._stopping = True
            self._signals.condition.notify_all()
        self._engine.cancel(self.name)

    def run(self) -> None:
        """Thread body."""
        try:
            while not self._stopping:
                if not (self._handle_mail() or self._handle_markers() or self._work()):
                    self._rest()
        except Interrupted:
            pass
        except BaseException as error:
            self._region.fatal(error)
        finally:
            self._uploads.shutdown(wait=False, cancel_futures=True)
            self.worker.close()

    # --- one turn -----------------------------------------------------------------------------------------------

    def _handle_mail(self) -> bool:
        with self._signals.condition:
            event = self._mail.popleft() if self._mail else None
        if event is None:
            return False
        self._feed(event)
        return True

    def _handle_markers(self) -> bool:
        for id, connection in self._inputs.items():
            if not self._in_region(id):
                continue
            with self._signals.condition:
                head = connection.head()
                if isinstance(head, Batch) and self.machine.fate(id) == "drop":
                    connection.pop()
                    head.hold.let_go()
                    return True
                if not isinstance(head, Marker) or not self.machine.delivers(id, head):
                    continue
                connection.pop()
            self._feed(MarkerArrived(id, head))
            return True
        return False

    def _work(self) -> bool:
        if self._paused or not self.machine.may_step:
            return False
        work = self._gather()
        if work is None:
            return False
        self.pauses.working()
        self._guarded(lambda: self._run_step(work))
        for batches in work.batches.values():
            for batch in batches:
                batch.hold.let_go()
        return True

    def _rest(self) -> None:
        with self._signals.condition:
            if self._mail or self._stopping:
                return
            self.metrics.waiting = "input" if self.machine.may_step else self.machine.phase.value
            held_back = self._is_held_back()
            if not held_back:
                self.pauses.working()
            with self.pauses.during(held_back):
                self._signals.condition.wait(IDLE_WAIT_S)

    def _is_held_back(self) -> bool:
        """True if an epoch lets input wait: batches behind its marker, or sources of an element that drains."""
        if not self.machine.may_step:
            return False
        if self.worker.sources and not self.machine.may_read_sources and not self.exhausted:
            return True
        return any(
            isinstance(connection.head(), Batch) and self.machine.fate(id) == "wait"
            for id, connection in self._inputs.items()
            if self._in_region(id)
        )

    # --- steps --------------------------------------------------------------------------------------------------

    def _gather(self) -> Work | None:
        """Batches and slices for the next step; None if there is nothing to do."""
        batches: dict[ConnectionId, list[Batch]] = {}
        with self._signals.condition:
            for id, connection in self._inputs.items():
                open_now = (
                    self.machine.fate(id) == "process"
                    if self._in_region(id)
                    else self.machine.may_read_sources
                )
                taken = connection.take_batches(ROWS_PER_STEP) if open_now else []
                if taken:
                    batches[id] = taken
        slices = self._next_slices() if self.machine.may_read_sources and not self._awaiting_epoch else {}
        if not batches and not slices:
            self._note_exhaustion()
            return None
        self.exhausted = False
        return Work(slices, batches)

    def _next_slices(self) -> dict[Any, Slice]:
        slices: dict[Any, Slice] = {}

        def plan() -> None:
            for run in self.worker.sources:
                piece = run.next_slice()
                if piece is not None:
                    slices[run.name] = piece

        self._guarded(plan)
        return slices

    def _note_exhaustion(self) -> None:
        borders = [c for id, c in self._inputs.items() if not self._in_region(id)]
        quiet = all(c.closed and c.empty for c in borders) and all(run.dry for run in self.worker.sources)
        if self.machine.may_read_sources and quiet and not self.exhausted:
            self.exhausted = True
            self._signals.notify()

    def _run_step(self, work: Work) -> None:
        begun = self._clock.monotonic()
        self.metrics.waiting = "step"
        outcome = self.worker.step(work, self._next_name())
        self._emit(outcome)
        now = self._clock.monotonic()
        size = sum(piece.bytes or 0 for piece in work.slices.values())
        self.metrics.step_done(now, now - begun, work.rows, size)
        count_later(self.worker, work, self.metrics, now)
        if self._operator_driven and any(piece.boundary for piece in work.slices.values()):
            self._awaiting_epoch = True
            self._region.epoch_wanted()

    def _next_name(self) -> StepName:
        self._step += 1
        return StepName(self.name, self.machine.attempt, self._step, int(self._region.epoch))

    def _emit(self, outcome: Outcome) -> None:
        self.metrics.counts = self.worker.counts
        for sink, rows in outcome.sink_rows.items():
            self.metrics.add_sink_rows(sink, rows)
        for stream, batch in outcome.batches.items():
            for connection in self.plan.outputs:
                if connection.stream == stream:
                    batch.hold.take()
                    self._put(connection.id, batch)
            batch.hold.let_go()

    def _put(self, id: ConnectionId, batch: Batch) -> None:
        if self._kept is not None and self._in_region(id):
            batch.hold.take()
            self._kept.setdefault(id, []).append(batch)
        self.metrics.waiting = "space downstream"
        self._outputs[id].put_batch(batch, self._must_give_up)

    def _must_give_up(self) -> bool:
        """While waiting for space: is there a reset (own mail, or a marker on an input) or a stop?"""
        if self._stopping or any(isinstance(event, BeginReset) for event in self._mail):
            return True
        return any(
            isinstance(head := connection.head(), Marker) and head.kind == "reset"
            for connection in self._inputs.values()
        )

    # --- commands -----------------------------------------------------------------------------------------------

    def _feed(self, event: ElementEvent) -> None:
        """Give an event to the machine and perform what it answers."""
        commands = self.machine.handle(event)
        if commands:
            with self.pauses.during(not any(isinstance(command, Restore) for command in commands)):
                self._guarded(lambda: self._perform(commands))

    def _perform(self, commands: list[ElementCommand]) -> None:
        for command in commands:
            match command:
                case RunDrain():
                    fp("drain.begin")
                    self._emit(self.worker.drain(self._next_name()))
                case Forward(marker):
                    for connection in self.plan.outputs:
                        if self._in_region(connection.id):
                            self._outputs[connection.id].put_marker(marker)
                case KeepOutputs():
                    self._kept = {}
                case Pin(epoch, attempt):
                    self._pin(epoch, attempt)
                case Upload(epoch, attempt):
                    assert self._pinned is not None
                    self._upload = self._uploads.submit(self._upload_in_background, self._pinned)
                case Restore(epoch, attempt):
                    self._restore(epoch, attempt)
                case Tell(event):
                    fp("drain.op.ack")
                    self._region.tell(event)

    def _pin(self, epoch: Epoch, attempt: Attempt) -> None:
        kept = {id: tuple(batches) for id, batches in (self._kept or {}).items()}
        self._pinned = self.worker.pin(epoch, attempt, kept)
        self._awaiting_epoch = False
        self._rows_at[epoch] = self.metrics.rows
        self._drop_kept()
        self.pauses.pinned()

    def _drop_kept(self) -> None:
        for batches in (self._kept or {}).values():
            for batch in batches:
                batch.hold.let_go()
        self._kept = None

    def _upload_in_background(self, pinned: Pinned) -> None:
        try:
            part = self._region.upload(pinned, self.worker)
            self.send(UploadFinished(pinned.epoch, pinned.attempt, part))
        except NoSpaceError as error:
            self.send(UploadBroke(pinned.epoch, pinned.attempt, True, str(error)))
        except BaseException as error:
            if is_fatal(error):
                self._region.fatal(error)
            self.send(UploadBroke(pinned.epoch, pinned.attempt, False, story_of(error)))

    def _restore(self, epoch: Epoch, attempt: Attempt) -> None:
        fp("reset.begin")
        self.pauses.forget()
        if self._upload is not None:
            # A late upload of the old attempt must not meet the sinks' roll-back.
            self._upload.exception()
            self._upload = None
        self._drop_kept()
        self._count_replay(epoch)
        self._pinned = None
        self._awaiting_epoch = False
        self.exhausted = False
        for id, batches in self._region.restore(self.worker, epoch, attempt).items():
            for batch in batches:
                self._outputs[id].put_batch(batch, self._must_give_up)
        fp("reset.resume")

    def _count_replay(self, epoch: Epoch) -> None:
        """Rows read from sources behind `epoch` will be read again."""
        if self.worker.sources:
            self._region.rows_replayed(self.metrics.rows - self._rows_at.get(epoch, self.metrics.rows))
        self._rows_at = {epoch: self.metrics.rows}

    def _guarded(self, act: Any) -> None:
        """Run `act`; a failure breaks the element (its region resets), a reset on its way makes it irrelevant."""
        try:
            act()
        except Interrupted:
            return
        except BaseException as error:
            if is_fatal(error):
                raise
            check_engine(self._engine.is_alive(), error)
            if is_no_space(error):
                # A full disk is no failure of the element: it must not use up the region's resets.
                self._region.wait_for_space(f"no space: {error}", self._must_give_up)
            self.metrics.failures += 1
            for command in self.machine.handle(Broke(story_of(error))):
                assert isinstance(command, Tell)
                self._region.tell(command.event)

    def _in_region(self, id: ConnectionId) -> bool:
        connections = (*self.plan.inputs, *self.plan.outputs)
        return any(c.id == id and c.region is not None and c.region == self.plan.region for c in connections)
