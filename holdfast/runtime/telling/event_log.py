"""The subscriber that keeps events in the store's event log. Never fails the run: the log is for people.

A summary that says what the one before it said is left out, but for one now and then, so that an idle run writes next to nothing. The last
one left out comes with the next that says something new: so readers know until when all was as it had been.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError
from holdfast.runtime.telling.events import RunEvent, Summary
from holdfast.runtime.telling.stored_events import encode
from holdfast.store.base import NewEvent, Store

PASSING = frozenset({"at", "uptime_s", "age_s", "lag_s"})
"""What changes in a status although nothing happens."""
SELDOM_S = 60.0
"""Between two summaries that say the same, at most; in a store that is paid by the write there are none."""


class EventLog:
    """Collects events from all threads; the monitor writes them out by `flush`."""

    def __init__(self, store: Store | None, clock: Clock | None = None) -> None:
        self._store = store
        self._pending: list[NewEvent] = []
        self._lock = threading.Lock()
        clock = clock or SystemClock()
        self._still = Still(clock, float("inf") if store is not None and store.pays_for_writes else SELDOM_S)

    def __call__(self, event: RunEvent) -> None:
        if self._store is not None:
            with self._lock:
                wanted = self._still.wanted(event) if isinstance(event, Summary) else (event,)
                self._pending += map(encode, wanted)

    def still_s(self) -> float:
        """For how long summaries have said the same."""
        return self._still.seconds()

    def flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        if pending and self._store is not None:
            try:
                self._store.append_events(pending)
            except HoldfastError:
                return  # the event log is for people; a run never fails because of it


class Still:
    """Which summaries are worth being kept: the longer nothing happens, the fewer."""

    def __init__(self, clock: Clock, most_s: float) -> None:
        self._clock = clock
        self._most_s = most_s
        self._said: Any = None
        self._changed = self._kept = clock.monotonic()
        self._left_out: Summary | None = None

    def seconds(self) -> float:
        return self._clock.monotonic() - self._changed

    def wanted(self, event: Summary) -> tuple[Summary, ...]:
        """None of them, or this one; before it, if it says something new, the last one that was left out."""
        now, said, left_out = self._clock.monotonic(), lasting(event.status), self._left_out
        if said != self._said:
            self._said, self._changed, self._kept, self._left_out = said, now, now, None
            return (event,) if left_out is None else (left_out, event)
        wait_s = (
            self._most_s if self._most_s == float("inf") else min(self._most_s, (now - self._changed) / 2)
        )
        if now - self._kept < wait_s:
            self._left_out = event
            return ()
        self._kept, self._left_out = now, None
        return (event,)


def lasting(status: Any) -> Any:
    """A status without what changes although nothing happens."""
    if not isinstance(status, Mapping):
        return status
    return {name: lasting(value) for name, value in status.items() if name not in PASSING}
