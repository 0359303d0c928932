"""The one place where a run's events are announced, and what a subscriber is."""

from __future__ import annotations

import logging
from collections.abc import Callable

from holdfast.runtime.telling.events import RunEvent

logger = logging.getLogger("holdfast.run")

Subscriber = Callable[[RunEvent], None]
"""Hears of every event, in the thread in which it happens, perhaps while that holds the run's lock: must be quick, must
never wait, and may be called by several threads at once. Whoever has more to do collects, and works in a thread of its own."""

Announce = Callable[[RunEvent], None]


class Feed:
    """Subscribers hear of events in the order of subscription. One that raises is told of once, and the run goes on."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers
        self._blamed: set[int] = set()  # by identity: a subscriber may have no hash

    def subscribe(self, subscriber: Subscriber) -> None:
        """From now on it hears of every event. Any thread may call it."""
        self._subscribers = (*self._subscribers, subscriber)

    def announce(self, event: RunEvent) -> None:
        """Any thread may call it."""
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:
                level = logging.DEBUG if id(subscriber) in self._blamed else logging.WARNING
                self._blamed.add(id(subscriber))
                logger.log(level, "a subscriber of the run's events failed: %r", subscriber, exc_info=True)
