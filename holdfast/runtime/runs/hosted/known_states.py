"""States of a Python operator that are remembered beside the one it has, as long as they are small."""

from __future__ import annotations

from collections.abc import Callable

REMEMBERED_BYTES = 256 << 10
"""A state of up to this size is remembered."""
FORGETFUL_STEPS = 100
"""After a larger one was met, so many times pass until its size is looked at again."""
COMPARED_BYTES = 4 << 10
"""A state of up to this size is compared after each step with the one that a restart would find."""


class SmallStates:
    """Encodes a state in order to remember it. A large one is not looked at again for a while, since that alone costs."""

    def __init__(self) -> None:
        self._passes = 0

    @property
    def are_large(self) -> bool:
        return self._passes > 0

    def take(self, encode: Callable[[], bytes]) -> bytes | None:
        """The state; None if it is, or lately was, too large."""
        if self._passes:
            self._passes -= 1
            return None
        state = encode()
        if len(state) <= REMEMBERED_BYTES:
            return state
        self._passes = FORGETFUL_STEPS
        return None


class KnownStates:
    """Of an operator outside of regions: the state before its step, and the one that a restart would find. None: not known."""

    def __init__(self) -> None:
        self._small = SmallStates()
        self._before: bytes | None = None
        self._stored: bytes | None = None
        self._on_its_way: tuple[bytes | None] | None = None

    def remember(self, encode: Callable[[], bytes]) -> None:
        """A step begins."""
        self._before = self._small.take(encode)

    def forget(self) -> None:
        """There is no state to go back to."""
        self._before = None

    def take_before(self) -> bytes | None:
        """The state before the step; it is given once."""
        before, self._before = self._before, None
        return before

    def restored(self, take: Callable[[], bytes]) -> None:
        """The state is what a restart would find."""
        self._stored, self._on_its_way = self._unless_large(take), None

    def pinned(self, take: Callable[[], bytes]) -> None:
        """The state is on its way into the store: a restart finds it, or the one before."""
        self._on_its_way = (self._unless_large(take),)

    def arrived(self, is_durable: bool) -> None:
        """What was pinned is stored, or never will be."""
        if is_durable and self._on_its_way is not None:
            (self._stored,) = self._on_its_way
        self._on_its_way = None

    def is_as_stored(self, take: Callable[[], bytes]) -> bool:
        """After a step: True if a restart would find this very state. False also if that is not cheap to tell."""
        if self._before is None or len(self._before) > COMPARED_BYTES:
            return False
        state = take()
        return state == self._stored and self._on_its_way in (None, (state,))

    def _unless_large(self, take: Callable[[], bytes]) -> bytes | None:
        return None if self._small.are_large else take()
