"""The controller of one region: establishes epochs, resets, pauses, parks.

One machine per region; its owner feeds events one at a time and performs the returned commands in order. A list that
acts begins with `Persist`, so a controller that dies anywhere in it is rebuilt from its record and `Start`.

    new ──start──▶ resetting ◀────────failure, commit failed───────────────────────────────────┐
                   │  ▲  └─all restored─▶ running ──due──▶ establishing ──all acked─▶ publishing ──▶ committing
                   │  │                      ▲                  │                         │             │   │
                   │  └──space returned── paused ◀──no space────┴─────────no space────────┘             │   │
                   ▼                         └───────────────────────committed──────────────────────────┘   │
                 parked ──a person resumes──▶ resetting                                stopped ◀──final─────┘

`parked` is reached from every phase that resets, once the resets without progress are used up: a published epoch is
progress, and so is to come further in the input than ever since. A cause that may pass by itself (an outage) is given
the user's time as well. A failure of the user's own code that comes again, at the same rows, is not tried a third time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from holdfast.ids import FIRST_ATTEMPT, INITIAL_EPOCH, Attempt, ElementName, Epoch
from holdfast.protocol import commands, messages
from holdfast.protocol.commands import ControllerCommand, UnderWay
from holdfast.protocol.messages import ControllerEvent
from holdfast.protocol.phases import Machine
from holdfast.protocol.shape import STYLE_OF, MarkerKind, Mode, RegionShape
from holdfast.protocol.timing.wishes import Wishes


class ControllerPhase(StrEnum):
    NEW = "new"
    RESETTING = "resetting"  # elements restore the newest published epoch
    RUNNING = "running"
    ESTABLISHING = "establishing"  # markers travel, pins are uploaded
    PUBLISHING = "publishing"  # every part is durable; the manifest is being written, its outcome unknown
    COMMITTING = "committing"  # the epoch exists; sinks make it visible
    PAUSED = "paused"  # no space; the last published epoch is intact
    PARKED = "parked"  # resets used up; waits for a person
    STOPPED = "stopped"  # the final epoch is committed


_N, _T, _R = ControllerPhase.NEW, ControllerPhase.RESETTING, ControllerPhase.RUNNING
_E, _U, _C = ControllerPhase.ESTABLISHING, ControllerPhase.PUBLISHING, ControllerPhase.COMMITTING
_P, _K, _S = ControllerPhase.PAUSED, ControllerPhase.PARKED, ControllerPhase.STOPPED

CONTROLLER_MOVES: Mapping[ControllerPhase, frozenset[ControllerPhase]] = {
    _N: frozenset({_T}),
    _T: frozenset({_T, _R, _K}),
    _R: frozenset({_E, _T, _K}),
    _E: frozenset({_U, _T, _P, _K}),
    _U: frozenset({_C, _T, _P, _K}),
    _C: frozenset({_R, _T, _S, _K}),
    _P: frozenset({_T}),
    _K: frozenset({_T}),
    _S: frozenset(),
}


_AT_WORK = frozenset({_R, _E, _U, _C})
"""Phases in which sources are where their elements left them: no reset is under way or certain."""


class RegionController(Machine[ControllerPhase]):
    """Decides what a region does next.

    `mode`: how ordinary epochs are established; a final one always drains.
    `max_consecutive_resets`: resets allowed without progress before the region is parked.
    """

    def __init__(self, shape: RegionShape, mode: Mode, max_consecutive_resets: int) -> None:
        super().__init__(f"controller of {shape.name}", CONTROLLER_MOVES, ControllerPhase.NEW)
        self._shape = shape
        self._mode = mode
        self._max_consecutive_resets = max_consecutive_resets
        self._published = INITIAL_EPOCH
        self._next_epoch = Epoch(INITIAL_EPOCH + 1)
        self._attempt = FIRST_ATTEMPT
        self._consecutive_resets = 0
        self._furthest = 0  # rows read since the last published epoch, at most
        self._is_patient = True  # causes that may pass are waited for
        self._epoch: Epoch | None = None  # under way and not known to be published
        self._is_final = False  # the epoch under way, or just published, is the final one
        self._style: MarkerKind = "drain"
        self._waiting: set[ElementName] = set()  # elements that still have to answer
        self._parts: dict[ElementName, object] = {}
        self._unready: list[ElementName] = []  # have to be ready before the epoch begins, the next one last
        self._wishes = Wishes()
        self._failure: str | None = None  # happened while an outcome was unknown
        self.repeated = False  # parked because the user's code failed twice in the same way
        # Of the user's code, since the last published epoch.
        self._own_failure: tuple[ElementName, str] | None = None

    @property
    def record(self) -> messages.ControllerRecord:
        """What must survive this controller."""
        is_parked = self.phase is ControllerPhase.PARKED
        return messages.ControllerRecord(
            self._published, self._next_epoch, self._attempt, self._consecutive_resets, is_parked
        )

    @property
    def is_idle(self) -> bool:
        """It is at work, and the newest epoch has all there is: the next one comes when something happens, or somebody asks."""
        return self.phase is ControllerPhase.RUNNING and not self._wishes.is_new(self._published)

    @property
    def under_way(self) -> UnderWay | None:
        """For people: the epoch that is being established."""
        if self._epoch is None:
            return None
        asked = self._shape.elements if self._style == "token" else self._shape.starts()
        asked = asked if not self._unready else ()
        return UnderWay(self._epoch, self._style, frozenset(self._waiting), frozenset(asked))

    # --- the one method that changes state ------------------------------------------------------------------------

    def handle(self, event: ControllerEvent) -> list[ControllerCommand]:
        self._note(event)
        match event:
            case messages.Acked():
                return self._on_acked(event)
            case messages.ResetAcked():
                return self._on_reset_acked(event)
            case messages.EpochDue():
                return self._on_due(event)
            case messages.NewSince():
                return self._on_new(event)
            case messages.ElementFailed():
                return self._on_element_failed(event)
            case messages.Ready():
                return self._on_ready(event)
            case messages.Published(epoch):
                return self._on_published(epoch)
            case messages.PublishFailed():
                return self._on_publish_failed(event)
            case messages.Committed(epoch):
                return self._on_committed(epoch)
            case messages.CommitFailed():
                return self._on_commit_failed(event)
            case messages.UploadFailed():
                return self._on_upload_failed(event)
            case messages.DrainTimedOut():
                return self._on_drain_timed_out(event)
            case messages.ResetTimedOut(_, attempt):
                return self._on_reset_timed_out(attempt)
            case messages.PatienceOver():
                self._is_patient = False
                return []
            case messages.Start():
                return self._on_start(event)
            case messages.SpaceReturned():
                return self._on_space_returned()
            case messages.ResumeRequested():
                return self._on_resume_requested()

    def _act(self, *then: ControllerCommand) -> list[ControllerCommand]:
        """Commands, after the record that lets a successor know they may have been performed."""
        return [commands.Persist(self.record), *then]

    # --- starting and resetting -------------------------------------------------------------------------------------

    def _on_start(self, event: messages.Start) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.NEW:
            return self._ignore()
        self._published = event.published
        self._next_epoch = Epoch(event.published + 1)
        self._wishes.started(event)
        if event.record is not None:
            self._take_over(event.record)
        return self._reset_to_published()

    def _take_over(self, record: messages.ControllerRecord) -> None:
        """Go on from a predecessor's record. Numbers it may have used are never used again."""
        self._attempt = record.attempt
        self._next_epoch = Epoch(max(record.next_epoch, self._next_epoch))
        # A parked region that is started was started by a person; a predecessor that died between the manifest and
        # the record did publish.
        is_fresh = record.parked or self._published > record.published
        self._consecutive_resets = 0 if is_fresh else record.consecutive_resets

    def _fail(self, reason: str, may_pass: bool = False) -> list[ControllerCommand]:
        """Reset because something failed: counted, and refused when the resets are used up."""
        is_used_up = self._consecutive_resets >= self._max_consecutive_resets
        if is_used_up and not (may_pass and self._is_patient):
            return self._park(reason)
        self._consecutive_resets += 1
        return self._reset_to_published()

    def _progress(self) -> None:
        """The resets so far were not in vain."""
        self._consecutive_resets = 0
        self._is_patient = True
        self._own_failure = None

    def _reset_to_published(self) -> list[ControllerCommand]:
        self._move(ControllerPhase.RESETTING)
        self._attempt = Attempt(self._attempt + 1)
        self._waiting = set(self._shape.elements)
        self._failure = None
        self._wishes.went_back()
        numbers = (self._published, self._attempt)
        begin = messages.BeginReset(*numbers, self._consecutive_resets, self._shape.starts())
        return self._act(*self._abandon_epoch(), commands.StartResetTimer(*numbers), begin)

    def _abandon_epoch(self) -> list[ControllerCommand]:
        if self._epoch is None:
            return []
        abandoned, self._epoch = self._epoch, None
        self._parts = {}
        return [commands.AbortEpoch(abandoned)]

    def _park(self, reason: str, repeated: bool = False) -> list[ControllerCommand]:
        self.repeated = repeated  # first: others look at the phase meanwhile
        self._move(ControllerPhase.PARKED)
        self._failure = None
        return self._act(*self._abandon_epoch(), commands.Park(reason))

    def _on_resume_requested(self) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.PARKED:
            return self._ignore()
        self._progress()
        return self._reset_to_published()

    def _on_reset_acked(self, event: messages.ResetAcked) -> list[ControllerCommand]:
        is_current = self.phase is ControllerPhase.RESETTING and event.attempt == self._attempt
        if not is_current or event.element not in self._waiting:
            return self._ignore()
        self._waiting.discard(event.element)
        if self._waiting:
            return []
        go_on = self._act(messages.GoOn(self._published, self._attempt, self._shape.elements))
        return go_on + self._run()

    def _on_reset_timed_out(self, attempt: Attempt) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.RESETTING or attempt != self._attempt:
            return self._ignore()
        return self._fail(f"reset {attempt} timed out; no answer from {self._silent()}")

    def _silent(self) -> str:
        return ", ".join(sorted(self._waiting))

    # --- establishing -------------------------------------------------------------------------------------------------

    def _on_due(self, event: messages.EpochDue) -> list[ControllerCommand]:
        is_void = self.phase is _S or not self._wishes.wish(event, self.phase in _AT_WORK, self.phase is _K)
        return self._ignore() if is_void else self._begin_if_due()

    def _on_new(self, event: messages.NewSince) -> list[ControllerCommand]:
        if event.attempt != self._attempt:
            return self._ignore()
        self._wishes.lacks(event.epoch)
        return self._begin_if_due()

    def _run(self) -> list[ControllerCommand]:
        """Go on running, or begin what became due meanwhile."""
        self._move(ControllerPhase.RUNNING)
        return self._begin_if_due()

    def _begin_if_due(self) -> list[ControllerCommand]:
        is_free = self.phase is ControllerPhase.RUNNING
        return self._begin_epoch() if is_free and self._wishes.is_due(self._published) else []

    def _begin_epoch(self) -> list[ControllerCommand]:
        self._move(ControllerPhase.ESTABLISHING)
        self._is_final = self._wishes.final
        is_drained = self._is_final or self._wishes.drained
        self._style = "drain" if is_drained else STYLE_OF[self._mode]
        # At the end of the input there are no points to wait for: what is there is drained, and ready or never.
        is_end = self._wishes.end and not self._wishes.stop
        # Where markers cascade, an element gets its input up to the marker, and is ready there or holds the epoch up.
        is_up_to_marker = self._mode in ("drain", "token") and not is_drained
        if not self._shape.drains and not is_end and not is_up_to_marker:
            self._style = "token"
        early = () if is_end else self._asked_early(is_up_to_marker)
        self._unready = [e for e in early if e in self._shape.conditional]
        self._wishes.begun()
        epoch = self._epoch = self._next_epoch
        self._next_epoch = Epoch(epoch + 1)
        self._waiting = set(self._shape.elements)
        self._parts = {}
        return self._act(commands.StartDrainTimer(epoch, self._attempt), self._next_asked(epoch))

    def _asked_early(self, is_up_to_marker: bool) -> tuple[ElementName, ...]:
        """Who may be asked to come to a point first. It takes nothing more until its pin: a marker would never reach it."""
        return self._shape.starts() if is_up_to_marker else self._shape.elements

    def _next_asked(self, epoch: Epoch) -> ControllerCommand:
        """The next element that has to be ready, from the ends of the graph to its starts; then everybody."""
        if self._unready:
            return messages.Prepare(epoch, self._attempt, (self._unready[-1],))
        asked = self._shape.elements if self._style == "token" else self._shape.starts()
        return messages.BeginEpoch(epoch, self._attempt, self._style, asked)

    def _on_ready(self, event: messages.Ready) -> list[ControllerCommand]:
        is_current = self._is_establishing(event.epoch, event.attempt)
        if not is_current or self._unready[-1:] != [event.element]:
            return self._ignore()
        self._unready.pop()
        return self._act(self._next_asked(event.epoch))

    def _is_establishing(self, epoch: Epoch, attempt: Attempt) -> bool:
        is_current = epoch == self._epoch and attempt == self._attempt
        return is_current and self.phase is ControllerPhase.ESTABLISHING

    def _on_acked(self, event: messages.Acked) -> list[ControllerCommand]:
        is_current = self._is_establishing(event.epoch, event.attempt)
        if not is_current or event.element not in self._waiting:
            return self._ignore()
        self._waiting.discard(event.element)
        self._parts[event.element] = event.part
        if self._waiting:
            return []
        self._move(ControllerPhase.PUBLISHING)
        return self._act(commands.Publish(event.epoch, self._attempt, self._parts))

    def _on_upload_failed(self, event: messages.UploadFailed) -> list[ControllerCommand]:
        if not self._is_establishing(event.epoch, event.attempt):
            return self._ignore()
        if event.no_space:
            return self._pause(event.reason)
        return self._fail(
            f"{event.element} could not upload epoch {event.epoch}: {event.reason}", event.may_pass
        )

    def _on_drain_timed_out(self, event: messages.DrainTimedOut) -> list[ControllerCommand]:
        if not self._is_establishing(event.epoch, event.attempt):
            return self._ignore()
        if event.held_up_by:
            return self._fail(f"epoch {event.epoch} timed out; {event.held_up_by}")
        return self._fail(f"epoch {event.epoch} timed out; no answer from {self._silent()}")

    # --- publishing and committing: what happened is found out before anything else is decided -----------------------

    def _on_published(self, epoch: Epoch) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.PUBLISHING or epoch != self._epoch:
            return self._ignore()
        self._move(ControllerPhase.COMMITTING)
        self._published = epoch
        self._epoch = None
        self._parts = {}
        self._furthest = 0
        self._progress()
        goes_on = self._style == "drain" and not self._is_final and self._failure is None
        resume = [messages.Resume(epoch, self._attempt, self._shape.elements)] if goes_on else []
        return self._act(*resume, commands.CommitSinks(epoch))

    def _on_publish_failed(self, event: messages.PublishFailed) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.PUBLISHING or event.epoch != self._epoch:
            return self._ignore()
        if event.no_space:
            return self._pause(event.reason)
        return self._fail(f"epoch {event.epoch} could not be published: {event.reason}", event.may_pass)

    def _on_committed(self, epoch: Epoch) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.COMMITTING or epoch != self._published:
            return self._ignore()
        if self._is_final:
            self._move(ControllerPhase.STOPPED)
            return self._act(commands.Stop(epoch))
        if self._failure is not None:
            return self._fail(self._failure)
        return self._run()

    def _on_commit_failed(self, event: messages.CommitFailed) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.COMMITTING or event.epoch != self._published:
            return self._ignore()
        return self._fail(f"epoch {event.epoch} could not be made visible: {event.reason}", event.may_pass)

    # --- failures and space -------------------------------------------------------------------------------------------

    def _on_element_failed(self, event: messages.ElementFailed) -> list[ControllerCommand]:
        if event.attempt != self._attempt:
            return self._ignore()
        reason = f"{event.element} failed: {event.reason}"
        own = (event.element, event.own) if event.own else None
        is_repeated = own is not None and own == self._own_failure
        if event.reached > self._furthest:
            self._furthest = event.reached
            if self._consecutive_resets:
                self._progress()
        self._own_failure = own
        if self.phase in (ControllerPhase.PUBLISHING, ControllerPhase.COMMITTING):
            self._failure = reason
            return []
        if self.phase in (ControllerPhase.RESETTING, ControllerPhase.RUNNING, ControllerPhase.ESTABLISHING):
            return self._park(reason, True) if is_repeated else self._fail(reason, event.may_pass)
        return self._ignore()  # paused or parked: the reset that ends it heals the element too

    def _pause(self, reason: str) -> list[ControllerCommand]:
        # No Persist: nothing in the record changes here, and a full store could not take it.
        self._move(ControllerPhase.PAUSED)
        self._failure = None
        return [*self._abandon_epoch(), commands.AwaitSpace(reason)]

    def _on_space_returned(self) -> list[ControllerCommand]:
        if self.phase is not ControllerPhase.PAUSED:
            return self._ignore()
        return self._reset_to_published()
