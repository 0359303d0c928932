"""Permits: thousands of interleavings of threads that ask, hold and release, of an owner, and of closing and opening."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from holdfast.protocol.permits import OWNER, PERMIT_MOVES, Asked, PermitMachine, PermitPhase, Who
from holdfast.protocol.phases import ProtocolViolation, legal_moves

SCHEDULES = 4000
TURNS = 60


class Broken(AssertionError):
    """A rule was broken."""


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


class World:
    """Threads and an owner who do at random what they may; keeps its own account of who has what."""

    def __init__(self, machine: PermitMachine, seed: int) -> None:
        self.machine = machine
        self.chance = random.Random(seed)
        self.people: list[Who] = [OWNER, *range(1 + self.chance.randrange(4))]
        self.asked: dict[Who, bool] = {}
        self.held: dict[Who, bool] = {}
        """Who has one → is it shared?"""
        self.nested: Counter[Who] = Counter()
        self.order: list[Who] = []
        """Those who wait, in the order of asking."""
        self.wants_open = False

    def run(self) -> None:
        for _ in range(TURNS):
            self.turn()
        # Whatever happened: if everybody gives back what he has and it is open, everybody gets his turn.
        self.machine.open()
        self.notice()
        for _ in range(100):
            for who in list(self.held):
                self.release(who)
        demand(not self.order, f"{self.order} wait for ever")

    def turn(self) -> None:
        dice = self.chance.random()
        who = self.chance.choice(self.people)
        if dice < 0.1:
            before = [one for one in self.held if one != OWNER]
            self.machine.close()
            demand(set(before) <= set(self.held), "closing takes a permit away")
        elif dice < 0.2:
            self.machine.open()
        elif who in self.order:
            if dice < 0.3:
                self.order.remove(who)
                self.machine.withdraw(who)
        elif who in self.held and self.chance.random() < 0.7:
            self.release(who)
            return
        else:
            self.ask(who)
        self.notice()

    def ask(self, who: Who) -> None:
        shared = who != OWNER and self.chance.random() < 0.3
        if who in self.held:
            shared = self.held[who] or shared
            self.machine.ask(who, shared)
            self.nested[who] += 1
            demand(self.machine.has(who), "who has one gets it again")
            return
        self.asked[who] = shared
        self.order.append(who)
        self.machine.ask(who, shared)

    def release(self, who: Who) -> None:
        self.machine.release(who)
        if self.nested[who]:
            self.nested[who] -= 1
            demand(self.machine.has(who), "a permit had twice and given back once is still there")
        else:
            del self.held[who]
            demand(not self.machine.has(who), "given back and still there")
        self.notice()

    def notice(self) -> None:
        """What the machine did, judged."""
        let_in = [who for who in self.order if self.machine.has(who)]
        phase = self.machine.phase
        for who in let_in:
            may_be = who == OWNER or phase is PermitPhase.OPEN
            demand(may_be, f"{who} is let in while it is {phase}")
            ahead = self.order[: self.order.index(who)]
            eligible = [one for one in ahead if one == OWNER or phase is PermitPhase.OPEN]
            demand(not eligible or all(one in let_in for one in eligible), f"{who} overtakes {eligible}")
            self.held[who] = self.asked[who]
            self.order.remove(who)
        alone = [who for who, shared in self.held.items() if not shared]
        demand(
            not alone or len(self.held) == 1, f"{alone} should be alone, but {list(self.held)} have permits"
        )
        if phase is PermitPhase.CLOSED:
            demand(not set(self.held) - {OWNER}, f"closed, but {list(self.held)} have permits")


def played(make: type[PermitMachine], schedules: int) -> set[tuple[PermitPhase, PermitPhase]]:
    taken: set[tuple[PermitPhase, PermitPhase]] = set()
    for seed in range(schedules):
        machine = make("op")
        World(machine, seed).run()
        taken |= machine.taken
    return taken


def test_no_interleaving_breaks_a_rule_and_every_move_is_taken() -> None:
    assert played(PermitMachine, SCHEDULES) == legal_moves(PERMIT_MOVES)


class LetsInWhileClosing(PermitMachine):
    def _let_in(self) -> None:
        phase, self.phase = self.phase, PermitPhase.OPEN if self.phase is PermitPhase.CLOSING else self.phase
        super()._let_in()
        self.phase = phase


class ClosesWithPermitsOut(PermitMachine):
    def close(self) -> None:
        if self.phase is PermitPhase.OPEN:
            self._move(PermitPhase.CLOSED)


class LetsSeveralIn(PermitMachine):
    def _fits(self, asked: Asked) -> bool:
        return True


class LetsOthersOvertake(PermitMachine):
    def ask(self, who: Who, shared: bool = False) -> None:
        self._queue.reverse()
        super().ask(who, shared)


class ForgetsTheSecondPermit(PermitMachine):
    def release(self, who: Who) -> None:
        self._holders[who] = 1
        super().release(who)


class ForgetsWhoWaits(PermitMachine):
    def open(self) -> None:
        if self.phase is not PermitPhase.OPEN:
            self._move(PermitPhase.OPEN)
            self._queue.clear()


@pytest.mark.parametrize(
    "defect",
    [
        LetsInWhileClosing,
        ClosesWithPermitsOut,
        LetsSeveralIn,
        LetsOthersOvertake,
        ForgetsTheSecondPermit,
        ForgetsWhoWaits,
    ],
)
@pytest.mark.planted
def test_a_planted_defect_is_found(defect: type[PermitMachine]) -> None:
    with pytest.raises((Broken, ProtocolViolation)):
        played(defect, 300)


def test_a_shared_permit_does_not_become_one_for_oneself() -> None:
    machine = PermitMachine("op")
    machine.open()
    machine.ask("a", shared=True)
    machine.ask("b", shared=True)
    assert machine.has("a")
    assert machine.has("b")
    with pytest.raises(ProtocolViolation, match="shared permit"):
        machine.ask("a")


def test_who_releases_what_he_does_not_have_is_told() -> None:
    with pytest.raises(ProtocolViolation, match="does not have"):
        PermitMachine("op").release("a")
