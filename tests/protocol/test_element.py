"""The element machine, case by case: small shapes, exact commands."""

from __future__ import annotations

import pytest

from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, RegionName
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.messages import (
    Acked,
    BeginEpoch,
    BeginReset,
    Broke,
    ElementCommand,
    ElementFailed,
    Forward,
    GoOn,
    KeepOutputs,
    Marker,
    MarkerArrived,
    NewSince,
    Pin,
    ResetAcked,
    Restore,
    Resume,
    RunDrain,
    Stirred,
    Tell,
    Upload,
    UploadBroke,
    UploadFailed,
    UploadFinished,
)
from holdfast.protocol.phases import ProtocolViolation
from holdfast.protocol.shape import Link, MarkerKind, RegionShape


def name(number: int) -> ElementName:
    return ElementName(f"op{number}")


def link(source: int, target: int, *, control: bool = False) -> Link:
    return Link(ConnectionId(f"{source}-{target}"), name(source), name(target), control)


FIGURE_3 = RegionShape(
    RegionName("figure3"),
    tuple(name(n) for n in (1, 2, 3, 4, 5)),
    (link(1, 3), link(2, 3), link(4, 3, control=True), link(3, 4), link(4, 5)),
)
"""Document 004, figure 3, without the autonomous operator 6."""

ALONE = RegionShape(RegionName("alone"), (name(1),))

ASIDE = RegionShape(
    RegionName("aside"), (name(1), name(2)), (link(1, 2), Link(ConnectionId("c"), name(2), name(1), True))
)
"""A start with a control link from the element it feeds."""


def e(number: int) -> Epoch:
    return Epoch(number)


def a(number: int) -> Attempt:
    return Attempt(number)


def marker(kind: MarkerKind, epoch: int, attempt: int = 1) -> Marker:
    return Marker(kind, e(epoch), a(attempt))


def arrived(where: str, kind: MarkerKind, epoch: int, attempt: int = 1) -> MarkerArrived:
    return MarkerArrived(ConnectionId(where), marker(kind, epoch, attempt))


def begin(style: MarkerKind, epoch: int, attempt: int = 1) -> BeginEpoch:
    return BeginEpoch(e(epoch), a(attempt), style, ())


def reset(epoch: int, attempt: int) -> BeginReset:
    return BeginReset(e(epoch), a(attempt), 0, ())


def pinned(epoch: int, attempt: int = 1) -> list[ElementCommand]:
    return [Pin(e(epoch), a(attempt)), Upload(e(epoch), a(attempt))]


def restored(element: int, epoch: int, attempt: int) -> list[ElementCommand]:
    return [Restore(e(epoch), a(attempt)), Tell(ResetAcked(name(element), e(epoch), a(attempt)))]


def running(shape: RegionShape, element: int) -> ElementMachine:
    """A machine that was reset to epoch 0 under attempt 1 and goes on."""
    machine = ElementMachine(shape, name(element))
    if not shape.data_inputs(name(element)):
        machine.handle(reset(0, 1))
    for known in shape.links:
        if known.target == name(element):
            machine.handle(arrived(known.id, "reset", 0))
    machine.handle(GoOn(e(0), a(1), ()))
    assert machine.phase is ElementPhase.RUNNING
    machine.ignored = 0
    return machine


# --- starting -----------------------------------------------------------------------------------------------------------


def test_a_fresh_machine_knows_nothing_but_a_reset() -> None:
    machine = ElementMachine(FIGURE_3, name(1))
    assert (machine.may_step, machine.may_read_sources) == (False, False)
    assert machine.handle(begin("drain", 1, 0)) == []
    assert machine.handle(GoOn(e(0), a(0), ())) == []
    assert machine.handle(Resume(e(0), a(0), ())) == []
    assert machine.handle(UploadFinished(e(1), a(0))) == []
    assert machine.ignored == 4
    assert machine.handle(reset(0, 1)) == [Forward(marker("reset", 0)), *restored(1, 0, 1)]


