"""What of a partition may go, as a pure decision: which segments, because of what, and who holds the rest.

Limits of time and size say what is old. Consumers and pins say what is needed: what somebody needs stays, however old.
`size_max` is the emergency brake: above it the oldest segments go although consumers need them, and those are told when
they read. Pins are never broken. Without limits, what all consumers have behind them goes; without consumers, nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.log.format.frame import NO_TIME


@dataclass(frozen=True, slots=True)
class Keep:
    """What a log is told to keep."""

    seconds: float | None = None
    """Rows whose segment's newest time is older than this are old."""
    bytes: int | None = None
    """The oldest segments above so many bytes per partition are old."""
    bytes_max: int | None = None
    """Above so many bytes per partition, not even consumers hold the oldest segments."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as far as retention looks at it. The tail is none: it stays."""

    start: int
    end: int
    bytes: int
    t_run_max: int
    """The greatest time up to its end."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Somebody who needs rows from `position` on."""

    name: str
    position: int
    expires: int | None = None
    """When it does not hold any more, µs since 1970."""
    is_pin: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Rows before `low` may go."""

    low: int
    because: str
    """Which limit let them go; empty: none go."""
    held_by: str
    """Who keeps older rows than limits would; empty: nobody."""
    broken: tuple[str, ...] = ()
    """Consumers that lose rows to `bytes_max`."""
    unneeded: int = 0
    """Rows before this position are needed by nobody. They stay as long as rows behind it are in the same segment."""


def decide(
    keep: Keep,
    segments: Sequence[SegmentFacts],
    tail_bytes: int,
    end: int,
    low: int,
    holders: Sequence[Holder],
    now: int,
) -> Decision:
    """`segments` ascend. `end`: behind all rows. `now`: µs; not later than the newest append, so that a clock that jumps ahead
    while nothing comes lets nothing go."""
    consumers = [each for each in holders if not each.is_pin and not _expired(each, now)]
    pins = [each for each in holders if each.is_pin]
    total = tail_bytes + sum(each.bytes for each in segments)
    old, because = _old(keep, segments, total, now, low)
    if keep.seconds is None and keep.bytes is None:
        old, because = (_whole(segments, end, low), "consumers") if consumers else (low, "")
    allowed = min((each.position for each in (*consumers, *pins)), default=end)
    slowest = min((*consumers, *pins), key=lambda each: each.position, default=None)
    chosen = _whole(segments, min(old, allowed), low)
    unneeded = max(chosen, allowed if because == "consumers" else min(old, allowed))
    held = slowest.name if slowest is not None and chosen < old and slowest.position < old else ""
    if keep.bytes_max is not None:
        pinned = min((each.position for each in pins), default=end)
        forced = _whole(segments, min(_by_size(segments, total, keep.bytes_max, low), pinned), low)
        if forced > chosen:
            broken = tuple(sorted(each.name for each in consumers if each.position < forced))
            return Decision(forced, "size_max", held, broken, max(forced, unneeded))
    return Decision(chosen, because if chosen > low else "", held, unneeded=unneeded)


def _expired(holder: Holder, now: int) -> bool:
    return holder.expires is not None and holder.expires <= now


def _old(keep: Keep, segments: Sequence[SegmentFacts], total: int, now: int, low: int) -> tuple[int, str]:
    """Up to where limits of time and size let rows go, and which of them reaches further."""
    by_time = by_size = low
    if keep.seconds is not None and now != NO_TIME:
        before = now - round(keep.seconds * 1e6)
        for each in segments:
            if each.t_run_max >= before:
                break
            by_time = each.end
    if keep.bytes is not None:
        by_size = _by_size(segments, total, keep.bytes, low)
    return (by_time, "time") if by_time >= by_size else (by_size, "size")


def _by_size(segments: Sequence[SegmentFacts], total: int, limit: int, low: int) -> int:
    reached = low
    for each in segments:
        if total <= limit:
            break
        total -= each.bytes
        reached = each.end
    return reached


def _whole(segments: Sequence[SegmentFacts], position: int, low: int) -> int:
    """Only whole segments go: the end of the last one that lies before `position`."""
    return max((each.end for each in segments if each.end <= position), default=low)
