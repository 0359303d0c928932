"""What an operator remembers of its open windows beside their state: how many there are, since when, what was written last of each.

It decides which windows are due for a check. A window that has been open for longer than a threshold is *slow*. Slow windows are
checked in turn, oldest first: all of them within `every_us`, in so many *shots* of equally many windows. Time is that of the input.

A window is known by a hash. Several windows may share one: then they are checked together, and their order is not watched. Their
number is exact all the same.

Must hold, and is checked with every note before it is written:
- the number of open windows grows by those that are new and falls by those that close; it is never negative;
- what is not new is known; a window that gave its result before does not give it again, nor is it opened again;
- only open windows are checked, and those that took over others always are.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.aggregation import as_int64, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.eventual.records import KIND, NEW, NUMBER, Kind


@dataclass(frozen=True, slots=True)
class Pace:
    """When windows are checked."""

    every_us: int | None = 10_000_000
    """Within this time every slow window is checked; None: none ever is."""
    slow_us: int = 10_000_000
    shots: int = 10


class OpenWindows:
    """The windows of one operator, in all partitions. Changed by `note` and by those that restore."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._shot_us: int | None = None
        self.forget()

    def forget(self) -> None:
        """There is no window, and never was one."""
        self._hashes: I64 = np.zeros(0, dtype=np.int64)
        """Ascending, each once. What follows is parallel to it."""
        self._since: I64 = self._hashes
        self._asked: I64 = self._hashes
        self._numbers: I64 = self._hashes
        self._kinds: I64 = self._hashes
        """Of the newest record without state: OPENED or CLOSED."""
        self._sharing: I64 = self._hashes
        """How many windows have this hash."""
        self._noted: I64 = self._hashes
        """The note that has the newest record."""
        self._groups: I64 = self._hashes
        """What closes together: the pane of windows over time, 0 of others."""
        self._by_group: Counter[int] = Counter()

    @property
    def n_open(self) -> int:
        return sum(self._by_group.values())

    @property
    def oldest_noted(self) -> int:
        """The oldest note that has the newest record of a window; very late if there is no window."""
        return int(self._noted.min(initial=np.iinfo(np.int64).max))

    @property
    def oldest_replayed(self) -> int:
        """The same of windows that have rows: from there on rows might come again. Of several with one hash nobody knows."""
        held = (self._kinds == Kind.OPENED) | (self._sharing > 1)
        return int(self._noted[held].min(initial=np.iinfo(np.int64).max))

    # --- which are due ---

    def due(self, now_us: int) -> I64:
        """The hashes of windows that are to be checked in the step that begins now, ascending. They come again when all others had
        their turn, whether or not they are checked."""
        every, shots = self._pace.every_us, self._pace.shots
        if every is None:
            return self._hashes[:0]
        if self._shot_us is None or now_us < self._shot_us:
            self._shot_us = now_us
        passed_us = now_us - self._shot_us
        if passed_us * shots < every:
            return self._hashes[:0]
        slow = np.flatnonzero(now_us - self._since > self._pace.slow_us)
        shots = max(1, min(shots, len(slow)))
        fallen_due = passed_us * shots // every
        if not fallen_due:
            return self._hashes[:0]
        self._shot_us = now_us - passed_us % max(every // shots, 1)
        at_once = -(-len(slow) // shots) * min(fallen_due, shots)
        oldest = slow[np.lexsort((self._since[slow], self._asked[slow]))[:at_once]]
        self._asked[oldest] = now_us
        return np.sort(self._hashes[oldest])

    # --- what is written ---

    def note(
        self, marks: pa.Table, checked: I64, now_us: int, number: int, groups: I64 | None = None
    ) -> None:
        """A step's records are about to be written. `checked`: hashes of windows whose state is; `number`: of the note; `groups`: of
        the marks. StateError if they cannot be true."""
        hashes, kinds, numbers = (_longs(marks, name) for name in (HASH_COLUMN, KIND, NUMBER))
        new = np.asarray(single(marks.column(NEW)).to_numpy(zero_copy_only=False), dtype=np.bool_)
        groups = np.zeros(len(hashes), dtype=np.int64) if groups is None else groups
        merged = hashes[kinds == Kind.MERGED]
        self._check(hashes, kinds, numbers, new)
        self._check_checked(checked, merged)
        self._by_group.update(Counter(groups[new].tolist()))
        self._add(hashes[new], groups[new])
        at = self._hashes.searchsorted(hashes)
        kinds = np.where(kinds == Kind.MERGED, Kind.OPENED, kinds)
        for own, values in ((self._kinds, kinds), (self._numbers, numbers), (self._groups, groups)):
            own[at] = values
        self._since[at] = self._asked[at] = now_us
        noted = np.concatenate((at, self._hashes.searchsorted(checked)))
        self._noted[noted[self._sharing[noted] == 1]] = number  # of several only one may have been told of
        self._leave(at[kinds == Kind.GONE], groups[kinds == Kind.GONE])

    def close(self, low: int) -> int:
        """Windows of groups below `low` are closed; how many were."""
        gone = [group for group in self._by_group if group < low]
        closed = sum(self._by_group.pop(group) for group in gone)
        if closed:
            self._keep(self._groups >= low)
        return closed

    def resume(self, hashes: I64, kinds: I64, numbers: I64, groups: I64, since: I64, noted: I64) -> None:
        """Begin with what a scan found, a window each."""
        self.forget()
        self._shot_us = None
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        first = np.ones(len(hashes), dtype=np.bool_)
        first[1:] = hashes[1:] != hashes[:-1]
        chosen = order[first]
        self._hashes = hashes[first]
        self._kinds, self._numbers, self._groups = (each[chosen].copy() for each in (kinds, numbers, groups))
        self._since, self._asked, self._noted = (
            since[chosen].copy(),
            since[chosen].copy(),
            noted[chosen].copy(),
        )
        self._sharing = np.diff(np.flatnonzero(first), append=len(hashes))
        self._by_group = Counter(groups.tolist())

    # --- what must hold ---

    def _check(self, hashes: I64, kinds: I64, numbers: I64, new: Bools) -> None:
        at, known = self._found(hashes)
        if (known[~new] == 0).any():
            raise _broken("a window that was never opened has a record")
        watched = known & ~new
        watched[watched] = self._sharing[at[watched]] == 1
        watched &= (kinds == Kind.OPENED) | (kinds == Kind.CLOSED)
        rows = at[watched]
        was_closed, before = self._kinds[rows] == Kind.CLOSED, self._numbers[rows]
        now = numbers[watched]
        if (now < before).any() or ((now == before) & ~was_closed).any():
            raise _broken("a window is opened, or gives a result, that it had before")
        if not np.isin(kinds, (Kind.OPENED, Kind.CLOSED, Kind.MERGED, Kind.GONE)).all():
            raise _broken("a record without state is of no kind that there is")
        if (new & (kinds == Kind.GONE)).any():
            raise _broken("a window is gone that was never opened")

    def _check_checked(self, checked: I64, merged: I64) -> None:
        if not np.isin(merged, checked).all():
            raise _broken("a window took over others and is not checked")
        checked = checked[~np.isin(checked, merged)]
        at, known = self._found(checked)
        if not known.all():
            raise _broken("a window is checked that is not open")
        alone = self._sharing[at] == 1
        if (self._kinds[at][alone] != Kind.OPENED).any():
            raise _broken("a window is checked that has no rows")

    def _found(self, hashes: I64) -> tuple[I64, Bools]:
        """(places, whether it is there)."""
        at = self._hashes.searchsorted(hashes)
        if not len(self._hashes):
            return at, np.zeros(len(hashes), dtype=np.bool_)
        at = np.minimum(at, len(self._hashes) - 1)
        return at, np.asarray(self._hashes[at] == hashes)

    def _add(self, hashes: I64, groups: I64) -> None:
        if not len(hashes):
            return
        fresh, first, times = np.unique(hashes, return_index=True, return_counts=True)
        at, there = self._found(fresh)
        self._sharing[at[there]] += times[there]
        fresh, times, groups = fresh[~there], times[~there], groups[first[~there]]
        places = self._hashes.searchsorted(fresh)
        zeros = np.zeros(len(fresh), dtype=np.int64)
        for name, values in (
            ("_since", zeros), ("_asked", zeros), ("_numbers", zeros), ("_kinds", zeros), ("_sharing", times),
            ("_groups", groups), ("_noted", zeros), ("_hashes", fresh),
        ):  # fmt: skip
            setattr(self, name, np.insert(getattr(self, name), places, values))

    def _leave(self, at: I64, groups: I64) -> None:
        """Windows that are gone. Of several with one hash nobody knows which."""
        if not len(at):
            return
        self._by_group.subtract(Counter(groups.tolist()))
        np.subtract.at(self._sharing, at, 1)
        self._keep(self._sharing > 0)

    def _keep(self, kept: Bools) -> None:
        for name in ("_hashes", "_since", "_asked", "_numbers", "_kinds", "_sharing", "_groups", "_noted"):
            setattr(self, name, getattr(self, name)[kept])


def _longs(table: pa.Table, name: str) -> I64:
    return as_int64(single(table.column(name)))


def _broken(what: str) -> StateError:
    return StateError(
        f"the records of windows contradict each other: {what}.",
        cure="Nothing was written. Report it, with the log; a new log begins from the first row.",
    )
