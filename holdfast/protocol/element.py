"""The element's side of the region protocol: markers in; drain, pin, restore out.

One machine per element. The element's loop owns it, is single-threaded, and feeds events only between two steps. It
performs the returned commands in order and synchronously, except `Upload`, which runs in the background and is
answered by an event. If a command raises, the loop drops the rest of the list and feeds `Broke`.

    its phases and moves: element_phases.py

A token may overtake the batches that wait ahead of it in a queue: they are captured with the epoch, and the element gets
them first after a restore. So an epoch does not wait for a slow element.

What the loop does with what lies at the head of a link:

    batch    `fate(link)`: process it, let it wait, or drop it
    marker   `delivers(link, marker)`: feed it as MarkerArrived, or let it wait. A reset marker never waits.
"""

from __future__ import annotations

from typing import Literal

from holdfast.ids import FIRST_ATTEMPT, INITIAL_EPOCH, Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol import messages
from holdfast.protocol.element_phases import ELEMENT_MOVES, STATELESS, ElementPhase
from holdfast.protocol.messages import ElementCommand, ElementEvent
from holdfast.protocol.phases import Machine
from holdfast.protocol.shape import MarkerKind, RegionShape

Fate = Literal["process", "wait", "drop"]

NO_LINKS: frozenset[ConnectionId] = frozenset()


