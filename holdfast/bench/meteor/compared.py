"""What all runs of an application wrote is the same: whatever the way to epochs, and however far a run came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.errors import HoldfastError


class Outputs:
    """Of one application. The longest output so far is what the others are compared with: each must be its beginning."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.runs = 0
        """That wrote something."""
        self._longest: Sequence[str] = ()
        self._by = ""

    @property
    def rows(self) -> int:
        """That were compared, at most."""
        return len(self._longest)

    def add(self, run: str, rows: Sequence[str]) -> None:
        """HoldfastError if a row is missing, is there twice, or is another one than in the other runs."""
        if not rows:
            return
        self.runs += 1
        short, long = sorted((rows, self._longest), key=len)
        # Rows of one step may come in any order, and an epoch ends between steps: as many rows are the same rows.
        missing, more = Counter(long[: len(short)]), Counter(short)
        if missing != more:
            found = sorted((missing - more) | (more - missing))
            raise HoldfastError(
                f"{self.app}: {run} and {self._by} wrote different rows, of the first {len(short)} "
                f"{_some(found)}: the figures would mean nothing."
            )
        if len(rows) > len(self._longest):
            self._longest, self._by = rows, run


def _some(rows: Iterable[str]) -> str:
    listed = list(rows)
    return f"{len(listed)}, as {listed[0]!r}"
