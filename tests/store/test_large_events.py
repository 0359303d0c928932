"""Large events: parts in the store, whole for readers, nothing at all of what is damaged."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from holdfast.store.events.as_bytes import EVENT_BYTES_MAX, encode_event
from holdfast.store.events.large import PART, joined, parted
from holdfast.store.events.values import Event

DRAW = Random(17)
LARGE = {str(number): DRAW.getrandbits(64) for number in range(4000)}


def stored(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(number, 1.0, kind, data) for number, (kind, data) in enumerate(parted(events))]


def test_each_part_is_small_enough_for_every_store() -> None:
    for event in stored(("summary", LARGE), ("k" * 1000, LARGE), ("k", {"text": '"\\' * 7000})):
        found = json.loads(encode_event(event.kind, event.data, "0" * 20))
        assert "left_out_bytes" not in found[-1]
        assert len(encode_event(event.kind, event.data, "0" * 20)) <= EVENT_BYTES_MAX


def test_small_events_are_stored_as_they_are() -> None:
    assert parted([("a", {"b": 1})]) == [("a", {"b": 1})]


def test_what_repeats_itself_takes_little_space() -> None:
    status = {
        "elements": {f"element_{n}": {"rows": n, "waiting": "input", "failures": 0} for n in range(500)}
    }
    assert len(json.dumps(status)) > EVENT_BYTES_MAX
    assert len(parted([("summary", status)])) == 1
    assert [event.data for event in joined(stored(("summary", status)))] == [status]


def test_what_no_store_should_hold_is_told_by_its_size() -> None:
    huge = {"text": Random(1).randbytes(1 << 20).hex()}
    ((kind, data),) = parted([("summary", huge)])
    assert kind == "summary"
    assert data["left_out_bytes"] > 1 << 20


@pytest.mark.parametrize(
    "damage",
    [
        {"packed": "?" * 1000},
        {"packed": ""},
        {"packed": 5},
        {"part": 2},
        {"part": "1"},
        {"of": None, "packed": None},
    ],
)
def test_an_event_with_a_damaged_part_is_left_out_and_no_other(damage: dict[str, Any]) -> None:
    events = stored(("a", {}), ("summary", LARGE), ("b", {}))
    assert events[2].kind == PART
    events[2] = replace(events[2], data={**events[2].data, **damage})
    assert [event.kind for event in joined(events)] == ["a", "b"]


def test_an_event_that_lacks_a_part_is_left_out() -> None:
    events = stored(("a", {}), ("summary", LARGE), ("summary", {"n": 1}))
    parts = [event for event in events if event.kind == PART]
    for lost in parts:
        left = [event for event in events if event is not lost]
        assert [event.data for event in joined(left)] == [{}, {"n": 1}]
