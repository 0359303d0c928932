"""Event time, declared once: `clicks.event_time("at", delay="90 seconds")`.

From there on it travels with the stream. Windows, joins, `dedup`, `sort` and keyed operators use it; each may still be told a
column or a delay of its own. The *watermark* at a row is the largest event time up to its position in its source, minus
the delay; with several sources the smallest of theirs. Rows that are filtered out still move it on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import column_name, time_type
from holdfast.language.operators.values import Delays, Ttl

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

Delay = Duration | Mapping[str, Duration]
"""One for all sources, or by the source's name."""

DECLARED = ""
"""Instead of a column: the one that was declared."""


@dataclass(frozen=True, slots=True)
class EventTimeSpec(Spec):
    """The event time is in the column `on`. `idle_us`: for this long of processing time the watermark waits for a source
    without rows; None: for ever. `beside`: rows do not move time on, what the source tells beside them does; then rows need not
    have the column (""), or have it so much before their time."""

    is_remark = True
    on: str
    delays_us: Delays
    idle_us: int | None = None
    beside: bool = False
    offset_us: int = 0


class UsesTime(ABC):
    """A spec that goes by event time, or may."""

    __slots__ = ()

    @abstractmethod
    def times(self) -> tuple[str, ...]:
        """The column of each port that has event time; empty: it does not go by event time."""

    @abstractmethod
    def follows(self) -> bool:
        """Whether its watermark is the one that was declared: it has no delay of its own."""

    def without(self) -> Any:
        """The same spec without event time, if it can do without; None: it cannot."""
        return None

    @abstractmethod
    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> Any:
        """The same spec with these columns; and with these delays, if it follows."""


def times_of_ttl(ttl: Ttl | None) -> tuple[str, ...]:
    """What `UsesTime.times` gives for a lifetime."""
    return () if ttl is None or ttl.on is None else (ttl.on,)


def ttl_with_times(ttl: Ttl, columns: tuple[str, ...], delays: Delays | None) -> Ttl:
    """What `UsesTime.with_times` gives for a lifetime: rows come from one source."""
    if not columns or delays is None:
        return ttl
    return replace(ttl, on=columns[0], delay_us=max(us for _, us in delays))


def event_time_schema(schema: pa.Schema, spec: EventTimeSpec) -> pa.Schema:
    if spec.on:
        time_type(schema, spec.on, "The event time is in")
    return schema


def column_of(on: str | None) -> str:
    """A column with event time; None: the one that was declared."""
    return DECLARED if on is None else column_name(on, "on", "has the event time")


def delays_us(delay: Delay | None) -> Delays:
    """Delays by source in microseconds; "" stands for all others."""
    if delay is None:
        return ()
    if isinstance(delay, Mapping):
        delays = {str(name): micros(value, "delay", zero=True) for name, value in delay.items()}
    else:
        delays = {"": micros(delay, "delay", zero=True)}
    return tuple(sorted(delays.items()))


def idle_us(idle: Duration | None) -> int | None:
    """How long the watermark waits for a source without rows, in microseconds; None: for ever."""
    return None if idle is None else micros(idle, "idle")


def micros(value: Duration, what: str, *, zero: bool = False) -> int:
    """A length of time in microseconds."""
    micros = round(seconds(value, what, zero=zero) * 1_000_000)
    if not micros and not zero:
        raise TopologyError(f"{what} is shorter than a microsecond.", cure="Give a longer one.")
    return micros


class EventTimeVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def event_time(
        self, on: str, *, delay: Delay, idle: Duration | None = None, name: str | None = None
    ) -> Stream:
        """Say where the event time of the rows is, and how far they may be out of order:
        `clicks.event_time("at", delay="90 seconds")`. A row that comes more than `delay` behind the latest one of its
        source is late; `delay=0`: whatever is not in the order of time is. By source: `delay={"web": 5, "app": 60}`.

        `idle="30 seconds"`: nobody waits for a source that had no row for 30 s; see `holdfast.tumbling`.
        """
        spec = EventTimeSpec(column_name(on, "on", "has the event time"), delays_us(delay), idle_us(idle))
        return self._then(spec, name)
