"""The size of an operator's groups, chosen by what its checkpoints cost: the rim of `checkpoint/group_size.py`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from holdfast.checkpoint.group_size import LEAST_SAMPLES, Load, Sample, best, costs, fitted

KEPT = 20


class GroupProfile:
    """Of one operator. `stepped` and `chosen` are called by the element's thread, `stored` by its uploads, one at a time; `news` by the monitor."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        """At work."""
        self.seconds_by_rows: dict[int, float] = {}
        """What each size would cost from one checkpoint to the next, as known last."""
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        self._steps = 0
        self._had = 0
        """Rows that the operator had got at the checkpoint before."""
        self._announced = rows

    def stepped(self) -> None:
        self._steps += 1

    def stored(self, sample: Sample) -> None:
        """A checkpoint stored these groups."""
        if sample.files:
            self._samples.append(sample)

    def chosen(self, window_rows: int, had: int, size: int) -> int:
        """Asked at each checkpoint: the size from now on. `had`: rows that the operator got so far; `size`: bytes of the window."""
        steps, self._steps = self._steps, 0
        new_rows, self._had = max(had - self._had, 0), had
        if len(self._samples) >= LEAST_SAMPLES and window_rows and new_rows:
            load = Load(window_rows, new_rows, steps, size / window_rows)
            prices = fitted(list(self._samples))
            self.seconds_by_rows = costs(load, prices)
            self.rows = best(load, prices, self.rows)
        return self.rows

    def news(self) -> Iterator[int]:
        """The size, if it is another one than was announced last."""
        if self.rows != self._announced:
            self._announced = self.rows
            yield self.rows
