"""What a run of the benchmark is fed with, and when each step's rows were absorbed by the operator that keeps state.

*saturated*: a step is handed out as soon as few enough are on their way: throughput. *paced*: a step is available when its time has come,
whatever became of those before: latency.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.language.connectors import Slice
from holdfast.runtime.metrics import ElementMetrics
from holdfast.sources import Files

ON_THEIR_WAY = 2
"""Steps, at most, in a saturated run."""


class Gate:
    """Shared by the source's and the kernel's thread of one run. `rate`: rows per second that become available; None: saturated."""

    def __init__(self, rows_per_step: int, rate: float | None = None) -> None:
        self.rate = rate
        self.absorbed: list[tuple[float, int]] = []
        """(when, rows in all) behind each step of the kernel."""
        self.available: list[tuple[float, int]] = []
        """(when, rows in all) of each step that was handed out."""
        self.begun = 0.0
        self.on_absorbed: Callable[[int], None] = lambda rows: None
        self._rows_per_step = rows_per_step
        self._wake: Callable[[], None] = lambda: None
        self._closed = threading.Event()

    @property
    def rows_absorbed(self) -> int:
        return self.absorbed[-1][1] if self.absorbed else 0

    def steps_since(self, begun: float, ended: float = float("inf")) -> int:
        """That were absorbed meanwhile."""
        return sum(begun <= at <= ended for at, _ in list(self.absorbed))

    def opened(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        if self.rate is not None:
            threading.Thread(target=self._tick, daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _tick(self) -> None:
        """Wake the source when a step becomes available."""
        assert self.rate is not None
        while not self._closed.wait(self._rows_per_step / self.rate / 2):
            self._wake()

    def due(self) -> float | None:
        """When the next step is, or was, available; None: not yet."""
        now = time.monotonic()
        handed = self.available[-1][1] if self.available else 0
        if not handed:
            self.begun = now
            return now
        if self.rate is None:
            return now if handed - self.rows_absorbed < ON_THEIR_WAY * self._rows_per_step else None
        due = self.begun + handed / self.rate
        return due if due <= now else None

    def handed_out(self, due: float, rows: int) -> None:
        self.available.append((due, rows + (self.available[-1][1] if self.available else 0)))

    def absorb(self, now: float, rows: int) -> None:
        if rows:
            self.absorbed.append((now, rows + self.rows_absorbed))
            self.on_absorbed(self.rows_absorbed)
            self._wake()


class GatedFiles(Files):
    """Files behind a gate."""

    def __init__(self, gate: Gate, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._gate = gate

    def open(self, wake: Callable[[], None]) -> None:
        super().open(wake)
        self._gate.opened(wake)

    def next_slice(self) -> Slice | None:
        due = self._gate.due()
        piece = None if due is None else super().next_slice()
        if piece is not None and due is not None:
            self._gate.handed_out(due, piece.rows or 0)
        return piece


class KernelMetrics(ElementMetrics):
    """Of the element that keeps state: tells the gate what it took in."""

    def __init__(self, element: str, gate: Gate) -> None:
        super().__init__(element)
        self._gate = gate

    def step_done(self, now: float, seconds: float, rows: int, size: int) -> None:
        super().step_done(now, seconds, rows, size)
        self._gate.absorb(time.monotonic(), rows)


def latencies(gate: Gate, until: float) -> list[tuple[float, float, int]]:
    """(when it was available, seconds until it was absorbed, rows) of each step that was available before `until`; one that is still on
    its way has waited until now."""
    found, at, before = [], 0, 0
    for due, rows in gate.available:
        if due > until:
            break
        while at < len(gate.absorbed) and gate.absorbed[at][1] < rows:
            at += 1
        done = gate.absorbed[at][0] if at < len(gate.absorbed) else until
        found.append((due, max(0.0, done - due), rows - before))
        before = rows
    return found
