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
        self._told = rows

    def stepped(self) -> None:
        self._steps += 1

    def stored(self, sample: Sample) -> None:
        """A checkpoint stored these groups."""
        if sample.files:
            self._samples.append(sample)

    def chosen(self, window_rows: int, new_rows: int, size: int) -> int:
        """Asked at each checkpoint: the size from now on. `size`: bytes of the window."""
        steps, self._steps = self._steps, 0
        if len(self._samples) >= LEAST_SAMPLES and window_rows and new_rows:
            load = Load(window_rows, new_rows, steps, size / window_rows)
            prices = fitted(list(self._samples))
            self.seconds_by_rows = costs(load, prices)
            self.rows = best(load, prices, self.rows)
        return self.rows

    def news(self) -> Iterator[int]:
        """The size, if it is another one than was told last."""
        if self.rows != self._told:
            self._told = self.rows
            yield self.rows
