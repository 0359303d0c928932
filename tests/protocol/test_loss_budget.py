"""What a loss budget decides, against a plain model, over thousands of histories."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import Account, Books, Loss, settle
from holdfast.protocol.autonomous import (
    AutonomousMachine,
    AutonomousPhase,
    Begin,
    Checkpointed,
    Gathered,
    InputsOver,
    Park,
    Recounted,
    Restored,
    StepDone,
    StepFailed,
    Stop,
    TellLoss,
    Unpark,
)
from holdfast.protocol.bounds.loss_budget import LossBudget, Standing, Use, budget_key, exceeded, judge

STATE, KEY = OperatorName("state"), budget_key(OperatorName("stream"))


def test_a_budget_that_is_used_up_is_not_exceeded() -> None:
    assert exceeded(LossBudget(rows=5), Use(lost=5)) == ()
    assert exceeded(LossBudget(rows=5), Use(lost=6)) == ("6 rows are lost, 5 may be",)
    assert exceeded(LossBudget(rows=0), Use(lost=0)) == ()
    assert exceeded(LossBudget(share=0.5), Use(lost=5, passed=5)) == ()
    assert exceeded(LossBudget(share=0.5), Use(lost=6, passed=5)) != ()
    assert exceeded(LossBudget(share=0.0), Use(lost=0, passed=0)) == ()
    assert exceeded(LossBudget(seconds=2.0), Use(lost=1, seconds=2.0)) == ()
    assert exceeded(LossBudget(seconds=2.0), Use(lost=1, seconds=2.5)) != ()


def test_each_bound_holds_by_itself() -> None:
    both = LossBudget(rows=10, share=0.1)
    assert len(exceeded(both, Use(lost=11, passed=1000))) == 1
    assert len(exceeded(both, Use(lost=9, passed=9))) == 1
    assert len(exceeded(both, Use(lost=11, passed=11))) == 2
    assert exceeded(both, Use(lost=10, passed=90)) == ()


@pytest.mark.parametrize("seed", range(40))
def test_it_is_told_once_for_each_time_that_more_is_lost_than_a_person_accepted(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        budget = LossBudget(rows=chance.randrange(20), then=chance.choice(("warn", "park", "consistent")))
        assert budget.rows is not None
        standing, lost, accepted, told_at = Standing(), 0, 0, None
        for _ in range(chance.randrange(1, 60)):
            what = chance.random()
            if what < 0.6:
                lost += chance.randrange(4)
            elif what < 0.7:
                if standing.is_over:
                    accepted, told_at = lost, None
                standing = standing.resumed(Use(lost))
            elif what < 0.8:  # a restart forgets whether it was told, and nothing else
                standing, told_at = replace(standing, is_over=False), None
            found = judge(budget, standing, Use(lost))
            is_over = lost - accepted > budget.rows
            assert bool(found.reasons) == is_over == found.standing.is_over
            assert (found.then is not None) == (is_over and told_at is None)
            assert found.then in (None, budget.then)
            told_at = lost if is_over else None
            standing = found.standing
            assert not standing.is_consistent or budget.then == "consistent"


def test_what_became_consistent_stays_so() -> None:
    budget = LossBudget(rows=1, then="consistent")
    after = judge(budget, Standing(), Use(lost=2)).standing
    assert after.is_consistent
    assert judge(replace(budget, rows=100), after, Use(lost=2)).standing.is_consistent


# --- what is counted --------------------------------------------------------------------------------------------------


def machine(kept: bool = True) -> AutonomousMachine:
    account = Account(
        ElementName("e"), 1, absorbed={STATE: 0}, reach=(KEY,), reach_of={STATE: (KEY,)}, passed={KEY: 0}
    )
    made = AutonomousMachine(account, (STATE,), frozenset({STATE} if kept else ()))
    made.handle(Begin())
    made.handle(Restored(STATE))
    return made


def step(made: AutonomousMachine, rows: int, at: float, failure: StepFailed | None = None) -> None:
    made.handle(Gathered({}, rows, at))
    made.handle(StepDone() if failure is None else failure)


@pytest.mark.parametrize("seed", range(20))
def test_rows_pass_or_are_lost_and_states_go_back_as_far_as_their_checkpoints_are_old(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        made, now, passed, lost, back = machine(), 100.0, 0, 0, 0.0
        since: float | None = None
        absorbed = 0
        for _ in range(chance.randrange(40)):
            now += chance.choice((0.0, 0.5, 1.0, 7.0))
            rows, what = chance.randrange(1, 9), chance.random()
            if what < 0.5:
                step(made, rows, now)
                passed, absorbed, since = passed + rows, absorbed + rows, now if since is None else since
            elif what < 0.6 and since is not None:
                made.handle(Recounted(rows))
                passed, absorbed = passed + rows, absorbed + rows
            elif 0.6 <= what < 0.75:
                step(made, rows, now, StepFailed("no", rows))
                since, lost = since if absorbed else None, lost + rows
            elif 0.75 <= what < 0.85:
                step(made, rows, now, StepFailed("no", rows, frozenset({STATE})))
                made.handle(Restored(STATE))
                lost, back = lost + rows + absorbed, back + now - (now if since is None else since)
                absorbed, since = 0, None
            elif what >= 0.85:
                made.handle(Checkpointed(STATE))
                absorbed, since = 0, None
            if made.discards:
                break
            account = made.account
            assert (account.passed[KEY], account.lost.get(KEY, 0)) == (passed, lost)
            assert account.set_back.get(KEY, 0.0) == pytest.approx(back)


def test_a_kill_sets_a_state_back_to_its_checkpoint() -> None:
    made = machine()
    step(made, 5, 10.0)
    made.handle(Checkpointed(STATE))
    step(made, 5, 20.0)
    made.handle(Gathered({}, 3, 26.0))
    after, losses = settle(Books({ElementName("e"): made.account}), 2)
    found = after[ElementName("e")]
    assert (found.lost[KEY], found.set_back[KEY], found.passed[KEY]) == (8, 6.0, 10)
    assert [loss.rows for loss in losses] == [8]
    again, losses = settle(Books(after), 3)
    assert again[ElementName("e")].set_back == found.set_back
    assert losses == []


def test_losses_at_once_count_once() -> None:
    both = [Loss(ElementName("e"), 3, "", (KEY,), 2.0), Loss(ElementName("e"), 5, "", (KEY,), 1.0)]
    after = Account(ElementName("e"), 1).losing(both)
    assert (after.lost, after.set_back) == ({KEY: 5}, {KEY: 2.0})


# --- parking ----------------------------------------------------------------------------------------------------------


def test_what_is_parked_takes_nothing_until_somebody_resumes() -> None:
    made = machine()
    made.handle(Park())
    assert made.is_parked
    assert not made.may_step
    assert not made.may_read_sources
    assert not made.discards
    made.handle(Unpark())
    assert made.may_read_sources


def test_what_is_parked_and_stopped_works_off_what_was_taken_and_ends() -> None:
    made = machine()
    made.handle(Park())
    made.handle(Stop())
    assert made.phase is AutonomousPhase.DRAINING
    assert not made.may_read_sources
    made.handle(Park())
    assert made.phase is AutonomousPhase.DRAINING, "it comes to its end"
    made.handle(InputsOver())
    assert made.phase is AutonomousPhase.ENDED


def test_what_gave_up_is_not_parked() -> None:
    made = machine()
    while not made.discards:
        step(made, 1, 0.0, StepFailed("no", 1))
    assert not [c for c in made.handle(Park()) if isinstance(c, TellLoss)]
    assert made.discards
    assert ConnectionId("in") not in made.account.taken
