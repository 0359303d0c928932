"""What an element outside of regions does, event by event."""

from __future__ import annotations

import pytest

from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import Account
from holdfast.protocol.autonomous import (
    MAX_CONSECUTIVE_FAILURES,
    AutonomousCommand,
    AutonomousMachine,
    AutonomousPhase,
    Begin,
    CheckpointDue,
    Checkpointed,
    CheckpointOperator,
    Discarded,
    End,
    Gathered,
    GiveUp,
    GoOnFromBefore,
    InputsOver,
    NotCheckpointed,
    Recounted,
    Rest,
    Restored,
    RestoreOperator,
    RunStep,
    SaveAccount,
    StepDone,
    StepFailed,
    Stirred,
    Stop,
    TellLoss,
)
from holdfast.protocol.phases import ProtocolViolation

IN, OUT = ConnectionId("in"), ConnectionId("out")
KEPT, FRESH = OperatorName("kept"), OperatorName("fresh")
SINK, ASIDE = OperatorName("sink"), OperatorName("aside")
BOTH = frozenset({KEPT, FRESH})


def machine(*, begun: bool = True) -> AutonomousMachine:
    """Two operators with state before one of two sinks; one of them stores checkpoints."""
    account = Account(
        ElementName("element"),
        3,
        taken={IN: 10},
        sent={OUT: 10},
        absorbed={KEPT: 0, FRESH: 0},
        reach=(SINK, ASIDE),
        reach_of={KEPT: (SINK,), FRESH: (SINK,)},
    )
    made = AutonomousMachine(account, (KEPT, FRESH), frozenset({KEPT}))
    if begun:
        made.handle(Begin())
        made.handle(Restored(KEPT))
        made.handle(Restored(FRESH))
    return made


def step(element: AutonomousMachine, rows: int = 4) -> None:
    """A step that ends well."""
    element.handle(Gathered({IN: element.account.taken[IN] + rows}, rows))
    element.handle(StepDone({OUT: rows}))


def kinds(commands: list[AutonomousCommand]) -> list[type]:
    return [type(command) for command in commands]


# --- steps ----------------------------------------------------------------------------------------------------------------


def test_it_restores_its_operators_before_anything_else() -> None:
    element = machine(begun=False)
    assert not element.may_step
    assert element.handle(Begin()) == [RestoreOperator(KEPT), RestoreOperator(FRESH)]
    assert element.may_step
    assert element.may_read_sources


def test_it_saves_what_a_step_takes_before_it_runs_the_step() -> None:
    element = machine()
    save, run = element.handle(Gathered({IN: 14}, 4))
    assert isinstance(run, RunStep)
    assert isinstance(save, SaveAccount)
    account = save.account
    assert (account.step, account.taken, account.sent, account.in_flight) == (1, {IN: 14}, {OUT: 10}, 4)
    assert account.absorbed == {KEPT: 0, FRESH: 0}, "the step under way excluded"


def test_a_step_that_ended_is_in_states_and_on_its_way() -> None:
    element = machine()
    step(element)
    assert (element.account.in_flight, element.account.sent) == (0, {OUT: 14})
    assert element.account.absorbed == {KEPT: 4, FRESH: 4}
    assert element.account.lost == {}


def test_rows_that_a_step_gave_back_are_not_taken() -> None:
    element = machine()
    element.handle(Gathered({IN: 14}, 4))
    element.handle(StepDone({OUT: 3}, 1, {IN: 13}))
    assert element.account.taken == {IN: 13}
    assert element.account.absorbed == {KEPT: 3, FRESH: 3}


def test_rows_that_are_counted_late_are_absorbed_by_all_operators() -> None:
    element = machine()
    step(element, rows=0)
    element.handle(Recounted(6))
    assert element.account.absorbed == {KEPT: 6, FRESH: 6}


