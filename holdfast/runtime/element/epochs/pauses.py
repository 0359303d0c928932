"""How long epochs keep an element from its work: time in which it had input but ran no step because of an epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.clock import Clock

KEPT = 1000


class EpochPauses:
    """Of one element; its thread writes, others may read `seconds`."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: deque[float] = deque(maxlen=KEPT)
        """One figure per epoch, the newest last."""
        self._clock = clock
        self._sum = 0.0
        self._pinned = False

    @contextmanager
    def during(self, epoch: bool) -> Iterator[None]:
        """What happens inside counts, if it happens for an epoch."""
        begun = self._clock.monotonic()
        try:
            yield
        finally:
            if epoch:
                self._sum += self._clock.monotonic() - begun

    def pinned(self) -> None:
        """The epoch has what it needs of this element."""
        self._pinned = True

    def working(self) -> None:
        """A step begins, or there is no input: whatever comes, the epoch does not hold the element back any more."""
        if self._pinned:
            self.seconds.append(self._sum)
            self._sum, self._pinned = 0.0, False

    def forget(self) -> None:
        """A reset came: its time is not the epoch's."""
        self._sum, self._pinned = 0.0, False
