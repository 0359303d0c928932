"""Counters of a run, for `status`, the live display and the event log. Thread-safe, cheap. They subscribe to its events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import Clock
from holdfast.operators.shared.timed import TIMELESS
from holdfast.runtime.telling.events import (
    ElementFailed,
    EpochAborted,
    EpochPublished,
    EpochVisible,
    ResetBegun,
    Restored,
    RunEnded,
    RunEvent,
)

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Durations of epochs are counted up to each of these."""


class RecentRows:
    """Rows of recent steps, for a rate. Times are monotonic; whoever calls it sees that one thread does at a time."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, float, int]] = deque(maxlen=50)
        """(when it began, when it ended, rows)."""

    def add(self, begun: float, ended: float, rows: int) -> None:
        self._steps.append((begun, ended, rows))

    def rate(self, now: float, over_s: float = 5.0) -> float:
        recent = [step for step in self._steps if now - step[1] <= over_s]
        if not recent:
            return 0.0
        return sum(rows for _, _, rows in recent) / max(now - min(begun for begun, _, _ in recent), 0.001)


@dataclass
class SourceMetrics:
    """What one source has given in this run."""

    rows: int = 0
    recent: RecentRows = field(default_factory=RecentRows)


@dataclass
class ElementMetrics:
    """What one element has done in this run."""

    element: str
    steps: int = 0
    rows: int = 0
    bytes: int = 0
    failures: int = 0
    lost_rows: int = 0
    """Rows a best-effort element handed out and cannot prove processed."""
    last_step_s: float = 0.0
    waiting: str = "starting"
    sink_rows: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """Operator → what it counted since its initial state (late rows), replays counted once."""
    recent: RecentRows = field(default_factory=RecentRows)
    sources: dict[str, SourceMetrics] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def on_event(self, event: RunEvent) -> None:
        if isinstance(event, ElementFailed) and event.element == self.element:
            self.failures += 1

    def step_done(self, now: float, seconds: float, rows: int, size: int) -> None:
        with self.lock:
            self.steps += 1
            self.rows += rows
            self.bytes += size
            self.last_step_s = seconds
            self.recent.add(now - seconds, now, rows)

    def sources_gave(self, begun: float, ended: float, given: Mapping[str, int]) -> None:
        """Rows by source that a step took, as far as they are known."""
        with self.lock:
            for source, rows in given.items():
                self._gave(source, begun, ended, rows)

    def add_rows(self, now: float, rows: int, source: str) -> None:
        """Rows of a step that were counted after it."""
        with self.lock:
            self.rows += rows
            self.recent.add(now, now, rows)
            self._gave(source, now, now, rows)

    def _gave(self, source: str, begun: float, ended: float, rows: int) -> None:
        of = self.sources.setdefault(source, SourceMetrics())
        of.rows += rows
        of.recent.add(begun, ended, rows)

    def of_source(self, source: str, now: float) -> dict[str, int]:
        with self.lock:
            of = self.sources.get(source, SourceMetrics())
            return {"rows": of.rows, "rows_per_s": round(of.recent.rate(now))}

    def add_sink_rows(self, sink: str, rows: int | None) -> None:
        if rows is not None:
            with self.lock:
                self.sink_rows[sink] = self.sink_rows.get(sink, 0) + rows

    def rate(self, now: float) -> float:
        with self.lock:
            return self.recent.rate(now)

    def as_dict(self, now: float) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "rows": self.rows,
            "bytes": self.bytes,
            "rows_per_s": round(self.rate(now)),
            "last_step_ms": round(self.last_step_s * 1000, 1),
            "failures": self.failures,
            "lost_rows": self.lost_rows,
            "sink_rows": dict(self.sink_rows),
            "counts": self.counts,
            "waiting": self.waiting,
        }


@dataclass
class RegionMetrics:
    """What one region has done in this run."""

    region: str
    clock: Clock
    period_s: float
    epoch: int = 0
    epochs_published: int = 0
    published_at: float | None = None
    resets: int = 0
    rows_replayed: int = 0
    last_epoch_ms: float | None = None
    """From begin to publish."""
    bytes_written: int = 0
    epochs_slow: int = 0
    """Epochs that took longer than the period: the next one had to wait."""
    epochs_aborted: int = 0
    epochs_within: list[int] = field(default_factory=lambda: [0] * len(BUCKETS_S))
    """How many took at most as long as each of `BUCKETS_S`."""
    epochs_s: float = 0.0
    """How long all took together."""
    published_wall: float | None = None
    restored_wall: float | None = None
    visible: int = 0
    """The newest epoch whose output is visible."""
    last_bytes: tuple[int, int | None] = (0, None)
    """What the newest epoch added to the store, and all that restoring it reads."""
    resets_of: dict[str, int] = field(default_factory=dict)
    """By the element that failed; without one: those of the region itself."""
    restored: Restored | None = None

    def on_event(self, event: RunEvent) -> None:
        match event:
            case EpochPublished(region=self.region):
                self.epoch = event.epoch
                self.epochs_slow += event.ms > self.period_s * 1000
                self.epochs_published += 1
                self.published_at = self.clock.monotonic()
                self.last_epoch_ms = event.ms
                self.bytes_written += event.bytes
                self.published_wall, self.last_bytes = self.clock.wall(), (event.bytes, event.whole_bytes)
                self.epochs_s += event.ms / 1000
                self.epochs_within = [
                    n + (event.ms <= 1000 * le) for n, le in zip(self.epochs_within, BUCKETS_S, strict=True)
                ]
            case EpochVisible(region=self.region):
                self.visible = event.epoch
            case EpochAborted(region=self.region):
                self.epochs_aborted += 1
            case Restored(region=self.region):
                self.restored, self.visible = event, event.epoch
                self.restored_wall = self.clock.wall()
            case ResetBegun(region=self.region) if event.attempt > 1 and event.consecutive:
                self.resets += 1
                who = event.element or ""
                self.resets_of = {**self.resets_of, who: self.resets_of.get(who, 0) + 1}

    @property
    def idle_since(self) -> float | None:
        """If nothing is new since the newest epoch: since then, or since it was restored."""
        known = [at for at in (self.published_wall, self.restored_wall) if at is not None]
        return round(max(known), 3) if known else None

    def as_dict(self, now: float, phase: str, is_idle: bool, reason: str) -> dict[str, Any]:
        return {
            "phase": phase,
            "idle_since": self.idle_since if is_idle else None,
            "epoch": self.epoch,
            "epochs_published": self.epochs_published,
            "epochs_slow": self.epochs_slow,
            "age_s": None if self.published_at is None else round(now - self.published_at, 2),
            "resets": self.resets,
            "rows_replayed": self.rows_replayed,
            "bytes_written": self.bytes_written,
            "last_epoch_ms": self.last_epoch_ms,
            "reason": reason,
            "epochs_aborted": self.epochs_aborted,
            "epochs_within": dict(zip(map(str, BUCKETS_S), self.epochs_within, strict=True)),
            "epochs_s": round(self.epochs_s, 4),
            "published_wall": self.published_wall,
            "visible": self.visible,
            "last_bytes": {"delta": self.last_bytes[0], "full": self.last_bytes[1]},
            "resets_of": self.resets_of,
        }


DROPPED = "dropped"
"""What is counted of rows that are left out because the user wants it: duplicates."""

LEFT_OUT = frozenset({"late", TIMELESS, "malformed", "errors", DROPPED})
"""What is counted of rows that are not where they belong. Operators and sources count other things too."""


def left_out(status: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Rows of which a status says that they are not where they belong: (operator, source, sink or element; why; how
    many)."""
    elements = status.get("elements", {}).items()
    found = [
        (operator, f"{what.replace('_', ' ')} in all runs", rows)
        for _, element in elements
        for operator, counts in element.get("counts", {}).items()
        for what, rows in counts.items()
        if what in LEFT_OUT
    ]
    found += [(name, "lost in all runs", element.get("lost_rows", 0)) for name, element in elements]
    found += [(sink, "lost in all runs", rows) for sink, rows in status.get("lost_rows", {}).items()]
    return [(name, why, rows) for name, why, rows in found if rows]


def costs(status: Mapping[str, Any]) -> list[str]:
    """The same for people, in a few words each, without what the user wants."""
    return [f"{rows:,} {why} ({name})" for name, why, rows in left_out(status) if not why.startswith(DROPPED)]


def ended_event(status: Mapping[str, Any], failure: BaseException | None = None) -> RunEnded:
    """What is told at the end of a run with this status."""
    regions, elements = status["regions"].values(), status["elements"].values()
    parked = [region["reason"] for region in regions if region["phase"] == "parked"]
    return RunEnded(
        status["topology"],
        status["state"],
        status["uptime_s"],
        sum(element["rows"] for element in elements),
        sum(region["epochs_published"] for region in regions),
        sum(region["resets"] for region in regions),
        tuple(costs(status)),
        "; ".join(parked) or None if failure is None else f"{type(failure).__name__}: {failure}",
    )
