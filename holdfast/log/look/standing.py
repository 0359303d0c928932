"""How a log stands, for people who watch: what it holds, for whom, and how far behind they are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.log.consumers import Registered
from holdfast.log.log import Log
from holdfast.log.machines.partition_state import rows_in
from holdfast.log.machines.reader_machine import Facts

Reached = tuple[int, int]
"""A partition, and the next row that a reader takes from it."""


class Standing:
    """Of one log, again and again, with a view of its own. Any thread may ask; asking never fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log: Log | None = None
        self._views: list[Callable[[], Facts]] = []
        self._lock = threading.Lock()

    def now(self, reached: Sequence[Reached]) -> dict[str, Any]:
        """`reached`: how far readers have come; without any nobody can say what waits."""
        try:
            with self._lock:
                self._log = self._log or Log(self._path)
                if not self._log.exists:
                    return {"log": str(self._path), "rows": 0, "waiting": 0, "held_by": {}}
                self._views = self._views or [
                    self._log.following(number) for number in range(self._log.partitions)
                ]
                return standing_of(self._log, [view() for view in self._views], reached)
        except (HoldfastError, OSError) as error:
            return {"log": str(self._path), "problem": str(error)}


def standing_of(log: Log, bounds: Sequence[Facts], reached: Sequence[Reached]) -> dict[str, Any]:
    """Plain data. `held_by`: from which row on; of several partitions rows and places are added up."""
    waiting = [
        rows_in(max(bounds[number].low, at), bounds[number].end, bounds[number].withdrawn)
        for number, at in reached
    ]
    return {
        "log": str(log.path),
        "rows": sum(rows_in(each.low, each.end, each.withdrawn) for each in bounds),
        "waiting": sum(waiting) if waiting else None,
        "held_by": holders_of(log, bounds),
        "end": sum(each.end for each in bounds),
        "bytes": bytes_of(log.path),
    }


def holders_of(log: Log, bounds: Sequence[Facts]) -> dict[str, int]:
    """Consumers and pins, and what each still needs."""

    def first(holder: Registered) -> int:
        return sum(max(each.low, holder.positions.get(number, 0)) for number, each in enumerate(bounds))

    found = {each.name: first(each) for each in log.consumers()}
    return found | {f"pin {each.name}": first(each) for each in log.pins()}


def bytes_of(path: Path) -> int:
    """Of its files; one that goes meanwhile does not count."""
    total = 0
    for place, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except FileNotFoundError:
                continue
    return total
