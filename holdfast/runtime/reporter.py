"""Writes a run's events and summaries into the store's event log, from one thread, never failing the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.store.base import Store

if TYPE_CHECKING:
    from holdfast.runtime.job import Job

SUMMARY_S = 1.0
MAIL_S = 0.25


class Reporter:
    """Collects events from all threads; the monitor thread writes them out in `tick`."""

    def __init__(self, job: Job, store: Store | None, clock: Clock) -> None:
        self._job = job
        self._store = store
        self._clock = clock
        self._pending: list[tuple[str, Mapping[str, Any]]] = []
        self._lock = threading.Lock()
        self._next_summary = clock.monotonic() + SUMMARY_S
        self._next_mail = clock.monotonic()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        with self._lock:
            self._pending.append((kind, dict(data)))

    def tick(self) -> None:
        if self._clock.monotonic() >= self._next_summary:
            self._next_summary = self._clock.monotonic() + SUMMARY_S
            self.event("summary", self._job.status())
        self.flush()

    def mail_due(self) -> bool:
        if self._clock.monotonic() < self._next_mail:
            return False
        self._next_mail = self._clock.monotonic() + MAIL_S
        return True

    def flush(self, final: bool = False) -> None:
        if final:
            self.event("summary", self._job.status())
        with self._lock:
            pending, self._pending = self._pending, []
        if pending and self._store is not None:
            try:
                self._store.append_events(pending)
            except HoldfastError:
                return  # the event log is for people; a run never fails because of it
