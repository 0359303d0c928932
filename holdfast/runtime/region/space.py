"""Waiting for space in the store and in the sinks."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.telling import events
from holdfast.runtime.telling.feed import Announce

SPACE_PROBE_S = 0.5


class Space:
    """Of one region. `wake`: calls a function after so many seconds, in the region's thread."""

    def __init__(
        self,
        region: str,
        epochs: RegionEpochs,
        announce: Announce,
        wake: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._region = region
        self._epochs = epochs
        self._announce = announce
        self._wake = wake

    def wait(self, reason: str, give_up: Callable[[], bool], pause: Callable[[float], object]) -> None:
        """Wait in the calling thread until store and sinks accept writes again, or `give_up()` is true."""
        self._announce(events.RegionPaused(self._region, reason))
        while not (give_up() or self._epochs.has_space()):
            pause(SPACE_PROBE_S)
        self._announce(events.RegionHasSpace(self._region))

    def watch(self, reason: str, there_is: Callable[[], None]) -> None:
        """Call a function when they do."""
        self._announce(events.RegionPaused(self._region, reason))

        def probe() -> None:
            if self._epochs.has_space():
                self._announce(events.RegionHasSpace(self._region))
                there_is()
            else:
                self._wake(SPACE_PROBE_S, probe)

        self._wake(SPACE_PROBE_S, probe)
