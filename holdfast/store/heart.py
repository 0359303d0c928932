"""The thread that shows signs of life for an owner, where no lock of the operating system does.

It refers to nothing but what it is given: an owner object that nobody refers to any more can go, and stops it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from holdfast.errors import HoldfastError

logger = logging.getLogger("holdfast")

_BEATS_PER_LEASE = 4


class Heart:
    """Beats several times per lease until it is stopped. A beat that fails is told; the next one comes soon."""

    def __init__(self, lease_s: float, beat: Callable[[], None], end: Callable[[], None]) -> None:
        """`beat` shows a sign of life; `end` takes it away."""
        self._lease_s = lease_s
        self._beat = beat
        self._end = end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No further beats. The lease ends by itself."""
        self._stopped.set()

    def let_go(self) -> None:
        """Stop, and let the lease end now if the store can be told."""
        self.stop()
        # A beat under way could show the sign again after it was taken away.
        self._thread.join(self._lease_s)
        try:
            self._end()
        except HoldfastError as error:
            logger.info("the lease ends by itself: %s", error.message)

    def _run(self) -> None:
        while not self._stopped.wait(self._lease_s / _BEATS_PER_LEASE):
            try:
                self._beat()
            except HoldfastError as error:
                logger.warning("the lease could not be renewed: %s", error.message)
