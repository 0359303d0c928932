"""The element's side of the region protocol: markers in; drain, pin, restore out.

One machine per element. The element's loop owns it, is single-threaded, and feeds events only between two steps. It
performs the returned commands in order and synchronously, except `Upload`, which runs in the background and is
answered by an event. If a command raises, the loop drops the rest of the list and feeds `Broke`.

    new ──reset──▶ resetting ──all markers──▶ restored ──GoOn──▶ running
                                                 │                  │
                                                 └───first marker───┤
                                                                    ▼
    running ◀──token: all markers here or overtaking, pin────── aligning ◀──next epoch──┐
                                                                    │                    │
                                                           drain: data markers           │
                                                                    ▼                    │
    running ◀──Resume── paused ◀──control markers, pin────────── drained                 │
                          └──────────────────────────────────────────────────────────────┘
    any phase ──newer reset──▶ resetting
    any phase ──Broke──▶ broken, which only a newer reset ends

A token may overtake the batches that wait ahead of it in a queue: they are captured with the epoch, and the element gets
them first after a restore. So an epoch does not wait for a slow element.

What the loop does with what lies at the head of a link:

    batch    `fate(link)`: process it, let it wait, or drop it
    marker   `delivers(link, marker)`: feed it as MarkerArrived, or let it wait. A reset marker never waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from holdfast.ids import FIRST_ATTEMPT, INITIAL_EPOCH, Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol.messages import (
    Acked,
    BeginEpoch,
    BeginReset,
    Broke,
    ElementCommand,
    ElementEvent,
    ElementFailed,
    Forward,
    GoOn,
    KeepOutputs,
    Marker,
    MarkerArrived,
    Pin,
    ResetAcked,
    Restore,
    Resume,
    RunDrain,
    Tell,
    TokensWait,
    Upload,
    UploadBroke,
    UploadFailed,
    UploadFinished,
)
from holdfast.protocol.phases import Phases
from holdfast.protocol.shape import MarkerKind, RegionShape

Fate = Literal["process", "wait", "drop"]

NO_LINKS: frozenset[ConnectionId] = frozenset()


class ElementPhase(StrEnum):
    NEW = "new"  # knows nothing; only a reset gives it a state
    RESETTING = "resetting"  # a reset is under way; batches sent before it are dropped
    RESTORED = "restored"  # state is that of an epoch; sources wait for GoOn
    RUNNING = "running"
    ALIGNING = "aligning"  # an epoch is under way; links that delivered its marker wait
    DRAINED = "drained"  # drain style: own marker is out, control links still have to deliver theirs
    PAUSED = "paused"  # drain style: pinned; sources wait for Resume
    BROKEN = "broken"  # state is worthless; only a newer reset helps


_N, _T, _S, _R = ElementPhase.NEW, ElementPhase.RESETTING, ElementPhase.RESTORED, ElementPhase.RUNNING
_A, _D, _P, _B = ElementPhase.ALIGNING, ElementPhase.DRAINED, ElementPhase.PAUSED, ElementPhase.BROKEN

ELEMENT_MOVES: Mapping[ElementPhase, frozenset[ElementPhase]] = {
    _N: frozenset({_T, _B}),
    _T: frozenset({_T, _S, _B}),
    _S: frozenset({_R, _A, _T, _B}),
    _R: frozenset({_A, _T, _B}),
    _A: frozenset({_D, _R, _T, _B}),
    _D: frozenset({_P, _T, _B}),
    _P: frozenset({_R, _A, _T, _B}),
    _B: frozenset({_T}),
}

_STATELESS = frozenset({_N, _T, _B})
"""Phases in which the element has no state a batch could be applied to."""


class ElementMachine:
    """Decides what one element does about epochs and resets.

    `attempt`: the newest attempt known when the machine is made. Whoever replaces a machine while messages of earlier
    attempts may still be under way passes it, so that a late reset cannot take the new machine back.
    """

    def __init__(self, shape: RegionShape, element: ElementName, attempt: Attempt = FIRST_ATTEMPT) -> None:
        self._element = element
        self._data = shape.data_inputs(element)
        self._control = shape.control_inputs(element)
        self._has_outputs = bool(shape.outputs(element))
        self._is_start = not self._data
        self._phases = Phases(f"element {element}", ELEMENT_MOVES, ElementPhase.NEW)
        self._attempt = attempt
        self._epoch = INITIAL_EPOCH  # restored or pinned last
        self._under_way: tuple[Epoch, MarkerKind] | None = None  # epoch that is aligning, and its style
        self._delivered = NO_LINKS  # links that delivered the marker of the epoch or reset under way
        self._forwarded = False  # the reset marker is in the output links
        self._uploading: Epoch | None = None
        self.ignored = 0

    # --- what the loop asks between steps -----------------------------------------------------------------------

    @property
    def phase(self) -> ElementPhase:
        return self._phases.current

    @property
    def taken(self) -> set[tuple[ElementPhase, ElementPhase]]:
        """Moves made so far."""
        return self._phases.taken

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    @property
    def may_read_sources(self) -> bool:
        return self._phases.current is ElementPhase.RUNNING

    @property
    def may_step(self) -> bool:
        """Batches may be applied to the state. While it is False, batches on links that do not wait are dropped."""
        return self._phases.current not in _STATELESS

    @property
    def awaited(self) -> tuple[Marker, frozenset[ConnectionId]] | None:
        """The token under way and the links that have not delivered it; None: there is none."""
        if self._under_way is None or self._under_way[1] != "token":
            return None
        token = Marker("token", self._under_way[0], self._attempt)
        return token, (self._data | self._control) - self._delivered

    @property
    def blocked_links(self) -> frozenset[ConnectionId]:
        """Links whose batches and epoch markers wait: what lies there comes after the epoch or reset under way."""
        return self._delivered

    def fate(self, link: ConnectionId) -> Fate:
        """What becomes of a batch at the head of `link`."""
        if link in self.blocked_links:
            return "wait"
        return "process" if self.may_step else "drop"

    def delivers(self, link: ConnectionId, marker: Marker) -> bool:
        """Whether a marker at the head of `link` is fed to this machine now."""
        return marker.kind == "reset" or link not in self.blocked_links

    # --- the one method that changes state ------------------------------------------------------------------------

    def handle(self, event: ElementEvent) -> list[ElementCommand]:
        self._phases.note(event)
        match event:
            case MarkerArrived(link, marker) if marker.kind == "reset":
                return self._on_reset_marker(link, marker)
            case MarkerArrived(link, marker):
                return self._on_epoch_marker(link, marker)
            case BeginEpoch():
                return self._on_begin_epoch(event)
            case TokensWait():
                return self._on_tokens_wait(event)
            case BeginReset():
                return self._on_begin_reset(event)
            case Resume():
                return self._on_resume(event)
            case GoOn():
                return self._on_go_on(event)
            case UploadFinished() | UploadBroke():
                return self._on_upload(event)
            case Broke():
                return self._on_broke(event)

    def _ignore(self) -> list[ElementCommand]:
        self.ignored += 1
        return []

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _on_begin_epoch(self, event: BeginEpoch) -> list[ElementCommand]:
        addressed = self._is_start or event.style == "token"
        is_known = self._under_way == (event.epoch, event.style)
        if not addressed or is_known or not self._is_news(event.epoch, event.attempt):
            return self._ignore()
        return self._join(event.epoch, event.style) + self._advance_epoch()

    def _on_epoch_marker(self, link: ConnectionId, marker: Marker) -> list[ElementCommand]:
        if not self._is_news(marker.epoch, marker.attempt) or link in self._delivered:
            return self._ignore()
        commands = self._join(marker.epoch, marker.kind)
        self._delivered |= {link}
        return commands + self._advance_epoch()

    def _is_news(self, epoch: Epoch, attempt: Attempt) -> bool:
        return attempt == self._attempt and epoch > self._epoch and self.may_step

    def _join(self, epoch: Epoch, style: MarkerKind) -> list[ElementCommand]:
        """Begin to take part in `epoch`, unless this element does already."""
        if self._under_way == (epoch, style):
            return []
        if self._under_way is not None:
            raise self._phases.violation(f"{style} epoch {epoch} while {self._under_way} is under way")
        self._phases.move(ElementPhase.ALIGNING)
        self._under_way = (epoch, style)
        self._delivered = NO_LINKS
        if style == "token" and self._has_outputs:
            return [KeepOutputs(epoch), Forward(Marker("token", epoch, self._attempt))]
        return []

    def _advance_epoch(self) -> list[ElementCommand]:
        assert self._under_way is not None
        epoch, style = self._under_way
        if style == "token":
            return self._advance_token(epoch)
        return self._advance_drain(epoch)

    def _advance_token(self, epoch: Epoch) -> list[ElementCommand]:
        if not self._has_data_markers() or not self._has_control_markers():
            return []
        return [RunDrain(epoch), *self._pin(epoch, ElementPhase.RUNNING)]

    def _advance_drain(self, epoch: Epoch) -> list[ElementCommand]:
        commands: list[ElementCommand] = []
        if self.phase is ElementPhase.ALIGNING and self._has_data_markers():
            self._phases.move(ElementPhase.DRAINED)
            commands += [RunDrain(epoch), *self._forward("drain", epoch)]
        # Control links may close a cycle, so their markers can only be asked for once ours is out; what they bring
        # until then belongs to the epoch and must be in the state before the pin.
        if self.phase is ElementPhase.DRAINED and self._has_control_markers():
            commands += self._pin(epoch, ElementPhase.PAUSED)
        return commands

    def _on_tokens_wait(self, event: TokensWait) -> list[ElementCommand]:
        awaited = self.awaited
        if awaited is None or (event.epoch, event.attempt) != (awaited[0].epoch, awaited[0].attempt):
            return self._ignore()
        missing = awaited[1]
        if not missing or not missing <= event.links:
            return self._ignore()
        return [RunDrain(event.epoch), *self._pin(event.epoch, ElementPhase.RUNNING, missing)]

    def _pin(
        self, epoch: Epoch, then: ElementPhase, captured: frozenset[ConnectionId] = NO_LINKS
    ) -> list[ElementCommand]:
        self._phases.move(then)
        self._epoch = epoch
        self._uploading = epoch
        self._under_way = None
        self._delivered = NO_LINKS
        return [Pin(epoch, self._attempt, captured), Upload(epoch, self._attempt)]

    def _has_data_markers(self) -> bool:
        return self._data <= self._delivered

    def _has_control_markers(self) -> bool:
        return self._control <= self._delivered

    def _forward(self, kind: MarkerKind, epoch: Epoch) -> list[ElementCommand]:
        return [Forward(Marker(kind, epoch, self._attempt))] if self._has_outputs else []

    def _on_resume(self, event: Resume) -> list[ElementCommand]:
        is_current = event.attempt == self._attempt and event.epoch == self._epoch
        if not is_current or self.phase is not ElementPhase.PAUSED:
            return self._ignore()
        self._phases.move(ElementPhase.RUNNING)
        return []

    def _on_upload(self, event: UploadFinished | UploadBroke) -> list[ElementCommand]:
        if event.attempt != self._attempt or event.epoch != self._uploading or not self.may_step:
            return self._ignore()
        self._uploading = None
        if isinstance(event, UploadFinished):
            return [Tell(Acked(self._element, event.epoch, event.attempt, event.part))]
        told = (event.epoch, event.attempt, event.no_space, event.reason, event.may_pass)
        return [Tell(UploadFailed(self._element, *told))]

    # --- resets and failures --------------------------------------------------------------------------------------

    def _on_begin_reset(self, event: BeginReset) -> list[ElementCommand]:
        # A start may know already, from a control link whose marker was faster than the controller.
        if not self._is_start or event.attempt <= self._attempt:
            return self._ignore()
        self._joins_reset(event.epoch, event.attempt)
        return self._advance_reset()

    def _on_reset_marker(self, link: ConnectionId, marker: Marker) -> list[ElementCommand]:
        if not self._joins_reset(marker.epoch, marker.attempt) or link in self._delivered:
            return self._ignore()
        self._delivered |= {link}
        return self._advance_reset()

    def _joins_reset(self, epoch: Epoch, attempt: Attempt) -> bool:
        """True if (epoch, attempt) is the reset under way, beginning it if it is newer than all before."""
        if attempt <= self._attempt:
            return attempt == self._attempt and self.phase is ElementPhase.RESETTING
        self._phases.move(ElementPhase.RESETTING)
        self._attempt = attempt
        self._epoch = epoch
        self._under_way = None
        self._uploading = None
        self._delivered = NO_LINKS
        self._forwarded = False
        return True

    def _advance_reset(self) -> list[ElementCommand]:
        commands: list[ElementCommand] = []
        if not self._forwarded and self._has_data_markers():
            self._forwarded = True
            commands += self._forward("reset", self._epoch)
        if self._forwarded and self._has_control_markers():
            self._phases.move(ElementPhase.RESTORED)
            self._delivered = NO_LINKS
            commands.append(Restore(self._epoch, self._attempt))
            commands.append(Tell(ResetAcked(self._element, self._epoch, self._attempt)))
        return commands

    def _on_go_on(self, event: GoOn) -> list[ElementCommand]:
        # Only a restored element waits for it: a late one must not open the sources of an element paused since.
        if event.attempt != self._attempt or self.phase is not ElementPhase.RESTORED:
            return self._ignore()
        self._phases.move(ElementPhase.RUNNING)
        return []

    def _on_broke(self, event: Broke) -> list[ElementCommand]:
        if self.phase is ElementPhase.BROKEN:
            return self._ignore()
        self._phases.move(ElementPhase.BROKEN)
        self._under_way = None
        self._uploading = None
        self._delivered = NO_LINKS
        return [Tell(ElementFailed(self._element, self._attempt, event.reason, event.may_pass))]
