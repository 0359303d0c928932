"""Files that keep arriving: a thread that lets tick after tick appear in the directories the run reads."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from holdfast.demo.generate import KINDS, tick_file


class Feeder(threading.Thread):
    """Releases one tick every `pause_s`, but none beyond `allowed`: the stream never ends before the last kill."""

    def __init__(self, pool: Path, target: Path, ticks: int, pause_s: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self.released = 0
        self.ticks = ticks
        self.ended_at: float | None = None
        """Wall time at which the last file appeared."""
        self._pool = pool
        self._target = target
        self._pause_s = pause_s
        self._allowed = 0
        self._stopped = False
        self._changed = threading.Condition()
        for kind in KINDS:
            (target / kind).mkdir(parents=True)

    def allow(self, ticks: int) -> None:
        """Up to this many ticks may have been released."""
        with self._changed:
            self._allowed = min(self.ticks, max(self._allowed, ticks))
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def run(self) -> None:
        due = time.monotonic()
        while self.released < self.ticks:
            with self._changed:
                while not self._stopped and (self.released >= self._allowed or time.monotonic() < due):
                    self._changed.wait(self._pause_s / 4)
            if self._stopped:
                return
            self._release(self.released)
            self.released += 1
            due = max(due, time.monotonic() - self._pause_s) + self._pause_s
        self.ended_at = time.time()

    def _release(self, tick: int) -> None:
        """A hard link appears at once and whole, as a file source wants it."""
        for kind in KINDS:
            os.link(tick_file(self._pool, kind, tick), tick_file(self._target, kind, tick))
