"""The region controller, case by case: exact commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, RegionName
from holdfast.protocol.commands import (
    AbortEpoch,
    AwaitSpace,
    CommitSinks,
    ControllerCommand,
    Park,
    Persist,
    Publish,
    StartDrainTimer,
    StartResetTimer,
    Stop,
)
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.messages import (
    Acked,
    BeginEpoch,
    BeginReset,
    CommitFailed,
    Committed,
    ControllerEvent,
    ControllerRecord,
    DrainTimedOut,
    ElementFailed,
    EpochDue,
    GoOn,
    NewSince,
    Published,
    PublishFailed,
    ResetAcked,
    ResetTimedOut,
    Resume,
    ResumeRequested,
    SpaceReturned,
    Start,
    UploadFailed,
)
from holdfast.protocol.phases import ProtocolViolation
from holdfast.protocol.shape import Link, Mode, RegionShape

ONE, TWO, THREE = (ElementName(f"op{n}") for n in (1, 2, 3))
ALL = (ONE, TWO, THREE)
STARTS = (ONE, TWO)
SHAPE = RegionShape(
    RegionName("vwap"), ALL, (Link(ConnectionId("1-3"), ONE, THREE), Link(ConnectionId("2-3"), TWO, THREE))
)


def e(number: int) -> Epoch:
    return Epoch(number)


def a(number: int) -> Attempt:
    return Attempt(number)


def record(
    published: int, following: int, attempt: int, consecutive: int = 0, parked: bool = False
) -> Persist:
    return Persist(ControllerRecord(e(published), e(following), a(attempt), consecutive, parked))


def resets(epoch: int, attempt: int, consecutive: int) -> list[ControllerCommand]:
    return [
        StartResetTimer(e(epoch), a(attempt)),
        BeginReset(e(epoch), a(attempt), consecutive, STARTS),
    ]


def drains(epoch: int, attempt: int = 1) -> list[ControllerCommand]:
    return [StartDrainTimer(e(epoch), a(attempt)), BeginEpoch(e(epoch), a(attempt), "drain", STARTS)]


def failed(attempt: int = 1) -> ElementFailed:
    return ElementFailed(THREE, a(attempt), "boom")


def tell(controller: RegionController, *events: ControllerEvent) -> list[ControllerCommand]:
    """Feed events; the commands of the last one."""
    commands: list[ControllerCommand] = []
    for event in events:
        commands = controller.handle(event)
    return commands


def ack_reset(controller: RegionController, epoch: int, attempt: int) -> list[ControllerCommand]:
    return tell(controller, *(ResetAcked(element, e(epoch), a(attempt)) for element in ALL))


def ack(controller: RegionController, epoch: int, attempt: int = 1) -> list[ControllerCommand]:
    return tell(controller, *(Acked(element, e(epoch), a(attempt), f"part of {element}") for element in ALL))


def running(mode: Mode = "drain", max_consecutive_resets: int = 5) -> RegionController:
    controller = RegionController(SHAPE, mode, max_consecutive_resets)
    controller.handle(Start(e(0), None))
    ack_reset(controller, 0, 1)
    assert controller.phase is ControllerPhase.RUNNING
    return controller


def publishing(mode: Mode = "drain", *, final: bool = False) -> RegionController:
    controller = running(mode)
    controller.handle(EpochDue(final))
    ack(controller, 1)
    assert controller.phase is ControllerPhase.PUBLISHING
    return controller


# --- starting -----------------------------------------------------------------------------------------------------------


def test_a_start_resets_to_the_newest_epoch_under_a_new_attempt() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    assert controller.handle(Start(e(0), None)) == [record(0, 1, 1), *resets(0, 1, 0)]


def test_a_successor_goes_on_from_the_record_and_never_reuses_numbers() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    left = ControllerRecord(e(3), e(7), a(4), 2)
    assert controller.handle(Start(e(3), left)) == [record(3, 7, 5, 2), *resets(3, 5, 2)]


def test_a_publication_the_predecessor_did_not_live_to_record_counts() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    left = ControllerRecord(e(3), e(5), a(4), 2)
    assert controller.handle(Start(e(4), left)) == [record(4, 5, 5, 0), *resets(4, 5, 0)]


def test_starting_a_parked_region_lets_it_try_again() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    left = ControllerRecord(e(3), e(7), a(4), 5, parked=True)
    assert controller.handle(Start(e(3), left)) == [record(3, 7, 5, 0), *resets(3, 5, 0)]


def test_the_region_goes_on_when_every_element_restored() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    controller.handle(Start(e(0), None))
    assert controller.handle(ResetAcked(ONE, e(0), a(1))) == []
    assert controller.handle(ResetAcked(ONE, e(0), a(1))) == []
    assert controller.handle(ResetAcked(TWO, e(0), a(1))) == []
    assert controller.handle(ResetAcked(THREE, e(0), a(1))) == [record(0, 1, 1), GoOn(e(0), a(1), ALL)]
    assert (controller.phase, controller.ignored) == (ControllerPhase.RUNNING, 1)


# --- an epoch -------------------------------------------------------------------------------------------------------------


def test_an_epoch_in_drain_mode_from_trigger_to_visible() -> None:
    controller = running("drain")
    assert controller.handle(EpochDue()) == [record(0, 2, 1), *drains(1)]
    commands = ack(controller, 1)
    assert commands == [record(0, 2, 1), Publish(e(1), a(1))]
    assert isinstance(commands[1], Publish)
    assert commands[1].parts == {element: f"part of {element}" for element in ALL}
    resume = Resume(e(1), a(1), ALL)
    assert controller.handle(Published(e(1))) == [record(1, 2, 1), resume, CommitSinks(e(1))]
    assert controller.handle(Committed(e(1))) == []
    assert controller.phase is ControllerPhase.RUNNING


def test_an_epoch_in_async_mode_tells_every_element_and_needs_no_resume() -> None:
    controller = running("async")
    begin = BeginEpoch(e(1), a(1), "token", ALL)
    assert controller.handle(EpochDue()) == [record(0, 2, 1), StartDrainTimer(e(1), a(1)), begin]
    ack(controller, 1)
    assert controller.handle(Published(e(1))) == [record(1, 2, 1), CommitSinks(e(1))]


def test_an_epoch_that_is_to_be_drained_drains_in_async_mode_and_the_next_one_does_not() -> None:
    controller = running("async")
    assert controller.handle(EpochDue(drained=True)) == [record(0, 2, 1), *drains(1)]
    ack(controller, 1)
    resume = Resume(e(1), a(1), ALL)
    assert controller.handle(Published(e(1))) == [record(1, 2, 1), resume, CommitSinks(e(1))]
    controller.handle(Committed(e(1)))
    begin = BeginEpoch(e(2), a(1), "token", ALL)
    assert controller.handle(EpochDue()) == [record(1, 3, 1), StartDrainTimer(e(2), a(1)), begin]


def test_a_drained_epoch_asked_for_during_another_one_follows_it() -> None:
    controller = running("async")
    controller.handle(EpochDue())
    assert controller.handle(EpochDue(drained=True)) == []
    ack(controller, 1)
    controller.handle(Published(e(1)))
    assert controller.handle(Committed(e(1))) == [record(1, 3, 1), *drains(2)]


@pytest.mark.fault("R04", "N03")
def test_an_epoch_is_not_published_with_an_acknowledgement_missing_or_doubled() -> None:
    controller = running()
    controller.handle(EpochDue())
    assert tell(controller, *(Acked(x, e(1), a(1)) for x in (ONE, TWO, TWO))) == []
    assert (controller.phase, controller.ignored) == (ControllerPhase.ESTABLISHING, 1)


@pytest.mark.parametrize("mode", ["drain", "token", "async"])
def test_the_final_epoch_drains_and_stops_the_region(mode: Mode) -> None:
    controller = running(mode)
    assert controller.handle(EpochDue(final=True)) == [record(0, 2, 1), *drains(1)]
    ack(controller, 1)
    assert controller.handle(Published(e(1))) == [record(1, 2, 1), CommitSinks(e(1))]
    assert controller.handle(Committed(e(1))) == [record(1, 2, 1), Stop(e(1))]
    assert controller.handle(EpochDue()) == []
    assert controller.phase is ControllerPhase.STOPPED


def test_a_trigger_while_busy_is_remembered_once() -> None:
    controller = publishing()
    assert tell(controller, EpochDue(), EpochDue(), Published(e(1)), EpochDue()) == []
    assert controller.handle(Committed(e(1))) == [record(1, 3, 1), *drains(2)]
    ack(controller, 2)
    assert tell(controller, Published(e(2)), Committed(e(2))) == []
    assert controller.phase is ControllerPhase.RUNNING


def test_a_final_epoch_asked_for_while_busy_follows_the_ordinary_one() -> None:
    controller = publishing("async")
    tell(controller, EpochDue(final=True), Published(e(1)))
    assert controller.handle(Committed(e(1))) == [record(1, 3, 1), *drains(2)]
    ack(controller, 2)
    assert tell(controller, Published(e(2)), Committed(e(2))) == [record(2, 3, 1), Stop(e(2))]


def test_a_trigger_before_the_region_runs_is_remembered() -> None:
    controller = RegionController(SHAPE, "drain", 5)
    tell(controller, EpochDue(), Start(e(0), None))
    go_on = GoOn(e(0), a(1), ALL)
    assert ack_reset(controller, 0, 1) == [record(0, 1, 1), go_on, record(0, 2, 1), *drains(1)]


# --- failures ---------------------------------------------------------------------------------------------------------------


def test_a_failure_while_running_resets() -> None:
    controller = running()
    assert controller.handle(failed()) == [record(0, 1, 2, 1), *resets(0, 2, 1)]


@pytest.mark.parametrize(
    "event",
    [failed(), DrainTimedOut(e(1), a(1)), UploadFailed(ONE, e(1), a(1), no_space=False)],
    ids=lambda event: type(event).__name__,
)
def test_a_failure_while_establishing_aborts_the_epoch_and_resets(event: ControllerEvent) -> None:
    controller = running()
    controller.handle(EpochDue())
    assert controller.handle(event) == [record(0, 2, 2, 1), AbortEpoch(e(1)), *resets(0, 2, 1)]
    ack_reset(controller, 0, 2)
    assert controller.handle(EpochDue()) == [record(0, 3, 2, 1), *drains(2, 2)]


@pytest.mark.parametrize(
    "event", [failed(1), ResetTimedOut(e(0), a(1))], ids=lambda event: type(event).__name__
)
def test_a_failure_while_resetting_begins_another_attempt(event: ControllerEvent) -> None:
    controller = RegionController(SHAPE, "drain", 5)
    controller.handle(Start(e(0), None))
    assert controller.handle(event) == [record(0, 1, 2, 1), *resets(0, 2, 1)]


def test_a_failure_while_publishing_waits_for_the_outcome() -> None:
    controller = publishing()
    assert controller.handle(failed()) == []
    assert controller.phase is ControllerPhase.PUBLISHING
    assert controller.handle(Published(e(1))) == [record(1, 2, 1), CommitSinks(e(1))]
    assert controller.handle(Committed(e(1))) == [record(1, 2, 2, 1), *resets(1, 2, 1)]


def test_a_failure_while_committing_waits_for_the_outcome() -> None:
    controller = publishing()
    controller.handle(Published(e(1)))
    assert controller.handle(failed()) == []
    assert controller.handle(CommitFailed(e(1))) == [record(1, 2, 2, 1), *resets(1, 2, 1)]


def test_a_failure_after_the_final_epoch_is_published_does_not_keep_it_from_stopping() -> None:
    controller = publishing(final=True)
    tell(controller, failed(), Published(e(1)))
    assert controller.handle(Committed(e(1))) == [record(1, 2, 1), Stop(e(1))]


def test_a_publication_that_failed_aborts_and_resets_to_the_epoch_before() -> None:
    controller = publishing()
    controller.handle(failed())
    commands = controller.handle(PublishFailed(e(1), no_space=False))
    assert commands == [record(0, 2, 2, 1), AbortEpoch(e(1)), *resets(0, 2, 1)]


def test_a_commit_that_failed_resets_to_the_published_epoch() -> None:
    controller = publishing()
    controller.handle(Published(e(1)))
    assert controller.handle(CommitFailed(e(1))) == [record(1, 2, 2, 1), *resets(1, 2, 1)]


def test_the_final_epoch_is_begun_again_after_a_reset() -> None:
    controller = running("async")
    tell(controller, EpochDue(final=True), failed())
    go_on = GoOn(e(0), a(2), ALL)
    commands = ack_reset(controller, 0, 2)
    assert commands == [record(0, 2, 2, 1), go_on, record(0, 3, 2, 1), *drains(2, 2)]


def test_the_end_of_the_input_has_to_be_reached_again_after_a_reset() -> None:
    controller = running("async")
    end = EpochDue(final=True, sticky=False)
    assert controller.handle(end) == [record(0, 2, 1), *drains(1)]
    tell(controller, failed(), end)
    assert controller.ignored == 1
    assert ack_reset(controller, 0, 2) == [record(0, 2, 2, 1), GoOn(e(0), a(2), ALL)]
    assert controller.handle(end) == [record(0, 3, 2, 1), *drains(2, 2)]


def test_the_end_of_the_input_reached_while_busy_is_remembered() -> None:
    controller = publishing("async")
    tell(controller, EpochDue(final=True, sticky=False), Published(e(1)))
    assert controller.handle(Committed(e(1))) == [record(1, 3, 1), *drains(2)]
    ack(controller, 2)
    assert tell(controller, Published(e(2)), Committed(e(2))) == [record(2, 3, 1), Stop(e(2))]


# --- parking ----------------------------------------------------------------------------------------------------------------


def test_a_region_that_used_up_its_resets_is_parked_until_a_person_resumes_it() -> None:
    controller = running(max_consecutive_resets=1)
    controller.handle(failed(1))
    parked = controller.handle(failed(2))
    assert parked == [record(0, 1, 2, 1, parked=True), Park("op3 failed: boom")]
    ignored = (EpochDue(), failed(2), ResetTimedOut(e(0), a(2)), SpaceReturned(), Published(e(1)))
    for event in ignored:
        assert controller.handle(event) == []
    assert controller.ignored == len(ignored)
    assert controller.handle(ResumeRequested()) == [record(0, 1, 3, 0), *resets(0, 3, 0)]


def test_a_failure_of_the_program_that_comes_again_parks_the_region() -> None:
    controller = running(max_consecutive_resets=5)
    for attempt, own in ((1, "row 7"), (2, "row 8")):
        assert controller.handle(replace(failed(attempt), own=own))[0] == record(0, 1, attempt + 1, attempt)
    parked = controller.handle(replace(failed(3), own="row 8", reached=9))
    assert parked[-1] == Park("op3 failed: boom")
    assert controller.repeated


def test_a_failure_of_the_program_behind_another_epoch_is_a_new_one() -> None:
    controller = publishing("async")
    tell(controller, replace(failed(), own="row 7"), Published(e(1)), Committed(e(1)))
    assert controller.phase is ControllerPhase.RESETTING
    assert not any(isinstance(c, Park) for c in controller.handle(replace(failed(2), own="row 7")))


def test_a_final_epoch_asked_for_while_parked_is_not_lost() -> None:
    controller = running(max_consecutive_resets=0)
    tell(controller, failed(), EpochDue(final=True), ResumeRequested())
    assert ack_reset(controller, 0, 2)[-2:] == drains(1, 2)


def test_parking_aborts_the_epoch_under_way() -> None:
    controller = running(max_consecutive_resets=0)
    controller.handle(EpochDue())
    assert controller.handle(failed())[1:] == [AbortEpoch(e(1)), Park("op3 failed: boom")]


def test_a_published_epoch_makes_the_count_of_resets_start_anew() -> None:
    controller = running(max_consecutive_resets=1)
    controller.handle(failed(1))
    ack_reset(controller, 0, 2)
    controller.handle(EpochDue())
    ack(controller, 1, 2)
    tell(controller, Published(e(1)), Committed(e(1)))
    assert controller.handle(failed(2)) == [record(1, 2, 3, 1), *resets(1, 3, 1)]


# --- no space -----------------------------------------------------------------------------------------------------------------


def test_without_space_the_region_pauses_and_the_reset_afterwards_is_not_counted() -> None:
    controller = running()
    controller.handle(EpochDue())
    full = UploadFailed(ONE, e(1), a(1), no_space=True, reason="full")
    assert controller.handle(full) == [AbortEpoch(e(1)), AwaitSpace("full")]
    assert controller.handle(failed()) == []
    assert controller.phase is ControllerPhase.PAUSED
    assert controller.handle(SpaceReturned()) == [record(0, 2, 2, 0), *resets(0, 2, 0)]


def test_a_publication_without_space_pauses_too() -> None:
    controller = publishing()
    assert controller.handle(PublishFailed(e(1), True, "full")) == [AbortEpoch(e(1)), AwaitSpace("full")]
    assert controller.handle(SpaceReturned()) == [record(0, 2, 2, 0), *resets(0, 2, 0)]


# --- stale ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stale",
    [
        Start(e(0), None),
        failed(0),
        Acked(ONE, e(1), a(1)),
        UploadFailed(ONE, e(1), a(1), no_space=True),
        ResetAcked(ONE, e(0), a(1)),
        Published(e(1)),
        PublishFailed(e(1), no_space=True),
        Committed(e(1)),
        CommitFailed(e(1)),
        DrainTimedOut(e(1), a(1)),
        ResetTimedOut(e(0), a(1)),
        SpaceReturned(),
        ResumeRequested(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_running_region_ignores_and_counts_what_comes_late(stale: ControllerEvent) -> None:
    controller = running()
    assert controller.handle(stale) == []
    assert (controller.phase, controller.ignored) == (ControllerPhase.RUNNING, 1)


@pytest.mark.fault("N03")
def test_answers_about_another_epoch_or_attempt_are_stale_while_establishing() -> None:
    controller = running()
    tell(controller, EpochDue(), failed(1))
    ack_reset(controller, 0, 2)
    controller.handle(EpochDue())
    late = (
        Acked(ONE, e(1), a(1)),
        Acked(ONE, e(2), a(1)),
        DrainTimedOut(e(1), a(1)),
        UploadFailed(ONE, e(1), a(1), no_space=False),
        failed(1),
    )
    for event in late:
        assert controller.handle(event) == []
    assert (controller.phase, controller.ignored) == (ControllerPhase.ESTABLISHING, len(late))


def test_an_illegal_move_tells_the_recent_story() -> None:
    controller = running()
    with pytest.raises(ProtocolViolation, match="no move from running to committing") as told:
        controller._move(ControllerPhase.COMMITTING)
    assert "ResetAcked(element='op3'" in str(told.value)


# --- nothing is new -----------------------------------------------------------------------------------------------------


def new_since(epoch: int, attempt: int = 1) -> NewSince:
    return NewSince(e(epoch), a(attempt))


def idle(mode: Mode = "drain") -> RegionController:
    """Behind its first epoch, and nothing has happened since."""
    controller = running(mode)
    tell(controller, EpochDue(if_new=True))
    ack(controller, 1)
    tell(controller, Published(e(1)), Committed(e(1)))
    assert controller.is_idle
    return controller


def test_the_first_epoch_comes_although_nothing_happened() -> None:
    controller = running()
    assert not controller.is_idle
    assert controller.handle(EpochDue(if_new=True)) == [record(0, 2, 1), *drains(1)]


def test_an_epoch_of_another_program_is_followed_by_one_although_nothing_happened() -> None:
    for outdated in (False, True):
        controller = RegionController(SHAPE, "drain", 5)
        controller.handle(Start(e(3), None, outdated))
        ack_reset(controller, 3, 1)
        assert controller.is_idle is not outdated
        assert bool(controller.handle(EpochDue(if_new=True))) is outdated


def test_no_epoch_comes_in_turn_while_nothing_is_new_and_then_at_once() -> None:
    controller = idle()
    assert tell(controller, EpochDue(if_new=True), EpochDue(if_new=True)) == []
    assert controller.handle(new_since(1)) == [record(1, 3, 1), *drains(2)]


def test_something_new_waits_for_the_next_turn() -> None:
    controller = idle()
    assert controller.handle(new_since(1)) == []
    assert not controller.is_idle
    assert controller.handle(EpochDue(if_new=True)) == [record(1, 3, 1), *drains(2)]


def test_an_epoch_that_somebody_asks_for_comes_although_nothing_is_new() -> None:
    assert idle().handle(EpochDue()) == [record(1, 3, 1), *drains(2)]
    assert idle("async").handle(EpochDue(drained=True)) == [record(1, 3, 1), *drains(2)]
    assert idle().handle(EpochDue(final=True)) == [record(1, 3, 1), *drains(2)]


def test_what_an_epoch_has_is_not_new_however_late_that_is_told() -> None:
    controller = idle()
    assert tell(controller, new_since(0), EpochDue(if_new=True)) == []
    assert controller.is_idle


def test_what_happened_behind_a_pin_is_new_when_its_epoch_is_there() -> None:
    controller = publishing()
    tell(controller, new_since(1), new_since(0), EpochDue(if_new=True))
    commands = tell(controller, Published(e(1)), Committed(e(1)))
    assert commands == [record(1, 3, 1), *drains(2)]


def test_what_was_new_before_a_reset_is_not_any_more() -> None:
    controller = idle()
    tell(controller, new_since(1), failed(1))
    ack_reset(controller, 1, 2)
    assert controller.is_idle
    assert tell(controller, new_since(1, attempt=1), EpochDue(if_new=True)) == []
    assert controller.handle(new_since(1, attempt=2)) == [record(1, 3, 2, 1), *drains(2, 2)]


def test_a_turn_that_came_up_empty_is_not_forgotten_by_a_reset() -> None:
    controller = idle()
    tell(controller, EpochDue(if_new=True), failed(1))
    ack_reset(controller, 1, 2)
    assert controller.handle(new_since(1, attempt=2)) == [record(1, 3, 2, 1), *drains(2, 2)]
