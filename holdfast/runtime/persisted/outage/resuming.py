"""Where a stream that is persisted for outages goes on in a new run: what was in memory is gone, and is made again. Pure.

Rows in the log have positions; rows that went by memory have none there. Where such rows lie before a row of the log, the log has a
*mark*. So a reader's snapshot, the marks and the notes of the log tell which rows of the log it may still read, and from where the
sources must make rows anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Seats = Mapping[str, Any]
"""Positions of sources, by name."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Behind the log's rows before `log`, and behind `passed` rows that went by memory after those."""

    log: int
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """Rows that were held went to the log: that at `position` follows the first `base` rows of `run` that went by memory when the log
    ended there."""

    position: int
    run: int
    base: int
    is_gap: bool
    """Whether it does not follow the row before it in the log: rows lie between them that went by memory."""
    before: Seats | None = None
    """Where the sources were behind the last row before it; None: at their beginning, or not known."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a reader's epoch or account knows of its place."""

    place: Place
    run: int
    sources: Seats | None = None
    """Where the sources were behind the last row that was read; None: it came from the log, which tells."""
    skip: tuple[int, int] | None = None
    """Rows of the log before which it is, and which it does not read: `sources` is where these were behind the last row before them."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """How a new run begins."""

    at: int
    """The first position of the log to be read."""
    sources: Seats | None
    """Where the sources go on; None: at their beginning."""
    continues: bool
    """Whether the next row is the one that follows the last row of the log."""
    skip: tuple[int, int] | None = None
    """Positions of rows that are made again, and not to be read."""
    number: int = 0
    """Greater than the number of every row that was read."""


def resumed(
    known: Snapshot | None, low: int, end: int, newest: Seats | None, marks: Sequence[Mark]
) -> Resumed:
    """`newest`: where the sources were behind the last row of the log. `marks`: those from the snapshot's place on, ascending."""
    if known is None:
        return _from_log(low, low, end, newest, marks, 0)
    if (
        known.skip is not None
    ):  # what follows the skipped rows is made once more: that is rare, and always right
        return Resumed(known.place.log, known.sources, False, (known.skip[0], end), known.number)
    place = known.place
    here = [mark for mark in marks if mark.position == place.log]
    stored = next((mark for mark in here if mark.run == known.run and mark.base <= place.passed), None)
    later = [mark for mark in marks if mark.position > place.log]
    if stored is not None:  # what it was to read from memory next was written into the log
        at = place.log + place.passed - stored.base
        return _from_log(at, place.log, end, newest, later, known.number)
    is_elsewhere = place.passed or place.log >= end or any(mark.is_gap for mark in here)
    if known.sources is not None and is_elsewhere:
        return Resumed(end, known.sources, False, None, known.number)
    return _from_log(
        place.log, place.log, end, newest, marks if known.sources is None else later, known.number
    )


def _from_log(
    at: int, first: int, end: int, newest: Seats | None, marks: Sequence[Mark], number: int
) -> Resumed:
    gap = next((mark for mark in marks if mark.position >= first and mark.is_gap), None)
    if gap is None:
        return Resumed(at, newest, True, None, number)
    return Resumed(at, gap.before, False, (gap.position, end), number)
