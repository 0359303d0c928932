"""One thread per region: performs what the pure controller commands, and feeds it what happened."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import ElementPart
from holdfast.clock import Clock
from holdfast.compiler.plan import RegionPlan
from holdfast.errors import NoSpaceError, RegionParkedError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Attempt, ElementName, Epoch
from holdfast.language.annotations import TIMED
from holdfast.protocol import commands, messages
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.turning_points import Turn
from holdfast.runtime.element.epochs.storing import OnTheWay, Pinned
from holdfast.runtime.element.region_life import RegionLife
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.failures import Cause, is_fatal, is_no_space, may_pass, parked_error, story_of
from holdfast.runtime.links.connection import Signals
from holdfast.runtime.links.parked_input import keep_input
from holdfast.runtime.metrics import RegionMetrics
from holdfast.runtime.region.aware_trigger import trigger_of
from holdfast.runtime.region.causes import cause_after
from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.region.fallback import look
from holdfast.runtime.region.restoring import Restoring
from holdfast.runtime.region.savepoint_requests import Naming, Request
from holdfast.runtime.region.space import Space
from holdfast.runtime.region.standing import standing, tell_overdue, tell_visible, who_holds_up
from holdfast.runtime.region.timers import EpochTime, Timers
from holdfast.runtime.region.triggers import IdleTime
from holdfast.runtime.telling import events
from holdfast.runtime.telling.feed import Announce

MAX_BACKOFF_S = 30.0
WAIT_S = 1.0
"""At most, for the next event; whoever has one tells it."""


class Region:
    """The rim around one region's controller. Created before its elements; `lives` are filled in by the job."""

    def __init__(
        self,
        plan: RegionPlan,
        epochs: RegionEpochs,
        signals: Signals,
        clock: Clock,
        announce: Announce,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.plan = plan
        self.lives: dict[ElementName, RegionLife] = {}
        period = plan.settings.period_s if plan.settings.trigger in TIMED else float("inf")
        self.metrics = RegionMetrics(plan.name, clock, period)
        self.controller = RegionController(
            plan.shape, plan.settings.mode, plan.settings.max_consecutive_resets
        )
        self._epochs = epochs
        self._signals = signals
        self._clock = clock
        self.announce = announce
        self._on_fatal = on_fatal
        self._events: deque[messages.ControllerEvent | Callable[[], None]] = deque()
        self._timers: Timers[messages.ControllerEvent | Callable[[], None]] = Timers(clock)
        self._saved: messages.ControllerRecord | None = None
        self._start: messages.Start | None = None
        self.begun: float | None = None
        """When the epoch under way, or the last one, began."""
        self._epoch_time = EpochTime(plan.settings.drain_timeout_s)
        self._ending = False
        self.stops_at_end = False
        self._final_requested: Attempt | None = None
        self._cause = Cause()
        self._last_acked: ElementName | None = None
        self.restoring = Restoring(plan, epochs, clock, announce)
        self.change: events.TopologyChanged | None = None
        self.naming = Naming(plan.name, epochs.savepoints, announce)
        self._space = Space(plan.name, epochs, announce, partial(self._timers.set, "space"))
        due, wake = partial(self.tell, messages.EpochDue(if_new=True)), partial(self._timers.set, "period")
        self.trigger = trigger_of(plan, clock, announce, due, wake, lambda: self.controller.is_idle)
        later = partial(self._timers.set, "retention")
        parts = (self.controller, epochs, self.lives, self.restoring.budget)
        self._idle = IdleTime(*parts, clock, self.tell, later)
        self.done = threading.Event()

    # --- RegionSide: what loops ask -----------------------------------------------------------------------------

    @property
    def epoch(self) -> Epoch:
        return INITIAL_EPOCH if self.manifest is None else self.manifest.epoch

    @property
    def is_held(self) -> bool:
        """An element takes nothing until its pin: who sends to it must not wait for space."""
        return any(life.machine.is_held for life in self.lives.values())

    def tell(self, event: messages.ControllerEvent | Callable[[], None]) -> None:
        with self._signals.condition:
            self._events.append(event)
            self._signals.condition.notify_all()

    def epoch_wanted(self) -> None:
        self.tell(messages.EpochDue())

    def turned(self, element: ElementName, turn: Turn) -> None:
        self.tell(partial(self.trigger.turned, element, turn))

    def rows_replayed(self, rows: int) -> None:
        self.metrics.rows_replayed += rows

    def fatal(self, error: BaseException) -> None:
        self._on_fatal(error)

    def upload(self, pinned: Pinned, worker: Worker) -> ElementPart:
        return self._epochs.upload(pinned, worker)

    def restore(self, worker: Worker, epoch: Epoch, attempt: Attempt) -> OnTheWay:
        return self._epochs.restore(worker, epoch, attempt)

    def look(self) -> None:
        """Find the newest epoch and verify all that restoring it reads. Changes nothing; comes before `run`."""
        self.restoring.begin()
        found = look(self._epochs, [life.loop.worker for life in self.lives.values()])
        if found.withdrawn is not None:
            self.announce(events.EpochWithdrawn(self.plan.name, found.withdrawn, found.epoch, found.reason))
        self.metrics.epoch = found.epoch
        self.change = self._epochs.change()
        self._start = messages.Start(found.epoch, found.record, outdated=self._epochs.is_outdated)

    # --- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            assert self._start is not None
            self._epochs.withdraw()
            self._handle(self._start)
            while not self.done.is_set() and not self._ending:
                event = self._next_event()
                if event is not None:
                    self._handle(event)
        except BaseException as error:
            self._on_fatal(error)
        finally:
            self.trigger.halt()
            self.naming.give_up("the run ended before it")
            self.done.set()
            self._signals.notify()

    def stop_when_possible(self) -> None:
        """Establish a final epoch and end."""
        self.stops_at_end = False
        self.tell(messages.EpochDue(final=True))

    def finish_if_exhausted(self) -> None:
        """For bounded runs: when every element ran out of input, the final epoch may come."""
        # Asked once per attempt: a reset that crosses this request voids it, and the next attempt asks anew.
        attempt = self.controller.record.attempt
        if self.controller.phase is not ControllerPhase.RUNNING or self._final_requested == attempt:
            return
        if all(life.loop.exhausted for life in self.lives.values() if life.is_fed_from_outside):
            self._final_requested = attempt
            # Operators that have points are given input until they are at one, if there is some.
            self.tell(
                messages.EpochDue(final=True, sticky=self.stops_at_end and bool(self.plan.shape.conditional))
            )

    def stop_at_end(self) -> None:
        """Establish a final epoch and end when nothing more comes in from outside of the region. Its sources are read no more."""
        self.stops_at_end = True
        for life in self.lives.values():
            life.end_with_borders(reads_on=bool(self.plan.shape.conditional))

    def end(self) -> None:
        """Leave at once, whatever is under way (the run failed or was told to abort)."""
        self._ending = True
        self._signals.notify()

    def resume(self) -> None:
        self.tell(messages.ResumeRequested())

    def savepoint(self, name: str, id: str) -> Request:
        """Establish an epoch with nothing in flight, and name it."""
        request = self.naming.ask(name, id)
        self.tell(messages.EpochDue(drained=True))
        return request

    @property
    def manifest(self) -> Manifest | None:
        """The newest published epoch."""
        return self._epochs.current

    @property
    def parked(self) -> bool:
        return self.controller.phase is ControllerPhase.PARKED

    def status(self, now: float) -> dict[str, Any]:
        return standing(self, now, self._cause.reason)

    # --- events and timers --------------------------------------------------------------------------------------

    def _next_event(self) -> messages.ControllerEvent | None:
        with self._signals.condition:
            what = self._events.popleft() if self._events else self._timers.due()
            if what is None:
                self._clock.wait(self._signals.condition, self._timers.wait_s(WAIT_S))
        if callable(what):
            what()
            return None
        return what

    def _handle(self, event: messages.ControllerEvent) -> None:
        if isinstance(event, messages.ElementFailed):
            own = "" if self.plan.settings.retries_own else event.own
            reached = sum(life.rereading.since_restore for life in self.lives.values())
            event = replace(event, reached=reached, own=own)
        elif isinstance(event, messages.DrainTimedOut):
            event = replace(event, held_up_by=self._epoch_time.over(who_holds_up(self)))
        self._cause = cause_after(event, self._cause, self.lives)
        if isinstance(event, messages.Acked):
            self._last_acked = event.element
        for command in self.controller.handle(event):
            self._perform(command)

    def _perform(self, command: commands.ControllerCommand) -> None:
        match command:
            case commands.Persist(record):
                self._persist(record)
            case messages.BeginEpoch() | messages.Prepare():
                self._begin_epoch(command)
            case messages.Resume() | messages.GoOn():
                self._go_on(command)
            case messages.BeginReset():
                self._begin_reset(command)
            case commands.Publish(epoch, attempt, parts):
                self._publish(epoch, attempt, parts)
            case commands.CommitSinks(epoch):
                self._commit(epoch)
            case commands.AbortEpoch(epoch):
                self._timers.cancel("drain")
                self.announce(events.EpochAborted(self.plan.name, epoch, self._cause.reason))
            case commands.StartDrainTimer(epoch, attempt):
                self._time_epoch(epoch, attempt)
            case commands.StartResetTimer(epoch, attempt):
                self._timers.set(
                    "reset", self.plan.settings.reset_timeout_s, messages.ResetTimedOut(epoch, attempt)
                )
            case commands.AwaitSpace(reason):
                self._await_space(reason)
            case commands.Park(reason):
                self._park(reason)
            case commands.Stop(epoch):
                self.announce(events.RegionStopped(self.plan.name, epoch))
                self.done.set()

    # --- performing commands ------------------------------------------------------------------------------------

    def _persist(self, record: messages.ControllerRecord) -> None:
        if record == self._saved:
            return
        while True:
            try:
                self._epochs.save(record)
                break
            except NoSpaceError as error:
                if self._ending:
                    return
                self.wait_for_space(str(error), lambda: False)
        self._saved = record

    def wait_for_space(self, reason: str, give_up: Callable[[], bool]) -> None:
        """Wait in the calling thread until store and sinks accept writes again, or `give_up()` is true."""
        self._cause = Cause(reason)
        self._space.wait(reason, lambda: self._ending or give_up(), self.done.wait)

    def _begin_epoch(self, command: messages.BeginEpoch | messages.Prepare) -> None:
        if isinstance(command, messages.BeginEpoch):
            # Where nothing can be drained, what is on its way is stored with the savepoint.
            self.naming.begin(drained=command.style == "drain" or not self.plan.shape.drains)
        self.trigger.epoch_begun()
        self._send(command)

    def _time_epoch(self, epoch: Epoch, attempt: Attempt) -> None:
        """The epoch begins, or what has to be ready for it: tell of it when it takes long, give it up when it takes too long."""
        self.begun = self._clock.monotonic()
        self._timers.set("drain", self._epoch_time.limit_s, messages.DrainTimedOut(epoch, attempt))
        self._timers.set("overdue", self._epoch_time.overdue_s, partial(tell_overdue, self, epoch))

    def _go_on(self, command: messages.Resume | messages.GoOn) -> None:
        if isinstance(command, messages.GoOn):
            self._timers.cancel("reset")
            figures = self.restoring.done(command.epoch)
            self.announce(events.Restored(self.plan.name, command.epoch, command.attempt, **figures))
            self.trigger.go_on()
            self._idle.went_on(command.epoch, command.attempt)
            if self.naming.waiting:
                self.tell(messages.EpochDue(drained=True))
        self._send(command)

    def _begin_reset(self, command: messages.BeginReset) -> None:
        self.restoring.begin()
        self.trigger.halt()
        for life in self.lives.values():
            life.pause(False)
            life.borders.throw_away(False)
        if command.consecutive == 1:
            self._timers.set("patience", self.plan.settings.retry_for_s, messages.PatienceOver())
        about = (command.epoch, command.attempt, command.consecutive, self._cause.reason, self._cause.element)
        self.announce(events.ResetBegun(self.plan.name, *about))
        # Elements that are not starts may be deep in a job that no longer matters.
        for life in self.lives.values():
            life.loop.interrupt()
        if command.consecutive <= 1:
            self._send(command)
        else:
            delay = min(MAX_BACKOFF_S, 0.1 * 2.0 ** min(command.consecutive - 2, 20))
            self._timers.set("backoff", delay, lambda: self._send(command))

    def _send(self, command: messages.ToElements) -> None:
        for name in command.elements:
            self.lives[name].send(command)

    def _publish(self, epoch: Epoch, attempt: Attempt, parts: Mapping[ElementName, Any]) -> None:
        self._timers.cancel("drain")
        try:
            fp("drain.all_acked")
            added = self._epochs.publish(epoch, attempt, parts, self._clock.wall())
        except Exception as error:
            # Nothing of the epoch counts yet: whatever went wrong may be tried again, unless the store itself failed.
            if is_fatal(error):
                raise
            self.tell(messages.PublishFailed(epoch, is_no_space(error), story_of(error), may_pass(error)))
            return
        self._cause = Cause()
        self._epoch_time.published()
        ms = round((self._clock.monotonic() - (self.begun or 0.0)) * 1000, 1)
        forms = [op.form.kind for part in parts.values() for op in part.operators.values() if op.form]
        figures = (ms, added, self.restoring.predicted(), forms.count("base"), forms.count("delta"))
        more = (self._last_acked, self._epochs.whole_bytes)
        self.announce(events.EpochPublished(self.plan.name, epoch, attempt, *figures, *more))
        self.naming.published(epoch, self._clock.wall())
        for life in self.lives.values():
            life.published(epoch)
        self.tell(messages.Published(epoch))

    def _commit(self, epoch: Epoch) -> None:
        try:
            self._epochs.make_visible(epoch)
        except Exception as error:
            if is_fatal(error):
                raise
            if is_no_space(error):
                self.wait_for_space(str(error), lambda: False)
            self.tell(messages.CommitFailed(epoch, story_of(error), may_pass(error)))
            return
        tell_visible(self, epoch)
        self._idle.shown(epoch)
        self.trigger.epoch_over()
        self.tell(messages.Committed(epoch))

    def _await_space(self, reason: str) -> None:
        self._cause = Cause(reason)
        self.trigger.halt()
        for life in self.lives.values():
            life.pause(True)
        self._space.watch(reason, self._go_on_with_space)

    def _go_on_with_space(self) -> None:
        for life in self.lives.values():
            life.pause(False)
        self.tell(messages.SpaceReturned())

    def _park(self, reason: str) -> None:
        self._cause = replace(self._cause, reason=reason or self._cause.reason)
        self.trigger.halt()
        for life in self.lives.values():
            life.pause(True)
            life.loop.interrupt()
            life.borders.throw_away(True)
        keep_input(self, partial(self._timers.set, "kept"))
        self.announce(events.RegionParked(self.plan.name, self._cause.reason))
        self._signals.notify()

    @property
    def cause(self) -> BaseException | None:  # of the last failure, if an element had one
        return self._cause.error

    def parked_error(self) -> RegionParkedError:
        about = (self.controller.record.consecutive_resets, self._cause, self.epoch)
        return parked_error(self.plan.name, *about, self.controller.repeated)
