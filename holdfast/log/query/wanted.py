"""Which rows are wanted, and which stretches of a partition can have some. Pure: bounds of times in, positions out.

Times of rows need not ascend. So nothing is concluded from where a row lies: a stretch is left out only if the least and the
greatest time in it say that no row of it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import ConfigError
from holdfast.log.format.frame import NO_TIME
from holdfast.log.machines.partition_state import Ranges
from holdfast.log.rows import LogBatch, microseconds

LEAST = microseconds(datetime.min.replace(tzinfo=UTC))
GREATEST = microseconds(datetime.max.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows whose time is in [since, until), from a position of their partition on. None: no bound."""

    since: int | None = None
    """µs since 1970."""
    until: int | None = None
    start: Mapping[int, int] = field(default_factory=dict)
    """By partition; those that are not named from their first row on."""

    @property
    def is_timed(self) -> bool:
        """A row without a time is not wanted then."""
        return self.since is not None or self.until is not None

    def may_be_among(self, t_min: int, t_max: int) -> bool:
        """Whether rows with times between these can be wanted. NO_TIME: none of them has a time."""
        if not self.is_timed:
            return True
        if t_max == NO_TIME:
            return False
        return (self.since is None or t_max >= self.since) and (self.until is None or t_min < self.until)

    def of(self, batch: LogBatch) -> pa.RecordBatch:
        """The wanted rows of a batch whose positions are wanted."""
        if not self.is_timed:
            return batch.rows
        at = batch.times.cast(pa.int64())
        mask = pc.is_valid(at)
        if self.since is not None:
            mask = pc.and_kleene(mask, pc.greater_equal(at, self.since))
        if self.until is not None:
            mask = pc.and_kleene(mask, pc.less(at, self.until))
        return batch.rows.filter(mask)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rows [start, end), and the least and the greatest of their times."""

    start: int
    end: int
    t_min: int
    t_max: int


def runs_of(wanted: Wanted, pieces: Iterable[Bounds], start: int, end: int) -> Ranges:
    """The positions of [start, end) that can be wanted; neighbours are one. `pieces` ascend."""
    runs: list[tuple[int, int]] = []
    for piece in pieces:
        begin, behind = max(start, piece.start), min(end, piece.end)
        if begin >= behind or not wanted.may_be_among(piece.t_min, piece.t_max):
            continue
        if runs and runs[-1][1] == begin:
            begin = runs.pop()[0]
        runs.append((begin, behind))
    return tuple(runs)


def moment(time: Any, what: str) -> int | None:
    """A bound as users give it: a datetime (without a zone: UTC), or seconds since 1970. None: no bound."""
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, datetime | int | float):
        raise ConfigError(
            f"{what} is a time, and {time!r} is none.",
            cure="Give a datetime, seconds since 1970, or None for no bound.",
        )
    found = microseconds(time) if time == time and abs(_seconds(time)) < 1e12 else None
    if found is None or not LEAST <= found <= GREATEST:
        raise ConfigError(
            f"{what} {time!r} is in no year from 1 to 9999.", cure="Numbers are seconds since 1970."
        )
    return found


def _seconds(time: datetime | float) -> float:
    return 0.0 if isinstance(time, datetime) else float(time)


def between(since: Any, until: Any, start: Mapping[int, int] | None = None) -> Wanted:
    """ConfigError for what is no stretch of time."""
    first, last = moment(since, "the beginning"), moment(until, "the end")
    if first is not None and last is not None and first > last:
        raise ConfigError(
            f"{until} is before {since}.", cure="Give the beginning first; the end is not included."
        )
    return Wanted(first, last, dict(start or {}))
