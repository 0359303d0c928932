"""What the store tells about a run, read as `holdfast status` reads it: events and summaries, nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.demo.topology import CLICKS, REGION
from holdfast.errors import HoldfastError
from holdfast.store.base import Event
from holdfast.store.urls import open_store

SETTLED_SUMMARIES = 3
"""A run that did nothing in so many summaries in a row has read everything there is."""


@dataclass(slots=True)
class Watch:
    """The story of a run over all its drivers. `poll` brings it up to date."""

    url: str
    last: int = -1
    starts: int = 0
    epoch: int = 0
    epochs: int = 0
    published_at: float | None = None
    """Wall time of the last consistent state."""
    published_number: int = -1
    resets: list[Event] = field(default_factory=list)
    """Resets in place: a step failed and the region went back to its last epoch."""
    restores: int = 0
    """Resets at the start of a driver that found an earlier one's epochs."""
    losses: int = 0
    """Times that best-effort rows were counted as lost."""
    quiet: int = 0
    """Summaries in a row in which nothing happened."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    summary_at: float = 0.0
    earlier_rows: int = 0
    """Rows taken by earlier drivers, as far as their last summary tells."""
    _fresh: bool = True

    def poll(self) -> None:
        """Read what is new."""
        try:
            events = open_store(self.url).events(after=self.last)
        except HoldfastError:
            return  # the first driver is about to make the store
        for event in events:
            self.last = max(self.last, event.number)
            self._take(event)

    def _take(self, event: Event) -> None:
        match event.kind:
            case "run.started":
                self.starts += 1
                self.earlier_rows = self.rows
                self.summary, self.quiet, self._fresh = {}, 0, True
            case "epoch.published":
                self.epochs += 1
                self.epoch = int(event.data["epoch"])
                self.published_at, self.published_number = event.wall, event.number
            case "reset.begin":
                if not self._fresh:
                    self.resets.append(event)
                elif self.starts > 1:
                    self.restores += 1
                self._fresh = False
            case "rows.lost":
                self.losses += 1
            case "summary":
                self._summarise(event)

    def _summarise(self, event: Event) -> None:
        before, self.summary = self.summary, event.data
        self.summary_at = event.wall
        same = bool(before) and _steps(before) == _steps(self.summary)
        idle = all(element["waiting"] == "input" for element in self._elements().values())
        self.quiet = self.quiet + 1 if same and idle else 0

    def _elements(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.summary.get("elements", {})
        return found

    def settled_since(self, wall: float) -> bool:
        """True if everything that was there at `wall` has been processed."""
        return self.quiet >= SETTLED_SUMMARIES and self.summary_at > wall + SETTLED_SUMMARIES

    @property
    def rows(self) -> int:
        """Rows taken from all sources, replayed ones again."""
        return self.earlier_rows + sum(int(element["rows"]) for element in self._elements().values())

    @property
    def rows_per_s(self) -> int:
        return sum(int(element["rows_per_s"]) for element in self._elements().values())

    @property
    def lost_rows(self) -> int:
        """holdfast's own count of best-effort rows it cannot prove processed."""
        return int(self._elements().get(CLICKS, {}).get("lost_rows", 0))

    @property
    def phase(self) -> str:
        return str(self.summary.get("regions", {}).get(REGION, {}).get("phase", "starting"))

    @property
    def age_s(self) -> float | None:
        """Age of the last consistent state."""
        return None if self.published_at is None else max(0.0, time.time() - self.published_at)


def _steps(summary: Mapping[str, Any]) -> dict[str, int]:
    return {name: element["steps"] for name, element in summary.get("elements", {}).items()}