def test_a_rest_saves_what_changed_and_nothing_else() -> None:
    element = machine()
    step(element)
    assert element.handle(Rest()) == [SaveAccount(element.account)]
    assert element.handle(Rest()) == []


# --- failures -------------------------------------------------------------------------------------------------------------


def test_a_failed_step_costs_its_rows_and_operators_go_on_from_before_it() -> None:
    element = machine()
    step(element)
    element.handle(Gathered({IN: 19}, 5))
    told, go_on = element.handle(StepFailed("boom", 5, sent={OUT: 2}))
    assert isinstance(told, TellLoss)
    assert (told.loss.rows, told.loss.sinks, told.loss.reason) == (5, (SINK, ASIDE), "boom")
    assert go_on == GoOnFromBefore((KEPT, FRESH))
    account = element.account
    assert (account.in_flight, account.sent, account.absorbed) == (0, {OUT: 16}, {KEPT: 4, FRESH: 4})
    assert account.lost == {SINK: 5, ASIDE: 5}


def test_a_spoiled_operator_costs_what_it_absorbed_and_is_restored() -> None:
    element = machine()
    step(element)
    element.handle(Gathered({IN: 19}, 5))
    told, go_on, restore = element.handle(StepFailed("boom", 5, frozenset({KEPT})))
    assert isinstance(told, TellLoss)
    assert told.loss.rows == 9
    assert (go_on, restore) == (GoOnFromBefore((FRESH,)), RestoreOperator(KEPT))
    assert element.account.absorbed == {KEPT: 0, FRESH: 4}
    assert element.account.lost == {SINK: 9, ASIDE: 5}


def test_two_spoiled_operators_cost_the_same_rows_once() -> None:
    element = machine()
    step(element)
    element.handle(Gathered({IN: 19}, 5))
    commands = element.handle(StepFailed("boom", 5, BOTH))
    assert kinds(commands) == [TellLoss, RestoreOperator, RestoreOperator]
    assert element.account.lost == {SINK: 9, ASIDE: 5}
    assert element.account.lost_rows == 9


def test_a_failed_step_without_rows_is_no_loss() -> None:
    element = machine()
    element.handle(Gathered({}, 0))
    assert kinds(element.handle(StepFailed("boom", 0))) == [GoOnFromBefore]


def fail_for_good(
    element: AutonomousMachine, spoiled: frozenset[OperatorName] = frozenset()
) -> list[AutonomousCommand]:
    """Fail until it gives up; returns what it did then."""
    for _ in range(MAX_CONSECUTIVE_FAILURES):
        element.handle(Gathered({}, 1))
        element.handle(StepFailed("boom", 1))
    element.handle(Gathered({}, 1))
    return element.handle(StepFailed("boom", 1, spoiled))


def test_it_gives_up_after_too_many_failures_in_a_row() -> None:
    element = machine()
    commands = fail_for_good(element)
    assert kinds(commands) == [TellLoss, GoOnFromBefore, GiveUp]
    assert element.discards
    assert not element.may_step
    assert not element.may_read_sources


def test_a_step_that_ends_well_forgives_the_failures_before_it() -> None:
    element = machine()
    for _ in range(2):
        for _ in range(MAX_CONSECUTIVE_FAILURES):
            element.handle(Gathered({}, 1))
            element.handle(StepFailed("boom", 1))
        step(element)
    assert element.phase is AutonomousPhase.RUNNING


def test_what_it_discards_is_counted() -> None:
    element = machine()
    fail_for_good(element)
    before = element.account.lost[SINK]
    (told,) = element.handle(Discarded({IN: 17}, 7))
    assert isinstance(told, TellLoss)
    assert told.loss.rows == 7
    assert element.account.taken == {IN: 17}
    assert element.account.lost[SINK] == before + 7


# --- own checkpoints ------------------------------------------------------------------------------------------------------