class ElementMachine(Machine[ElementPhase]):
    """Decides what one element does about epochs and resets.

    `attempt`: the newest attempt known when the machine is made. Whoever replaces a machine while messages of earlier
    attempts may still be under way passes it, so that a late reset cannot take the new machine back.
    """

    def __init__(self, shape: RegionShape, element: ElementName, attempt: Attempt = FIRST_ATTEMPT) -> None:
        super().__init__(f"element {element}", ELEMENT_MOVES, ElementPhase.NEW)
        self._element = element
        self._data = shape.data_inputs(element)
        self._control = shape.control_inputs(element)
        self._has_outputs = bool(shape.outputs(element))
        self._is_start = not self._data
        self.attempt = attempt
        self._epoch = INITIAL_EPOCH  # restored or pinned last
        self._under_way: tuple[Epoch, MarkerKind] | None = None  # epoch that is aligning, and its style
        self._delivered = NO_LINKS  # links that delivered the marker of the epoch or reset under way
        self._forwarded = False  # the marker of the reset, or of the cascade, is in the output links
        self._uploading: Epoch | None = None
        self._is_conditional = element in shape.conditional
        self._prepares: Epoch | None = None  # asked to be ready for
        self._is_ready = not self._is_conditional  # its operators may be checkpointed as they are
        self._is_held = False  # what lies in the links comes behind the pin
        self.has_stirred = False  # since its last pin, or its restore; the controller was told

    # --- what the loop asks between steps -----------------------------------------------------------------------

    @property
    def may_read_sources(self) -> bool:
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING)

    @property
    def may_run_threads(self) -> bool:
        """Threads of operators may change state and submit: neither drained nor pinned, and with a state."""
        is_aligning = self.phase is ElementPhase.ALIGNING and not self._is_held
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING) or is_aligning

    @property
    def awaits_operators(self) -> messages.OperatorsReady | None:
        """To be fed as soon as all operators may be checkpointed; None: nobody waits for that."""
        if self.phase is ElementPhase.READYING and self._prepares is not None:
            return messages.OperatorsReady(self._prepares, self.attempt)
        is_drained = self.phase is ElementPhase.DRAINED and self._has_control_markers()
        if is_drained and not self._is_ready and self._under_way is not None:
            return messages.OperatorsReady(self._under_way[0], self.attempt)
        return None

    @property
    def is_held(self) -> bool:
        """Tokens go ahead of what waits at once: nothing of it is taken before the pin."""
        return self._is_held

    @property
    def may_step(self) -> bool:
        """Batches may be applied to the state. While it is False, batches on links that do not wait are dropped."""
        return self.phase not in STATELESS

    @property
    def is_storing(self) -> bool:
        """The state stands still until it is durable (style `cascade`)."""
        return self.phase is ElementPhase.STORING

    @property
    def awaited(self) -> tuple[messages.Marker, frozenset[ConnectionId]] | None:
        """The token under way and the links that have not delivered it; None: there is none."""
        if self._under_way is None or self._under_way[1] != "token":
            return None
        token = messages.Marker("token", self._under_way[0], self.attempt)
        return token, (self._data | self._control) - self._delivered

    def has_joined(self, epoch: Epoch) -> bool:
        """True if the element takes part in `epoch`, which it has not pinned yet."""
        return self._under_way is not None and self._under_way[0] == epoch

    def missing(self, epoch: Epoch) -> frozenset[ConnectionId]:
        """Links that have not delivered the marker of `epoch`; none if it is pinned."""
        if self._epoch >= epoch:
            return NO_LINKS
        return (self._data | self._control) - (self._delivered if self.has_joined(epoch) else NO_LINKS)

    @property
    def stores(self) -> Epoch | None:
        """The epoch that is pinned and on its way into the store."""
        return self._uploading

    @property
    def blocked_links(self) -> frozenset[ConnectionId]:
        """Links whose batches and epoch markers wait: what lies there comes after the epoch or reset under way."""
        return self._data | self._control if self.is_storing or self._is_held else self._delivered

    def fate(self, link: ConnectionId) -> Fate:
        """What becomes of a batch at the head of `link`."""
        if link in self.blocked_links:
            return "wait"
        return "process" if self.may_step else "drop"

    def delivers(self, link: ConnectionId, marker: messages.Marker) -> bool:
        """Whether a marker at the head of `link` is fed to this machine now."""
        return marker.kind == "reset" or link not in self.blocked_links

    # --- the one method that changes state ------------------------------------------------------------------------

    def handle(self, event: ElementEvent) -> list[ElementCommand]:
        self._note(event)
        match event:
            case messages.MarkerArrived(link, marker) if marker.kind == "reset":
                return self._on_reset_marker(link, marker)
            case messages.MarkerArrived(link, marker):
                return self._on_epoch_marker(link, marker)
            case messages.BeginEpoch():
                return self._on_begin_epoch(event)
            case messages.TokensWait():
                return self._on_tokens_wait(event)
            case messages.Prepare():
                return self._on_prepare(event)
            case messages.OperatorsReady():
                return self._on_ready(event)
            case messages.Stirred():
                return self._on_stirred()
            case messages.BeginReset():
                return self._on_begin_reset(event)
            case messages.Resume():
                return self._on_resume(event)
            case messages.GoOn():
                return self._on_go_on(event)
            case messages.UploadFinished() | messages.UploadBroke():
                return self._on_upload(event)
            case messages.Broke():
                return self._on_broke(event)

    # --- epochs -----------------------------------------------------------------------------------------------------

    def _on_prepare(self, event: messages.Prepare) -> list[ElementCommand]:
        is_free = self.phase in (ElementPhase.RESTORED, ElementPhase.RUNNING, ElementPhase.PAUSED)
        if not is_free or not self._is_news(event.epoch, event.attempt):
            return self._ignore()
        self._move(ElementPhase.READYING)
        self._prepares = event.epoch
        return []

    def _on_ready(self, event: messages.OperatorsReady) -> list[ElementCommand]:
        if event != self.awaits_operators:
            return self._ignore()
        self._is_ready = True
        if self.phase is not ElementPhase.READYING:
            return self._advance_epoch()
        self._move(ElementPhase.HELD)
        self._is_held = True
        return [messages.Tell(messages.Ready(self._element, event.epoch, event.attempt))]

    def _on_stirred(self) -> list[ElementCommand]:
        if self.has_stirred or not self.may_step:
            return self._ignore()
        self.has_stirred = True
        return [messages.Tell(messages.NewSince(self._epoch, self.attempt))]

    def _unprepared(self) -> None:
        """The state is another one from here, or a pinned one."""
        self.has_stirred = False
        self._prepares = None
        self._is_ready = not self._is_conditional
        self._is_held = False

    def _on_begin_epoch(self, event: messages.BeginEpoch) -> list[ElementCommand]:
        addressed = self._is_start or event.style == "token"
        is_known = self._under_way == (event.epoch, event.style)
        if not addressed or is_known or not self._is_news(event.epoch, event.attempt):
            return self._ignore()
        return self._join(event.epoch, event.style) + self._advance_epoch()

    def _on_epoch_marker(self, link: ConnectionId, marker: messages.Marker) -> list[ElementCommand]:
        if not self._is_news(marker.epoch, marker.attempt) or link in self._delivered:
            return self._ignore()
        commands = self._join(marker.epoch, marker.kind)
        self._delivered |= {link}
        return commands + self._advance_epoch()

    def _is_news(self, epoch: Epoch, attempt: Attempt) -> bool:
        return attempt == self.attempt and epoch > self._epoch and self.may_step

    def _join(self, epoch: Epoch, style: MarkerKind) -> list[ElementCommand]:
        """Begin to take part in `epoch`, unless this element does already."""
        if self._under_way == (epoch, style):
            return []
        if self._under_way is not None:
            raise self._violation(f"{style} epoch {epoch} while {self._under_way} is under way")
        self._move(ElementPhase.ALIGNING)
        self._under_way = (epoch, style)
        self._delivered = NO_LINKS
        self._forwarded = False
        self._is_held = self._is_held and style == "token"
        if style == "token" and self._has_outputs:
            return [
                messages.KeepOutputs(epoch),
                messages.Forward(messages.Marker("token", epoch, self.attempt)),
            ]
        return []

    def _advance_epoch(self) -> list[ElementCommand]:
        assert self._under_way is not None
        epoch, style = self._under_way
        match style:
            case "token":
                return self._advance_token(epoch)
            case "cascade":
                return self._advance_cascade(epoch)
            case _:
                return self._advance_drain(epoch)

    def _advance_token(self, epoch: Epoch) -> list[ElementCommand]:
        if not self._has_data_markers() or not self._has_control_markers():
            return []
        return [messages.RunDrain(epoch), *self._pin(epoch, ElementPhase.RUNNING)]

    def _advance_drain(self, epoch: Epoch) -> list[ElementCommand]:
        commands: list[ElementCommand] = []
        if self.phase is ElementPhase.ALIGNING and self._has_data_markers():
            self._move(ElementPhase.DRAINED)
            commands += [messages.RunDrain(epoch), *self._forward("drain", epoch)]
        # Control links may close a cycle, so their markers can only be asked for once ours is out; what they bring
        # until then belongs to the epoch and must be in the state before the pin.
        if self.phase is ElementPhase.DRAINED and self._has_control_markers() and self._is_ready:
            commands += self._pin(epoch, ElementPhase.PAUSED)
        return commands

    def _advance_cascade(self, epoch: Epoch) -> list[ElementCommand]:
        commands: list[ElementCommand] = []
        if self.phase is ElementPhase.ALIGNING and self._has_data_markers():
            commands.append(messages.RunDrain(epoch))
            if not self._control and self._is_ready:
                return [*commands, *self._pin(epoch, ElementPhase.STORING)]
            self._move(ElementPhase.DRAINED)
            if self._control:
                # The marker may have to come back over a control link before the pin, so it cannot wait for it.
                self._forwarded = True
                commands += self._forward("cascade", epoch)
        if self.phase is ElementPhase.DRAINED and self._has_control_markers() and self._is_ready:
            commands += self._pin(epoch, ElementPhase.STORING)
        return commands

    def _on_tokens_wait(self, event: messages.TokensWait) -> list[ElementCommand]:
        awaited = self.awaited
        if awaited is None or (event.epoch, event.attempt) != (awaited[0].epoch, awaited[0].attempt):
            return self._ignore()
        missing = awaited[1]
        if not missing or not missing <= event.links:
            return self._ignore()
        return [messages.RunDrain(event.epoch), *self._pin(event.epoch, ElementPhase.RUNNING, missing)]

    def _pin(
        self, epoch: Epoch, then: ElementPhase, captured: frozenset[ConnectionId] = NO_LINKS
    ) -> list[ElementCommand]:
        self._move(then)
        self._unprepared()
        self._epoch = epoch
        self._uploading = epoch
        self._under_way = None
        self._delivered = NO_LINKS
        return [messages.Pin(epoch, self.attempt, captured), messages.Upload(epoch, self.attempt)]

    def _has_data_markers(self) -> bool:
        return self._data <= self._delivered

    def _has_control_markers(self) -> bool:
        return self._control <= self._delivered

    def _forward(self, kind: MarkerKind, epoch: Epoch) -> list[ElementCommand]:
        return [messages.Forward(messages.Marker(kind, epoch, self.attempt))] if self._has_outputs else []

    def _on_resume(self, event: messages.Resume) -> list[ElementCommand]:
        is_current = event.attempt == self.attempt and event.epoch == self._epoch
        if not is_current or self.phase is not ElementPhase.PAUSED:
            return self._ignore()
        self._move(ElementPhase.RUNNING)
        return []

    def _on_upload(self, event: messages.UploadFinished | messages.UploadBroke) -> list[ElementCommand]:
        if event.attempt != self.attempt or event.epoch != self._uploading or not self.may_step:
            return self._ignore()
        self._uploading = None
        commands = self._stored(event.epoch) if self.is_storing else []
        if isinstance(event, messages.UploadFinished):
            message = messages.Acked(self._element, event.epoch, event.attempt, event.part)
            return [*commands, messages.Tell(message)]
        failure = (event.epoch, event.attempt, event.no_space, event.reason, event.may_pass)
        return [*commands, messages.Tell(messages.UploadFailed(self._element, *failure))]

    def _stored(self, epoch: Epoch) -> list[ElementCommand]:
        """Go on: it is durable, or the epoch will be given up. Nobody may wait for ever for this element's marker."""
        self._move(ElementPhase.RUNNING)
        return [] if self._forwarded else self._forward("cascade", epoch)

    # --- resets and failures --------------------------------------------------------------------------------------

    def _on_begin_reset(self, event: messages.BeginReset) -> list[ElementCommand]:
        # A start may know already, from a control link whose marker was faster than the controller.
        if not self._is_start or event.attempt <= self.attempt:
            return self._ignore()
        self._joins_reset(event.epoch, event.attempt)
        return self._advance_reset()

    def _on_reset_marker(self, link: ConnectionId, marker: messages.Marker) -> list[ElementCommand]:
        if not self._joins_reset(marker.epoch, marker.attempt) or link in self._delivered:
            return self._ignore()
        self._delivered |= {link}
        return self._advance_reset()

    def _joins_reset(self, epoch: Epoch, attempt: Attempt) -> bool:
        """True if (epoch, attempt) is the reset under way, beginning it if it is newer than all before."""
        if attempt <= self.attempt:
            return attempt == self.attempt and self.phase is ElementPhase.RESETTING
        self._move(ElementPhase.RESETTING)
        self._unprepared()
        self.attempt = attempt
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
            self._move(ElementPhase.RESTORED)
            self._delivered = NO_LINKS
            commands.append(messages.Restore(self._epoch, self.attempt))
            commands.append(messages.Tell(messages.ResetAcked(self._element, self._epoch, self.attempt)))
        return commands

    def _on_go_on(self, event: messages.GoOn) -> list[ElementCommand]:
        # Only a restored element waits for it: a late one must not open the sources of an element paused since.
        if event.attempt != self.attempt or self.phase is not ElementPhase.RESTORED:
            return self._ignore()
        self._move(ElementPhase.RUNNING)
        return []

    def _on_broke(self, event: messages.Broke) -> list[ElementCommand]:
        if self.phase is ElementPhase.BROKEN:
            return self._ignore()
        self._move(ElementPhase.BROKEN)
        self._unprepared()
        self._under_way = None
        self._uploading = None
        self._delivered = NO_LINKS
        return [
            messages.Tell(
                messages.ElementFailed(
                    self._element, self.attempt, event.reason, event.may_pass, own=event.own
                )
            )
        ]
