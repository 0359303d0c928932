"""Modes drain and token: an element that can be pinned at certain points only gets its input up to the marker, and waits there."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, RegionName
from holdfast.protocol import messages
from holdfast.protocol.controller import RegionController
from holdfast.protocol.element import ElementMachine
from holdfast.protocol.element_phases import ElementPhase
from holdfast.protocol.shape import Link, RegionShape

A, B, C = map(ElementName, "abc")
AB, BC = ConnectionId("a-b"), ConnectionId("b-c")
SHAPE = RegionShape(RegionName("r"), (A, B, C), (Link(AB, A, B), Link(BC, B, C)), frozenset({B}))
ONE, FIRST = Epoch(1), Attempt(1)


def running() -> ElementMachine:
    machine = ElementMachine(SHAPE, B)
    machine.handle(messages.MarkerArrived(AB, messages.Marker("reset", Epoch(0), FIRST)))
    machine.handle(messages.GoOn(Epoch(0), FIRST, SHAPE.elements))
    assert machine.phase is ElementPhase.RUNNING
    return machine


@pytest.mark.parametrize(
    ("style", "after"), [("drain", ElementPhase.PAUSED), ("cascade", ElementPhase.STORING)]
)
def test_the_pin_waits_behind_the_marker_until_operators_are_ready(style: Any, after: ElementPhase) -> None:
    machine = running()
    commands = machine.handle(messages.MarkerArrived(AB, messages.Marker(style, ONE, FIRST)))
    assert messages.RunDrain(ONE) in commands
    assert not any(isinstance(each, messages.Pin) for each in commands)
    assert machine.phase is ElementPhase.DRAINED
    assert machine.fate(AB) == "wait"
    awaited = machine.awaits_operators
    assert awaited == messages.OperatorsReady(ONE, FIRST)
    commands = machine.handle(awaited)
    assert commands == [messages.Pin(ONE, FIRST), messages.Upload(ONE, FIRST)]
    assert machine.phase is after
    assert machine.awaits_operators is None


def test_a_cascade_goes_on_only_when_the_pin_is_durable() -> None:
    machine = running()
    machine.handle(messages.MarkerArrived(AB, messages.Marker("cascade", ONE, FIRST)))
    machine.handle(messages.OperatorsReady(ONE, FIRST))
    commands = machine.handle(messages.UploadFinished(ONE, FIRST))
    assert messages.Forward(messages.Marker("cascade", ONE, FIRST)) in commands


def established(mode: Any, **due: bool) -> list[Any]:
    controller = RegionController(SHAPE, mode, 5)
    controller.handle(messages.Start(Epoch(0), None))
    for element in SHAPE.elements:
        controller.handle(messages.ResetAcked(element, Epoch(0), controller.record.attempt))
    return controller.handle(messages.EpochDue(**due))


@pytest.mark.parametrize(("mode", "style"), [("drain", "drain"), ("token", "cascade")])
def test_nobody_is_asked_to_be_ready_before_the_marker(mode: Any, style: str) -> None:
    commands = established(mode)
    assert not any(isinstance(each, messages.Prepare) for each in commands)
    (begin,) = [each for each in commands if isinstance(each, messages.BeginEpoch)]
    assert (begin.style, begin.elements) == (style, (A,))


@pytest.mark.parametrize("mode", ["drain", "token", "async"])
@pytest.mark.parametrize("due", [{"final": True}, {"drained": True}])
def test_a_stop_and_a_savepoint_come_at_a_point_wherever_it_is(mode: Any, due: Any) -> None:
    (prepare,) = [each for each in established(mode, **due) if isinstance(each, messages.Prepare)]
    assert prepare.elements == (B,)
