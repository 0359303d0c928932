"""Who holds up an epoch, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.ids import ConnectionId, ElementName, Epoch
from holdfast.protocol.commands import UnderWay
from holdfast.protocol.element_phases import ElementPhase
from holdfast.runtime.region.holdups import ElementFacts, Holdup, holdups, sentence

A, B, C = map(ElementName, "abc")
AB, BC = ConnectionId("a--b"), ConnectionId("b--c")
RUNNING = ElementFacts(ElementPhase.RUNNING, False, False, frozenset())
ALIGNING = ElementFacts(ElementPhase.ALIGNING, True, False, frozenset())


def under_way(*silent: ElementName, asked: tuple[ElementName, ...] = (A,)) -> UnderWay:
    return UnderWay(Epoch(3), "drain", frozenset(silent), frozenset(asked))


@pytest.mark.parametrize(("facts", "expected"), [
    (replace(RUNNING, doing="step"), Holdup(A, "it has not begun: step", works=True)),
    (replace(ALIGNING, doing="step"), Holdup(A, "it drains: step", works=True)),
    (replace(ALIGNING, doing="step", call="drain() of operator slow, for 7 s"),
     Holdup(A, "it drains: step; it is in drain() of operator slow, for 7 s")),
    (RUNNING, Holdup(A, "it has not begun")),
    (replace(RUNNING, storing=True), Holdup(A, "its state is on its way into the store")),
    (replace(RUNNING, storing=True, call="process() of operator slow, for 7 s"),
     Holdup(A, "its state is on its way into the store; it is in process() of operator slow, for 7 s")),
    (replace(RUNNING, phase=ElementPhase.READYING, unready=("zip",)),
     Holdup(A, "operators may not be checkpointed yet", operators=("zip",))),
    (replace(RUNNING, phase=ElementPhase.BROKEN), Holdup(A, "it has no state: it failed, or is being restored")),
])  # fmt: skip
def test_an_element_with_a_reason_of_its_own_is_named(facts: ElementFacts, expected: Holdup) -> None:
    assert holdups(under_way(A), {A: facts}) == [expected]


def test_who_waits_for_a_marker_is_not_named_if_somebody_is_behind() -> None:
    waits = replace(RUNNING, inputs=frozenset({BC}))
    slow = replace(RUNNING, inputs=frozenset({AB}), ahead={AB: 70})
    found = holdups(under_way(B, C), {B: slow, C: waits})
    assert found == [Holdup(B, "it works on 70 rows ahead of the marker", (AB,))]
    assert sentence(found) == "b: it works on 70 rows ahead of the marker on a--b"


def test_if_nobody_is_behind_the_links_are_named_whose_marker_is_missing() -> None:
    waits = replace(ALIGNING, inputs=frozenset({BC}))
    assert holdups(under_way(C), {C: waits}) == [Holdup(C, "the marker has not come", (BC,))]


def test_an_element_that_is_ready_and_held_is_not_named() -> None:
    held = replace(RUNNING, phase=ElementPhase.HELD, inputs=frozenset({AB}), ahead={AB: 5})
    unready = replace(RUNNING, phase=ElementPhase.READYING, unready=("zip",))
    found = holdups(under_way(A, B, asked=()), {A: unready, B: held})
    assert [each.element for each in found] == [A]


def test_nobody_holds_up_what_everybody_has_answered() -> None:
    assert holdups(under_way(), {}) == []
    assert sentence([]) == ""
