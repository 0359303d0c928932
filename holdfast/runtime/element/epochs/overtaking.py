"""Tokens go ahead of the batches that wait before them in a queue, if that takes long (mode `async`)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.ids import ConnectionId
from holdfast.protocol import messages
from holdfast.runtime.links.connection import Connection, Signals

OVERTAKE_S = 0.2
"""How long a token waits for the batches ahead of it before it overtakes them."""


class Overtaking:
    """Of one element. Called by its thread."""

    def __init__(self, inputs: Mapping[ConnectionId, Connection], signals: Signals, clock: Clock) -> None:
        self._inputs = inputs
        self._signals = signals
        self._clock = clock
        self._since: float | None = None

    def due(
        self, awaited: tuple[messages.Marker, frozenset[ConnectionId]] | None, at_once: bool
    ) -> messages.TokensWait | None:
        """What to tell the machine, if the token it awaits has waited for long enough, or nothing is to be waited for, and lies
        in all links that have not delivered it."""
        if awaited is None:
            self._since = None
            return None
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        token, missing = awaited
        if not missing or (now - self._since < OVERTAKE_S and not at_once):
            return None
        with self._signals.condition:
            ahead = [self._inputs[id].ahead_of(token) for id in missing]
        if any(batches is None for batches in ahead):
            return None
        return messages.TokensWait(token.epoch, token.attempt, missing)

    def over(self) -> None:
        """The epoch is pinned."""
        self._since = None