def test_the_account_is_saved_before_a_checkpoint() -> None:
    element = machine()
    step(element)
    assert element.handle(CheckpointDue(BOTH)) == [SaveAccount(element.account), CheckpointOperator(KEPT)]
    element.handle(Checkpointed(KEPT))
    assert element.account.absorbed == {KEPT: 0, FRESH: 4}


def test_an_operator_in_which_nothing_happened_stores_none() -> None:
    element = machine()
    due = CheckpointDue(BOTH)
    assert element.handle(due) == [], "it has what was restored"
    step(element)
    assert CheckpointOperator(KEPT) in element.handle(due)
    assert element.handle(due) == []
    element.handle(Checkpointed(KEPT))
    assert element.handle(due) == []
    step(element, rows=0)
    assert CheckpointOperator(KEPT) in element.handle(due), "a step without rows may move time on"


def test_a_checkpoint_that_could_not_be_stored_is_tried_again() -> None:
    element = machine()
    step(element)
    element.handle(CheckpointDue(BOTH))
    element.handle(NotCheckpointed(KEPT))
    assert CheckpointOperator(KEPT) in element.handle(CheckpointDue(BOTH))


def test_what_happened_while_a_checkpoint_was_on_its_way_is_for_the_next_one() -> None:
    element = machine()
    step(element)
    element.handle(CheckpointDue(BOTH))
    step(element)
    element.handle(Checkpointed(KEPT))
    assert CheckpointOperator(KEPT) in element.handle(CheckpointDue(BOTH))


def test_threads_are_something_that_happens_and_some_must_store_in_any_case() -> None:
    element = machine()
    element.handle(Stirred(frozenset({KEPT})))
    assert CheckpointOperator(KEPT) in element.handle(CheckpointDue(BOTH))
    element.handle(Checkpointed(KEPT))
    assert CheckpointOperator(KEPT) in element.handle(CheckpointDue(BOTH, must=frozenset({KEPT})))


def test_operators_that_store_checkpoints_from_now_on_have_one_to_store() -> None:
    element = machine()
    element.keeps(BOTH)
    assert element.stirred == {FRESH}


def test_the_end_is_stored_although_nothing_happened() -> None:
    assert kinds(machine().handle(InputsOver())) == [SaveAccount, CheckpointOperator, End]


def test_an_operator_without_checkpoints_of_its_own_stores_none() -> None:
    element = machine()
    step(element)
    assert element.handle(CheckpointDue(frozenset({FRESH}))) == []


def test_state_that_a_failure_spoiled_is_never_stored() -> None:
    element = machine()
    fail_for_good(element, frozenset({KEPT}))
    assert kinds(element.handle(InputsOver())) == [SaveAccount, End]


def test_damage_is_counted_saved_and_then_replaced_by_another_checkpoint() -> None:
    element = machine(begun=False)
    element.handle(Begin())
    told, save, store = element.handle(Restored(KEPT, 6, "damaged"))
    assert isinstance(told, TellLoss)
    assert (told.loss.rows, told.loss.sinks) == (6, (SINK,))
    assert isinstance(save, SaveAccount)
    assert save.account.lost == {SINK: 6}
    assert store == CheckpointOperator(KEPT)


# --- the end --------------------------------------------------------------------------------------------------------------


def test_after_a_stop_sources_are_read_no_more_but_inputs_are_worked_off() -> None:
    element = machine()
    assert element.handle(Stop()) == []
    assert element.may_step
    assert not element.may_read_sources
    step(element)
    assert kinds(element.handle(InputsOver())) == [SaveAccount, CheckpointOperator, End]
    assert element.phase is AutonomousPhase.ENDED


def test_a_stop_changes_nothing_for_an_element_that_gave_up() -> None:
    element = machine()
    fail_for_good(element)
    assert element.handle(Stop()) == []
    assert element.discards


def test_it_cannot_end_before_it_begins() -> None:
    with pytest.raises(ProtocolViolation, match="from new to ended"):
        machine(begun=False).handle(InputsOver())
