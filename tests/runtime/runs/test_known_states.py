"""States that are remembered beside the one that a Python operator has."""

from __future__ import annotations

import pytest

from holdfast.runtime.runs.hosted import known_states
from holdfast.runtime.runs.hosted.known_states import KnownStates, SmallStates


def test_a_large_state_is_not_looked_at_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_states, "REMEMBERED_BYTES", 3)
    monkeypatch.setattr(known_states, "FORGETFUL_STEPS", 2)
    small, looked = SmallStates(), []

    def take(state: bytes) -> bytes | None:
        def encode() -> bytes:
            looked.append(state)
            return state

        return small.take(encode)

    assert [take(state) for state in (b"abc", b"abcd", b"a", b"b", b"c")] == [b"abc", None, None, None, b"c"]
    assert looked == [b"abc", b"abcd", b"c"]


def test_the_state_before_a_step_is_given_once() -> None:
    known = KnownStates()
    known.remember(lambda: b"one")
    assert (known.take_before(), known.take_before()) == (b"one", None)
    known.remember(lambda: b"two")
    known.forget()
    assert known.take_before() is None


@pytest.mark.parametrize(("is_durable", "found"), [(True, b"pinned"), (False, b"restored")])
def test_a_restart_finds_what_arrived_in_the_store(is_durable: bool, found: bytes) -> None:
    known = KnownStates()
    known.remember(lambda: b"small")
    known.restored(lambda: b"restored")
    assert known.is_as_stored(lambda: b"restored")
    known.pinned(lambda: b"pinned")
    # Until it has arrived a restart may find either.
    assert not known.is_as_stored(lambda: b"restored")
    assert not known.is_as_stored(lambda: b"pinned")
    known.arrived(is_durable)
    assert [state for state in (b"restored", b"pinned") if known.is_as_stored(lambda s=state: s)] == [found]


def test_a_state_that_is_dear_to_compare_counts_as_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_states, "COMPARED_BYTES", 3)
    known = KnownStates()
    known.restored(lambda: b"same")
    known.remember(lambda: b"same")
    assert not known.is_as_stored(lambda: b"same")
    known.remember(lambda: b"abc")
    assert known.is_as_stored(lambda: b"same")
