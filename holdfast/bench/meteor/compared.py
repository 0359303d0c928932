"""What all runs of an application wrote is what its operators say without any engine, as far as each run came."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.bench.meteor.apps import Row
from holdfast.errors import HoldfastError


class Outputs:
    """Of one application. Rows of a lane come in one order: what a run shows must be the beginning of each lane. (Within an epoch, files have no
    order, so that rows are compared as a heap.)"""

    def __init__(self, app: str, said: Sequence[Row], lane: Callable[[Row], Any]) -> None:
        self.app = app
        self.runs = 0
        """That wrote something."""
        self.rows = 0
        """That were compared, at most."""
        self._lane = lane
        self._said = self._by_lane(said)

    def add(self, run: str, rows: Sequence[Row]) -> None:
        """HoldfastError if a row is missing, is there twice, or is another one than it should be."""
        if not rows:
            return
        self.runs, self.rows = self.runs + 1, max(self.rows, len(rows))
        for lane, found in self._by_lane(rows).items():
            wanted, written = Counter(self._said.get(lane, [])[: len(found)]), Counter(found)
            if wanted != written:
                wrong = sorted(map(str, ((wanted - written) + (written - wanted)).elements()))
                raise HoldfastError(
                    f"{self.app}: what {run} wrote is wrong: of the first {len(found)} rows "
                    f"{len(wrong)} are missing or too many, as {wrong[0]}: the figures would mean nothing."
                )

    def _by_lane(self, rows: Sequence[Row]) -> dict[Any, list[Row]]:
        found: dict[Any, list[Row]] = defaultdict(list)
        for row in rows:
            found[self._lane(row)].append(row)
        return found
