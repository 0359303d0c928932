"""Files that came while a source was not asked for rows, because a step takes long: they wait too, and are told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from copy import copy

from holdfast.errors import HoldfastError
from holdfast.language.connectors import Lag
from holdfast.sources.known_files.listing import SPARE, Listing

LOOK_S = 1.0
"""After so long without a look of the source's own, and between two of these."""


class Unlisted:
    """Lists the place of a source in a thread of its own, for a small share of the time. Only people are told: what is read next is found
    by the source itself. Any thread may ask."""

    def __init__(self, listing: Listing, is_known: Callable[[str], bool]) -> None:
        self._listing, self._is_known = listing, is_known
        self._found: dict[str, tuple[int, int]] = {}
        """Name → (size, when it was changed, ns)."""
        self._next_s = float("-inf")
        self._busy = threading.Lock()

    def put_off(self) -> None:
        """The source has just looked by itself."""
        self._next_s = time.monotonic() + LOOK_S

    def lag(self) -> Lag:
        """What waits in files that the source does not know yet. Waits for nobody: what is found is told the next time."""
        if time.monotonic() >= self._next_s and self._busy.acquire(blocking=False):
            threading.Thread(target=self._look, name="files-lag", daemon=True).start()
        new = [facts for name, facts in self._found.items() if not self._is_known(name)]
        if not new:
            return Lag()
        since_s = time.time() - min(changed_ns for _, changed_ns in new) / 1e9
        return Lag(bytes=sum(size for size, _ in new), seconds=max(0.0, since_s))

    def _look(self) -> None:
        """Thread body."""
        begun = time.monotonic()
        listing = copy(self._listing)  # what it looked at last is the source's own business
        found = {}
        try:
            for name in listing.names():
                if not self._is_known(name):
                    stat = os.stat(listing.path(name))
                    found[name] = (stat.st_size, stat.st_mtime_ns)
        except (HoldfastError, OSError):
            pass  # the source will say it
        self._found = found
        now = time.monotonic()
        self._next_s = now + max(LOOK_S, SPARE * (now - begun))
        self._busy.release()
