"""The subscriber that keeps events in the store's event log. Never fails the run: the log is for people."""

from __future__ import annotations

import threading

from holdfast.errors import HoldfastError
from holdfast.runtime.telling.events import RunEvent
from holdfast.runtime.telling.stored_events import encode
from holdfast.store.base import NewEvent, Store


class EventLog:
    """Collects events from all threads; the monitor writes them out by `flush`."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._pending: list[NewEvent] = []
        self._lock = threading.Lock()

    def __call__(self, event: RunEvent) -> None:
        if self._store is not None:
            with self._lock:
                self._pending.append(encode(event))

    def flush(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        if pending and self._store is not None:
            try:
                self._store.append_events(pending)
            except HoldfastError:
                return  # the event log is for people; a run never fails because of it