def test_sources_open_only_when_every_element_restored() -> None:
    machine = ElementMachine(FIGURE_3, name(1))
    machine.handle(reset(0, 1))
    assert (machine.phase, machine.may_step, machine.may_read_sources) == (ElementPhase.RESTORED, True, False)
    machine.handle(GoOn(e(0), a(1), ()))
    assert machine.may_read_sources


def test_an_element_without_links_forwards_nothing() -> None:
    machine = ElementMachine(ALONE, name(1))
    assert machine.handle(reset(0, 1)) == restored(1, 0, 1)
    machine.handle(GoOn(e(0), a(1), ()))
    assert machine.handle(begin("token", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert machine.handle(begin("drain", 2)) == [RunDrain(e(2)), *pinned(2)]


def test_a_replaced_machine_refuses_resets_older_than_it_knows() -> None:
    machine = ElementMachine(FIGURE_3, name(1), a(3))
    assert machine.handle(reset(0, 3)) == []
    assert machine.ignored == 1
    assert machine.handle(reset(2, 4))[-2:] == restored(1, 2, 4)


# --- drain style ----------------------------------------------------------------------------------------------------------


def test_a_start_drains_forwards_pins_and_pauses_until_resume() -> None:
    machine = running(FIGURE_3, 1)
    assert machine.handle(begin("drain", 1)) == [RunDrain(e(1)), Forward(marker("drain", 1)), *pinned(1)]
    assert (machine.phase, machine.may_read_sources) == (ElementPhase.PAUSED, False)
    machine.handle(Resume(e(1), a(1), ()))
    assert machine.may_read_sources


def test_figure_3_operator_3_drains_after_1_and_2_and_pins_only_after_4() -> None:
    machine = running(FIGURE_3, 3)
    assert machine.handle(arrived("1-3", "drain", 1)) == []
    assert machine.blocked_links == {"1-3"}
    assert machine.fate(ConnectionId("1-3")) == "wait"
    assert machine.fate(ConnectionId("2-3")) == "process"
    assert not machine.may_read_sources

    assert machine.handle(arrived("2-3", "drain", 1)) == [RunDrain(e(1)), Forward(marker("drain", 1))]
    assert (machine.phase, machine.may_step) == (ElementPhase.DRAINED, True)
    assert machine.fate(ConnectionId("4-3")) == "process"
    assert machine.blocked_links == {"1-3", "2-3"}

    assert machine.handle(arrived("4-3", "drain", 1)) == pinned(1)
    assert (machine.phase, machine.blocked_links) == (ElementPhase.PAUSED, frozenset())


def test_figure_3_the_whole_region_establishes_an_epoch() -> None:
    machines = {n: running(FIGURE_3, n) for n in (1, 2, 3, 4, 5)}
    machines[1].handle(begin("drain", 1))
    machines[2].handle(begin("drain", 1))
    machines[3].handle(arrived("1-3", "drain", 1))
    machines[3].handle(arrived("2-3", "drain", 1))
    assert machines[4].handle(arrived("3-4", "drain", 1)) == [
        RunDrain(e(1)),
        Forward(marker("drain", 1)),
        *pinned(1),
    ]
    assert machines[5].handle(arrived("4-5", "drain", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert machines[3].phase is ElementPhase.DRAINED
    assert machines[3].handle(arrived("4-3", "drain", 1)) == pinned(1)
    assert {m.phase for m in machines.values()} == {ElementPhase.PAUSED}


def test_a_start_with_a_control_link_pins_after_its_marker() -> None:
    machine = running(ASIDE, 1)
    assert machine.handle(begin("drain", 1)) == [RunDrain(e(1)), Forward(marker("drain", 1))]
    assert machine.handle(begin("drain", 1)) == []
    assert machine.handle(arrived("c", "drain", 1)) == pinned(1)


def test_the_next_epoch_may_overtake_a_late_resume() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("drain", 1))
    assert machine.handle(begin("drain", 2)) == [RunDrain(e(2)), Forward(marker("drain", 2)), *pinned(2)]
    assert machine.handle(Resume(e(1), a(1), ())) == []
    assert (machine.ignored, machine.may_read_sources) == (1, False)


def test_a_late_go_on_does_not_open_the_sources_of_a_paused_element() -> None:
    machine = ElementMachine(FIGURE_3, name(1))
    machine.handle(reset(0, 1))
    machine.handle(begin("drain", 1))
    assert machine.handle(GoOn(e(0), a(1), ())) == []
    assert (machine.ignored, machine.may_read_sources) == (1, False)


# --- token style ----------------------------------------------------------------------------------------------------------


def test_a_token_is_forwarded_at_once_and_the_pin_waits_for_every_link() -> None:
    machine = running(FIGURE_3, 3)
    assert machine.handle(begin("token", 1)) == [KeepOutputs(e(1)), Forward(marker("token", 1))]
    assert (machine.may_step, machine.may_read_sources) == (True, False)
    assert machine.handle(arrived("4-3", "token", 1)) == []
    assert machine.handle(arrived("1-3", "token", 1)) == []
    assert machine.blocked_links == {"4-3", "1-3"}
    assert machine.handle(arrived("2-3", "token", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert machine.may_read_sources


def test_the_first_token_begins_the_epoch_if_it_is_faster_than_the_controller() -> None:
    machine = running(FIGURE_3, 3)
    first = machine.handle(arrived("1-3", "token", 1))
    assert first == [KeepOutputs(e(1)), Forward(marker("token", 1))]
    assert machine.handle(begin("token", 1)) == []
    assert machine.ignored == 1
    machine.handle(arrived("2-3", "token", 1))
    assert machine.handle(arrived("4-3", "token", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert machine.handle(begin("token", 1)) == []
    assert machine.ignored == 2


def test_an_element_without_outputs_keeps_and_forwards_nothing() -> None:
    machine = running(FIGURE_3, 5)
    assert machine.handle(begin("token", 1)) == []
    assert machine.handle(arrived("4-5", "token", 1)) == [RunDrain(e(1)), *pinned(1)]


def test_an_element_without_inputs_pins_immediately_and_reads_on() -> None:
    machine = running(FIGURE_3, 1)
    assert machine.handle(begin("token", 1)) == [
        KeepOutputs(e(1)),
        Forward(marker("token", 1)),
        RunDrain(e(1)),
        *pinned(1),
    ]
    assert machine.may_read_sources


# --- cascade style ------------------------------------------------------------------------------------------------------


def acked(element: int, epoch: int) -> Tell:
    return Tell(Acked(name(element), e(epoch), a(1)))


def test_a_start_sends_its_cascade_when_its_own_part_is_durable_and_reads_on() -> None:
    machine = running(FIGURE_3, 1)
    assert machine.handle(begin("cascade", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert (machine.phase, machine.may_read_sources) == (ElementPhase.STORING, False)
    stored = machine.handle(UploadFinished(e(1), a(1)))
    assert stored == [Forward(marker("cascade", 1)), acked(1, 1)]
    assert machine.may_read_sources


def test_an_element_that_stores_lets_everything_wait_but_a_reset() -> None:
    machine = running(FIGURE_3, 4)
    assert machine.handle(arrived("3-4", "cascade", 1)) == [RunDrain(e(1)), *pinned(1)]
    assert machine.fate(ConnectionId("3-4")) == "wait"
    assert not machine.delivers(ConnectionId("3-4"), marker("cascade", 2))
    assert machine.delivers(ConnectionId("3-4"), marker("reset", 0, 2))
    machine.handle(UploadFinished(e(1), a(1)))
    assert machine.fate(ConnectionId("3-4")) == "process"


def test_a_cascade_goes_on_before_the_pin_where_a_control_link_waits_for_it() -> None:
    machine = running(FIGURE_3, 3)
    assert machine.handle(arrived("1-3", "cascade", 1)) == []
    drained = machine.handle(arrived("2-3", "cascade", 1))
    assert drained == [RunDrain(e(1)), Forward(marker("cascade", 1))]
    assert machine.handle(arrived("4-3", "cascade", 1)) == pinned(1)
    assert machine.handle(UploadFinished(e(1), a(1))) == [acked(3, 1)]


def test_a_part_that_cannot_be_stored_holds_nobody_up() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("cascade", 1))
    told = Tell(UploadFailed(name(1), e(1), a(1), False, "away", True))
    assert machine.handle(UploadBroke(e(1), a(1), False, "away", True)) == [
        Forward(marker("cascade", 1)),
        told,
    ]
    assert machine.phase is ElementPhase.RUNNING


# --- uploads --------------------------------------------------------------------------------------------------------------


def test_a_finished_upload_is_acknowledged_once_with_its_part() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("token", 1))
    (told,) = machine.handle(UploadFinished(e(1), a(1), "part"))
    assert told == Tell(Acked(name(1), e(1), a(1)))
    assert isinstance(told, Tell)
    assert isinstance(told.event, Acked)
    assert told.event.part == "part"
    assert machine.handle(UploadFinished(e(1), a(1), "part")) == []


def test_a_failed_upload_is_told_with_its_reason() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("token", 1))
    told = machine.handle(UploadBroke(e(1), a(1), True, "full"))
    assert told == [Tell(UploadFailed(name(1), e(1), a(1), True, "full"))]


@pytest.mark.fault("S13")
def test_uploads_of_an_earlier_attempt_are_ignored() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("token", 1))
    machine.handle(reset(0, 2))
    assert machine.handle(UploadFinished(e(1), a(1))) == []
    assert machine.handle(UploadBroke(e(1), a(1), False)) == []
    assert machine.ignored == 2


# --- resets ---------------------------------------------------------------------------------------------------------------


def test_figure_3_operator_3_forwards_the_reset_after_1_and_2_and_restores_after_4() -> None:
    machine = running(FIGURE_3, 3)
    assert machine.handle(arrived("1-3", "reset", 0, 2)) == []
    assert not machine.may_step
    assert machine.fate(ConnectionId("1-3")) == "wait"
    assert machine.fate(ConnectionId("2-3")) == "drop"
    assert machine.handle(arrived("2-3", "reset", 0, 2)) == [Forward(marker("reset", 0, 2))]
    assert machine.handle(arrived("4-3", "reset", 0, 2)) == restored(3, 0, 2)
    assert (machine.may_step, machine.blocked_links) == (True, frozenset())


def test_a_reset_marker_never_waits_behind_an_epoch() -> None:
    machine = running(FIGURE_3, 3)
    machine.handle(arrived("1-3", "drain", 1))
    where = ConnectionId("1-3")
    assert not machine.delivers(where, marker("drain", 2))
    assert machine.delivers(where, marker("reset", 0, 2))
    machine.handle(arrived("1-3", "reset", 0, 2))
    assert machine.phase is ElementPhase.RESETTING


def test_a_newer_attempt_supersedes_a_reset_under_way() -> None:
    machine = running(FIGURE_3, 3)
    machine.handle(arrived("1-3", "reset", 0, 2))
    assert machine.handle(arrived("2-3", "reset", 0, 3)) == []
    assert machine.blocked_links == {"2-3"}
    assert machine.handle(arrived("1-3", "reset", 0, 2)) == []
    assert machine.ignored == 1
    assert machine.handle(arrived("1-3", "reset", 0, 3)) == [Forward(marker("reset", 0, 3))]


def test_a_reset_abandons_the_epoch_under_way() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("drain", 1))
    assert machine.handle(reset(0, 2)) == [Forward(marker("reset", 0, 2)), *restored(1, 0, 2)]
    assert machine.handle(Resume(e(1), a(1), ())) == []
    assert machine.handle(begin("drain", 1, 1)) == []
    assert machine.handle(begin("drain", 2, 2))[-2:] == pinned(2, 2)


def test_a_start_may_hear_of_a_reset_from_a_control_link_first() -> None:
    machine = running(ASIDE, 1)
    commands = machine.handle(arrived("c", "reset", 0, 2))
    assert commands == [Forward(marker("reset", 0, 2)), *restored(1, 0, 2)]
    assert machine.handle(reset(0, 2)) == []
    assert machine.ignored == 1


@pytest.mark.parametrize(
    "stale",
    [begin("drain", 1, 1), begin("drain", 1, 2), begin("drain", 3, 1), reset(1, 1), GoOn(e(1), a(1), ())],
    ids=repr,
)
@pytest.mark.fault("N03")
def test_stale_messages_have_no_effect_and_are_counted(stale: BeginEpoch | BeginReset | GoOn) -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(reset(1, 2))
    machine.handle(GoOn(e(1), a(2), ()))
    assert machine.handle(stale) == []
    assert (machine.ignored, machine.phase) == (1, ElementPhase.RUNNING)


def test_control_messages_meant_for_starts_are_ignored_elsewhere() -> None:
    machine = running(FIGURE_3, 3)
    assert machine.handle(reset(0, 2)) == []
    assert machine.handle(begin("drain", 1)) == []
    assert machine.ignored == 2


# --- failures -------------------------------------------------------------------------------------------------------------


def test_a_broken_element_says_so_and_refuses_everything_but_a_newer_reset() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(begin("token", 1))
    assert machine.handle(Broke("disk")) == [Tell(ElementFailed(name(1), a(1), "disk"))]
    assert (machine.may_step, machine.may_read_sources) == (False, False)
    assert machine.handle(Broke("again")) == []
    assert machine.handle(UploadFinished(e(1), a(1))) == []
    assert machine.handle(begin("token", 2)) == []
    assert machine.handle(reset(0, 1)) == []
    assert machine.ignored == 4
    assert machine.handle(reset(0, 2))[-2:] == restored(1, 0, 2)


def test_an_element_that_breaks_while_resetting_waits_for_the_next_attempt() -> None:
    machine = running(FIGURE_3, 3)
    machine.handle(arrived("1-3", "reset", 0, 2))
    assert machine.handle(Broke("x")) == [Tell(ElementFailed(name(3), a(2), "x"))]
    assert machine.handle(arrived("2-3", "reset", 0, 2)) == []
    assert machine.ignored == 1
    machine.handle(arrived("2-3", "reset", 0, 3))
    assert machine.phase is ElementPhase.RESETTING


def test_two_epochs_at_a_time_are_a_violation_that_tells_the_story() -> None:
    machine = running(FIGURE_3, 3)
    machine.handle(arrived("1-3", "drain", 1))
    with pytest.raises(ProtocolViolation, match="op3 in phase aligning") as told:
        machine.handle(arrived("2-3", "drain", 2))
    assert "MarkerArrived(link='1-3'" in str(told.value)
    assert "-> running" in str(told.value)


# --- something happened -------------------------------------------------------------------------------------------------


def new_since(epoch: int, attempt: int = 1) -> Tell:
    return Tell(NewSince(e(epoch), a(attempt)))


def test_it_tells_once_behind_each_pin_that_something_happened() -> None:
    machine = running(FIGURE_3, 1)
    assert machine.handle(Stirred()) == [new_since(0)]
    assert machine.handle(Stirred()) == []
    assert pinned(1)[0] in machine.handle(begin("token", 1))
    assert not machine.has_stirred
    assert machine.handle(Stirred()) == [new_since(1)]


def test_what_happens_before_its_pin_belongs_to_the_epoch_under_way() -> None:
    machine = running(FIGURE_3, 3)
    machine.handle(begin("token", 1))
    assert machine.phase is ElementPhase.ALIGNING
    assert machine.handle(Stirred()) == [new_since(0)]


def test_after_a_reset_it_tells_anew_and_without_a_state_nothing() -> None:
    machine = running(FIGURE_3, 1)
    machine.handle(Stirred())
    machine.handle(Broke())
    assert machine.handle(Stirred()) == []
    machine.handle(reset(0, 2))
    assert not machine.has_stirred
    assert machine.handle(Stirred()) == [new_since(0, 2)], "also before it goes on: what a reset cost is new"
