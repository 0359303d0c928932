"""What a run and the people around it tell each other through the store: events and summaries go out, commands come in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from holdfast.clock import Clock, Every
from holdfast.language.run import RunStatus
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.looks import Looks
from holdfast.runtime.metrics import ended_event
from holdfast.runtime.telling.event_log import EventLog
from holdfast.runtime.telling.events import MailArrived, Summary
from holdfast.runtime.telling.feed import Feed
from holdfast.store.base import Store

SUMMARY_S = 1.0


class Correspondence:
    """Of one run; used by its monitor, and at the end by whoever ends it."""

    def __init__(self, store: Store | None, clock: Clock, feed: Feed, event_log: EventLog) -> None:
        self._store, self._feed, self._event_log = store, feed, event_log
        self._is_dear = store is not None and store.pays_for_writes
        self._summaries = Every(clock, SUMMARY_S, at_once=False)
        self._mail = Looks(store, clock, event_log.still_s)

    def commands(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What people have asked for since the last look."""
        if self._store is None or not self._mail.due():
            return
        for command, data in self._store.collect_mail():
            self._feed.announce(MailArrived(command, str(data.get("by", ""))[:200]))
            yield command, data

    def report(self, loops: Iterable[ElementLoop], status: Callable[[], RunStatus]) -> None:
        """Each second what elements left out, and a summary; then the event log is written."""
        is_time = self._summaries.due()
        if is_time:
            self._sum_up(loops, status)
        if is_time or not self._is_dear:
            self._event_log.flush()

    def report_end(
        self, loops: Iterable[ElementLoop], status: Callable[[], RunStatus], failure: BaseException | None
    ) -> None:
        """The same at the end, with how it ended."""
        self._feed.announce(ended_event(self._sum_up(loops, status), failure))
        self._event_log.flush()

    def _sum_up(self, loops: Iterable[ElementLoop], status: Callable[[], RunStatus]) -> dict[str, Any]:
        for event in (event for loop in loops for event in loop.left_out()):
            self._feed.announce(event)
        summary = status().as_dict()
        self._feed.announce(Summary(summary))
        return summary
