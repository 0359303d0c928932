"""The state of one key of a keyed Python operator: its variables and timers, as bytes between steps.

The bytes encode a dict: declared variables by name, as far as they are not as declared, and under "" a pair
[wake, timers]: the time of the key's entry in the index of wake-ups (wakeups.py), or None, and the event times at
which the key wants to be called, ascending. A key without variables and timers has no bytes: it is forgotten.
"""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import StateError
from holdfast.state.values import codec
from holdfast.state.variables.declarations import Lives, Variable
from holdfast.state.variables.working_values import Clock
from holdfast.state.windows.watermarks import is_closed

_TIMERS = ""


@dataclass(frozen=True, slots=True)
class Dumped:
    """What to store of a key: None deletes it. `wake`: when the index must wake it, if it does not know that yet."""

    data: bytes | None
    wake: int | None


class KeyState:
    """One key at work. `timed`: its operator has event time and `on_timer`."""

    __slots__ = ("_before", "_payloads", "_timed", "_wake", "clock", "firing", "lives", "timers")

    def __init__(self, variables: Mapping[str, Variable], data: bytes | None, timed: bool) -> None:
        self._before = data
        self._timed = timed
        self._payloads: dict[str, Any] = {}
        self._wake: int | None = None
        self.timers: list[int] = []
        self._take(data)
        self.clock = Clock()
        self.firing: int | None = None
        """The timer at work; None: a row is."""
        self.lives = Lives(variables, self._payloads, self.clock)

    def _take(self, data: bytes | None) -> None:
        self._payloads.update({} if data is None else codec.decode(data))
        self._wake, timers = self._payloads.pop(_TIMERS, (None, []))
        self.timers[:] = timers if self._timed else []

    def saved(self) -> bytes:
        """The key as it is in the middle of a step, for `go_back`."""
        return codec.encode({_TIMERS: [self._wake, self.timers], **self.lives.held()}, path="state")

    def go_back(self, data: bytes | None) -> None:
        """Be what was `saved`, or stored before the step."""
        self.clear()
        self.firing = None
        self._take(data)

    def set_timer(self, at: int) -> None:
        if not self._timed:
            raise StateError(
                "a timer was set, but the operator has no on_timer(at, key), or no event time.",
                cure="Define on_timer(at, key) and give on='…', the column with the event time.",
            )
        if self.firing is not None and at <= self.firing:
            raise StateError(
                "on_timer set a timer that is not later than the one it was called for: it would never end.",
                cure="Set a later one.",
            )
        place = bisect.bisect_left(self.timers, at)
        if self.timers[place : place + 1] != [at]:
            self.timers.insert(place, at)

    def clear_timer(self, at: int) -> None:
        place = bisect.bisect_left(self.timers, at)
        if self.timers[place : place + 1] == [at]:
            del self.timers[place]

    def clear(self) -> None:
        """Back to a key that was never seen. Variables in the user's hands are let go."""
        self._payloads.clear()
        self.lives.clear()
        self.timers.clear()

    def dump(self, mark: int) -> Dumped:
        """The key after a step that left the watermark `mark` behind; all timers up to it have fired."""
        stored = self.lives.payloads(mark)
        due = [*self.timers[:1], *([] if (ends := self.lives.ends(stored)) is None else [ends])]
        if not stored and not due:
            return Dumped(None, None)
        known = self._wake if self._wake is not None and self._wake > mark else None
        wanted = min(due, default=None)
        # Woken too early, a key only says when it wants to be woken next: a timer that moves on costs nothing.
        fresh = wanted if wanted is not None and (known is None or wanted < known) else None
        wake = known if fresh is None else fresh
        timers = {} if wake is None else {_TIMERS: [wake, self.timers]}
        return Dumped(codec.encode({**timers, **stored}, path="state"), fresh)


# --- event time as users see it -------------------------------------------------------------------------------------

NO_TIME = -(1 << 61)
"""Watermarks up to here tell that no row with a time came yet."""

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def micros_of(at: Any, zoned: bool) -> int:
    """An event time in microseconds. `zoned`: those of the operator have a time zone."""
    if not isinstance(at, dt.datetime):
        raise StateError(
            f"a timer is set for an event time, a datetime, not for {at!r}.",
            cure="Write self.set_timer(row.at + timedelta(seconds=30)). There are no timers by the clock on the wall.",
        )
    if (at.tzinfo is not None) != zoned:
        has, wants = ("a", "none") if at.tzinfo is not None else ("no", "one")
        raise StateError(
            f"the timer {at} has {has} time zone, and event times here have {wants}.",
            cure="Compute it from the row's own event time.",
        )
    if at.tzinfo is not None:
        at = at.astimezone(dt.UTC).replace(tzinfo=None)
    past: dt.timedelta = at - _EPOCH
    return past // _MICROSECOND


def moment_of(micros: int, zoned: bool) -> dt.datetime | None:
    """A watermark as a datetime; None: there is none yet. At the end of time it is the last moment that there is."""
    zone = dt.UTC if zoned else None
    if micros <= NO_TIME:
        return None
    if is_closed(micros):
        return dt.datetime.max.replace(tzinfo=zone)
    return (_EPOCH + micros * _MICROSECOND).replace(tzinfo=zone)
