"""When a run looks for commands: often; but where each request costs money the more seldom, the longer nothing has happened."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.store.base import Store

MAIL_S = 0.25
DEAR_MAIL_S = 2.0
"""Where each look costs money."""
PATIENCE = 10
"""After so many times as long without anything new it waits so much longer for the next look."""
RESTS_S = 60.0
"""After so long without anything new the store may show fewer signs of life."""


class Looks:
    """`due` is true when it is time for the next look. `still_s`: for how long nothing has been new."""

    def __init__(self, store: Store | None, clock: Clock, still_s: Callable[[], float]) -> None:
        self._store, self._clock, self._still_s = store, clock, still_s
        self._last = float("-inf")

    def due(self) -> bool:
        if self._store is None:
            return False
        still_s, now = self._still_s(), self._clock.monotonic()
        self._store.rest(still_s >= RESTS_S)
        if now - self._last < self._wait_s(self._store, still_s):
            return False
        self._last = now
        return True

    @staticmethod
    def _wait_s(store: Store, still_s: float) -> float:
        if not store.pays_for_writes:
            return MAIL_S
        return max(DEAR_MAIL_S, min(store.commands_s, still_s / PATIENCE))
