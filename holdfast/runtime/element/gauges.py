"""What can be seen of an element between two steps: how much waits in its sources, how large the state of its operators is, and
how far event time has come.

Must hold: looking never fails the element, and takes at most about 2 % of its time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.clock import Clock
from holdfast.language.connectors import Lag
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import Remembering
from holdfast.state.keyed.expiry import LONG_AGO
from holdfast.state.variables.state_size import whole_size
from holdfast.state.windows.watermarks import is_closed

LOOK_S = 0.25
SPARE = 50
"""So many times as long as a look takes, nobody looks."""
logger = logging.getLogger("holdfast.element")

Plain = dict[str, Any]


class Gauges:
    """Of one element. Its thread looks; any thread may ask for `waiting` and read `state`, which is replaced as a whole."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._lags: tuple[float, Mapping[str, Lag]] = 0.0, {}
        """When its thread looked, and what it saw, by source."""
        self.state: Mapping[str, Plain] = {}
        """By operator: bytes; rows, watermark and event_times where there are such."""
        self._worker, self._clock = worker, clock
        self._next = float("-inf")
        self._failed = False

    def look(self, now: bool = False) -> None:
        """If it is time; with `now` in any case."""
        if not now and self._clock.monotonic() < self._next:
            return
        begun = time.perf_counter()
        try:
            lags = {str(run.name): run.source.lag() for run in self._worker.sources}
            self._lags = self._clock.monotonic(), lags
            seen = ((run.name, _state(run)) for run in self._worker.runs.values())
            self.state = {str(name): state for name, state in seen if state is not None}
        except Exception:
            # For people only; a threaded operator may change its state while we look.
            logger.log(
                logging.DEBUG if self._failed else logging.INFO,
                "an element cannot be measured",
                exc_info=True,
            )
            self._failed = True
        self._next = self._clock.monotonic() + max(LOOK_S, SPARE * (time.perf_counter() - begun))

    def waiting(self) -> dict[str, Plain]:
        """By source lag_rows, lag_bytes and lag_s as far as they are known, also while a step takes long."""
        looked, lags = self._lags
        age_s = self._clock.monotonic() - looked
        sources = {str(run.name): run.source for run in self._worker.sources}
        return {name: _shown(_older(lag, age_s), sources[name].came_since()) for name, lag in lags.items()}


def _older(lag: Lag, age_s: float) -> Lag:
    """What waited then still does."""
    return replace(lag, seconds=lag.seconds + age_s) if lag.seconds and (lag.rows or lag.bytes) else lag


def _shown(lag: Lag, more: Lag) -> Plain:
    rows, size, seconds = (
        tuple(value for value in pair if value is not None)
        for pair in ((lag.rows, more.rows), (lag.bytes, more.bytes), (lag.seconds, more.seconds))
    )
    return {
        "lag_rows": sum(rows) if rows else None,
        "lag_bytes": sum(size) if size else None,
        "lag_s": round(max(seconds), 1) if seconds else None,
    }


def _state(run: Remembering) -> Plain | None:
    """None: it has none."""
    if isinstance(run, HostedRun):
        return None if run.instance is None else {"bytes": whole_size(run.instance)}
    if not isinstance(run, KeyedRun):
        return None
    return {"bytes": run.state_size(), "rows": run.state_rows(), **event_times(run.state.meta)}


def event_times(meta: Any) -> Plain:
    """From what an operator remembers of time: its watermark, and the latest event time of each source, in seconds since 1970. Empty
    if it knows none; one that has come to its end has no watermark but `"closed": True`."""
    if not isinstance(meta, Mapping):
        return {}
    marks = [meta[name] for name in ("watermark", "mark") if name in meta] or meta.get("marks") or []
    if not marks or any(not isinstance(mark, int) or mark <= LONG_AGO for mark in marks):
        return {}
    mark = min(marks)
    time: Plain = {"closed": True} if is_closed(mark) else {"watermark": mark / 1e6}
    sources = dict(_by_source(meta.get("reached")))
    return {**time, **({"event_times": sources} if sources else {})}


def _by_source(reached: Any) -> Sequence[tuple[str, float]]:
    """Pairs of a source and a time, however deep they lie."""
    if not isinstance(reached, list | tuple):
        return ()
    if len(reached) == 2 and isinstance(reached[0], str) and isinstance(reached[1], int):
        known = reached[1] > LONG_AGO and not is_closed(reached[1])
        return [(reached[0], reached[1] / 1e6)] if known else ()
    return [pair for part in reached for pair in _by_source(part)]
