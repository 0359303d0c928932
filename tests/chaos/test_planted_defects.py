"""The checkers must be able to fail: each defect planted here has to be found within a few hundred schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from many_schedules import first_failure

from holdfast.chaos.outcome import SimulationFailed
from holdfast.chaos.simulator import Simulator
from holdfast.chaos.store import Batch, Captured, Part, SimStore
from holdfast.chaos.world import SimElement, SimLink, World
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol.commands import CommitSinks, ControllerCommand, Persist, Publish
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.element import NO_LINKS, ElementMachine
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.messages import (
    Acked,
    ControllerRecord,
    ElementCommand,
    ElementFailed,
    EpochDue,
    Forward,
    GoOn,
    Marker,
    NewSince,
    OperatorsReady,
    Prepare,
    ResetAcked,
    RunDrain,
    Tell,
    TokensWait,
)

SCHEDULES_MAX = 600

# --- defects of the element machine ----------------------------------------------------------------------------------


class PinsBeforeControlMarkers(ElementMachine):
    def _has_control_markers(self) -> bool:
        return self.phase is not ElementPhase.RESETTING or super()._has_control_markers()


class BlocksNoLinks(ElementMachine):
    @property
    def blocked_links(self) -> frozenset[ConnectionId]:
        return NO_LINKS


class PinsAtTheFirstMarker(ElementMachine):
    def _has_data_markers(self) -> bool:
        return bool(self._delivered) or super()._has_data_markers()


class HeedsOldAttempts(ElementMachine):
    def _is_news(self, epoch: Epoch, attempt: Attempt) -> bool:
        return epoch > self._epoch and self.may_step


class OvertakesWithOneTokenMissing(ElementMachine):
    def _on_tokens_wait(self, event: TokensWait) -> list[ElementCommand]:
        awaited = self.awaited
        missing = NO_LINKS if awaited is None else awaited[1] & event.links
        if awaited is None or not missing or awaited[0].attempt != event.attempt:
            return []
        return [RunDrain(event.epoch), *self._pin(event.epoch, ElementPhase.RUNNING, missing)]


class ReadsWhilePaused(ElementMachine):
    @property
    def may_read_sources(self) -> bool:
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING, ElementPhase.PAUSED)


class ReadsWhileDrained(ElementMachine):
    @property
    def may_read_sources(self) -> bool:
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING, ElementPhase.DRAINED)


class LateGoOnOpensSources(ElementMachine):
    def _on_go_on(self, event: GoOn) -> list[ElementCommand]:
        if self.phase is ElementPhase.PAUSED and event.attempt == self.attempt:
            self._move(ElementPhase.RUNNING)
            return []
        return super()._on_go_on(event)


class DrainsAfterItsMarker(ElementMachine):
    def _advance_drain(self, epoch: Epoch) -> list[ElementCommand]:
        commands = super()._advance_drain(epoch)
        drains = [c for c in commands if isinstance(c, RunDrain)]
        forwards = [c for c in commands if isinstance(c, Forward)]
        rest = [c for c in commands if not isinstance(c, RunDrain | Forward)]
        return [*forwards, *drains, *rest]


class StepsWhileResetting(ElementMachine):
    @property
    def may_step(self) -> bool:
        return self.phase not in (ElementPhase.NEW, ElementPhase.BROKEN)


class LetsResetMarkersWait(ElementMachine):
    def delivers(self, link: ConnectionId, marker: Marker) -> bool:
        return link not in self.blocked_links


class RestoresBeforeControlMarkers(ElementMachine):
    def _has_control_markers(self) -> bool:
        return self.phase is ElementPhase.RESETTING or super()._has_control_markers()


class GoesOnWhileStoring(ElementMachine):
    @property
    def blocked_links(self) -> frozenset[ConnectionId]:
        return self._data | self._control if self.is_held else self._delivered


class ReadsWhileStoring(ElementMachine):
    @property
    def may_read_sources(self) -> bool:
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING, ElementPhase.STORING)


class DrainsAfterItsCascade(ElementMachine):
    def _advance_cascade(self, epoch: Epoch) -> list[ElementCommand]:
        commands = super()._advance_cascade(epoch)
        return sorted(commands, key=lambda command: not isinstance(command, Forward))


class HoldsBeforeItsPoint(ElementMachine):
    def _on_prepare(self, event: Prepare) -> list[ElementCommand]:
        super()._on_prepare(event)
        return self._on_ready(OperatorsReady(event.epoch, event.attempt))


class PinsAtMarkersBeforeItsPoint(ElementMachine):
    def _unprepared(self) -> None:
        super()._unprepared()
        self._is_ready = True


class GoesOnWhileHeld(ElementMachine):
    @property
    def blocked_links(self) -> frozenset[ConnectionId]:
        return self._data | self._control if self.is_storing else self._delivered


class ReadsWhileHeld(ElementMachine):
    @property
    def may_read_sources(self) -> bool:
        return self.phase in (ElementPhase.RUNNING, ElementPhase.READYING, ElementPhase.HELD)


class StirsOnceInALife(ElementMachine):
    def _pin(
        self, epoch: Epoch, then: ElementPhase, captured: frozenset[ConnectionId] = NO_LINKS
    ) -> list[ElementCommand]:
        has_stirred = self.has_stirred
        commands = super()._pin(epoch, then, captured)
        self.has_stirred = has_stirred
        return commands


class StirsBehindThePinThatComes(ElementMachine):
    """What happens while markers are awaited is told as if the pin lay before it already: then something is always new."""

    def _pin(
        self, epoch: Epoch, then: ElementPhase, captured: frozenset[ConnectionId] = NO_LINKS
    ) -> list[ElementCommand]:
        return [*super()._pin(epoch, then, captured), Tell(NewSince(epoch, self.attempt))]


class StirsBeforeItsPin(ElementMachine):
    def _on_stirred(self) -> list[ElementCommand]:
        found = super()._on_stirred()
        return [Tell(NewSince(Epoch(max(0, self._epoch - 1)), self.attempt))] if found else []


# --- defects of the controller ---------------------------------------------------------------------------------------


class PublishesWithOneAckMissing(RegionController):
    def _on_acked(self, event: Acked) -> list[ControllerCommand]:
        commands = super()._on_acked(event)
        if self.phase is ControllerPhase.ESTABLISHING and len(self._waiting) == 1:
            self._move(ControllerPhase.PUBLISHING)
            return [*commands, *self._act(Publish(event.epoch, self._attempt, self._parts))]
        return commands


class BeginsBeforeAllAreReady(RegionController):
    def _next_asked(self, epoch: Epoch) -> ControllerCommand:
        self._unready = []
        return super()._next_asked(epoch)


class AsksWhoAwaitsMarkersToHold(RegionController):
    def _asked_early(self, is_up_to_marker: bool) -> tuple[ElementName, ...]:
        return self._shape.elements


class ReusesEpochNumbers(RegionController):
    def _take_over(self, record: ControllerRecord) -> None:
        super()._take_over(record)
        self._next_epoch = Epoch(self._published + 1)


class ReusesAttempts(RegionController):
    def _take_over(self, record: ControllerRecord) -> None:
        super()._take_over(record)
        self._attempt = Attempt(0)


class AssumesThatThePublishFailed(RegionController):
    def _on_element_failed(self, event: ElementFailed) -> list[ControllerCommand]:
        if self.phase is ControllerPhase.PUBLISHING and event.attempt == self._attempt:
            return self._fail("did not wait for the outcome")
        return super()._on_element_failed(event)


class ForgetsFailuresWhilePublishing(RegionController):
    def _on_element_failed(self, event: ElementFailed) -> list[ControllerCommand]:
        if self.phase in (ControllerPhase.PUBLISHING, ControllerPhase.COMMITTING):
            return self._ignore()
        return super()._on_element_failed(event)


class HeedsOldResetAcks(RegionController):
    def _on_reset_acked(self, event: ResetAcked) -> list[ControllerCommand]:
        return super()._on_reset_acked(replace(event, attempt=self._attempt))


class CommitsBeforePublishing(RegionController):
    def _on_acked(self, event: Acked) -> list[ControllerCommand]:
        commands = super()._on_acked(event)
        return [*commands, CommitSinks(event.epoch)] if self.phase is ControllerPhase.PUBLISHING else commands


class ActsBeforePersisting(RegionController):
    def _act(self, *commands: ControllerCommand) -> list[ControllerCommand]:
        return [*commands, Persist(self.record)]


class LosesTheFinalEpochInAReset(RegionController):
    def _begin_epoch(self) -> list[ControllerCommand]:
        commands = super()._begin_epoch()
        self._wishes.stop = False
        return commands


class TakesTheEndOfTheInputForGranted(RegionController):
    def _on_due(self, event: EpochDue) -> list[ControllerCommand]:
        return super()._on_due(replace(event, sticky=True))


class ForgetsWhatIsNewAtAPublication(RegionController):
    """Elements have gone on since their pins."""

    def _on_published(self, epoch: Epoch) -> list[ControllerCommand]:
        commands = super()._on_published(epoch)
        self._wishes._new_since = None
        return commands


class HearsOfNewThingsWhileRunningOnly(RegionController):
    def _on_new(self, event: NewSince) -> list[ControllerCommand]:
        return super()._on_new(event) if self.phase is ControllerPhase.RUNNING else []


class ForgetsThatAnEpochWasDue(RegionController):
    def _on_due(self, event: EpochDue) -> list[ControllerCommand]:
        commands = super()._on_due(event)
        self._wishes._in_turn = False
        return commands


class NeverResumes(RegionController):
    def _on_published(self, epoch: Epoch) -> list[ControllerCommand]:
        return [c for c in super()._on_published(epoch) if type(c).__name__ != "Resume"]


# --- defects of the loop and the store --------------------------------------------------------------------------------


class StirsForWhatItReadsOnly(World):
    def stir(self, element: SimElement) -> None:
        if element.rows is not None:
            super().stir(element)


class KeepsNoOutputs(World):
    def kept_of(self, element: SimElement) -> tuple[Batch, ...]:
        return ()


class DoesNotResendKeptOutputs(World):
    def resent(self, part: Part) -> tuple[Batch, ...]:
        return ()


class CapturesNothing(World):
    def captured_of(
        self, element: SimElement, links: frozenset[ConnectionId], epoch: Epoch, attempt: Attempt
    ) -> Captured:
        return ()


class DoesNotGiveCapturedBatchesBack(World):
    def given_back(self, part: Part) -> Captured:
        return ()


class GivesCapturedBatchesBackInAnotherOrder(World):
    def given_back(self, part: Part) -> Captured:
        return part.captured[::-1]


class DoesNotSeekSources(World):
    def sought(self, position: int, part: Part) -> int:
        return position if position >= 0 else part.position


class LetsResetMarkersOvertake(World):
    """Old batches stay in the link, behind the marker."""

    def put_reset(self, link: SimLink, marker: Marker) -> None:
        link.queue.appendleft(marker)


class DoesNotClearLinks(World):
    """The marker waits behind batches that wait themselves: found where the way around is a cycle."""

    def put_reset(self, link: SimLink, marker: Marker) -> None:
        link.queue.append(marker)


class DoesNotRollSinksForward(World):
    def roll_sink(self, element: SimElement, epoch: Epoch) -> None:
        return


class HasNoFence(SimStore):
    def publish(self, epoch: Epoch, attempt: Attempt, parts: dict[ElementName, object], owner: int) -> bool:
        return super().publish(epoch, attempt, parts, self.owner)


def hunt(defect: type) -> SimulationFailed:
    options: dict[str, type] = {}
    if issubclass(defect, ElementMachine):
        options["world_class"] = type("DefectiveWorld", (World,), {"machine_class": defect})
    elif issubclass(defect, RegionController):
        options["controller_class"] = defect
    elif issubclass(defect, World):
        options["world_class"] = defect
    else:
        options["store_class"] = defect
    return first_failure(lambda seed: Simulator(seed, **options).run(), SCHEDULES_MAX)


DEFECTS: dict[type, str] = {
    PinsBeforeControlMarkers: "saw",
    BlocksNoLinks: "",
    PinsAtTheFirstMarker: "",
    HeedsOldAttempts: "",
    ReadsWhilePaused: "is not published",
    ReadsWhileDrained: "after its drain marker",
    LateGoOnOpensSources: "is not published",
    DrainsAfterItsMarker: "after its drain marker",
    StepsWhileResetting: "",
    LetsResetMarkersWait: "hang",
    RestoresBeforeControlMarkers: "",
    GoesOnWhileStoring: "is not stored",
    ReadsWhileStoring: "is not stored",
    DrainsAfterItsCascade: "after its drain marker",
    HoldsBeforeItsPoint: "may not be checkpointed there",
    PinsAtMarkersBeforeItsPoint: "may not be checkpointed there",
    GoesOnWhileHeld: "may not be checkpointed there",
    ReadsWhileHeld: "may not be checkpointed there",
    BeginsBeforeAllAreReady: "",
    AsksWhoAwaitsMarkersToHold: "hang",
    PublishesWithOneAckMissing: "without a part",
    ReusesEpochNumbers: "next_epoch",
    ReusesAttempts: "attempt",
    AssumesThatThePublishFailed: "",
    ForgetsFailuresWhilePublishing: "hang",
    HeedsOldResetAcks: "did not restore",
    CommitsBeforePublishing: "is published",
    ActsBeforePersisting: "record",
    LosesTheFinalEpochInAReset: "final epoch was asked for",
    TakesTheEndOfTheInputForGranted: "stopped before the end",
    NeverResumes: "hang",
    StirsOnceInALife: "at rest",
    StirsBeforeItsPin: "at rest",
    StirsBehindThePinThatComes: "something was always new",
    ForgetsWhatIsNewAtAPublication: "at rest",
    HearsOfNewThingsWhileRunningOnly: "at rest",
    ForgetsThatAnEpochWasDue: "at rest",
    StirsForWhatItReadsOnly: "at rest",
    KeepsNoOutputs: "kept 0",
    DoesNotResendKeptOutputs: "",
    CapturesNothing: "captured 0",
    DoesNotGiveCapturedBatchesBack: "",
    GivesCapturedBatchesBackInAnotherOrder: "",
    OvertakesWithOneTokenMissing: "",
    DoesNotSeekSources: "",
    LetsResetMarkersOvertake: "",
    DoesNotClearLinks: "hang",
    DoesNotRollSinksForward: "shows",
    HasNoFence: "is published",
}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
@pytest.mark.planted
def test_a_planted_defect_is_found(defect: type, tell: Callable[..., None]) -> None:
    failure = hunt(defect)
    tell(
        "planted defects",
        f"{defect.__name__}: schedule {failure.seed}: {failure.reason.splitlines()[0][:120]}",
    )
    assert DEFECTS[defect] in str(failure)
    assert f"--seed {failure.seed}" in str(failure)
