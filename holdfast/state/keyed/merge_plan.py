"""Which merges a step begins and how far it takes each: a pure function of row counts.

Invariants (tests/state/test_merge_plan.py, by simulation):
- The rows a step merges are at most `Bounds.allowance`: a small multiple of the rows the step changed.
- The number of runs is at most `fan_in` per level, and levels grow with the logarithm of the state.
- Idle runs newer than the oldest hold together no more rows than it has, give or take one round of merges.

How: a run's *level* is the logarithm of its rows; a run counts as of the highest level among itself and the newer idle
ones, so that levels fall from old to new. `fan_in` idle neighbours of one level are merged. The oldest run, the base,
joins as soon as the idle runs behind it have as many rows as it has. Each merge under way moves on in each
step by `rate` times the changed rows: fast enough to be done before its level is full again, and slow enough
that no step feels it. The newest merges come first if the allowance does not suffice for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bounds:
    """How merging is spread over steps. Figures are rows, or multiples of the rows a step changed."""

    fan_in: int = 6
    """So many runs of one level are merged into one."""
    rate: float = 4.0
    """Rows that one merge takes per changed row and step."""
    budget: float = 6.0
    """The most that all merges of a step together take."""
    least_rows: int = 1 << 17
    """What a step may always merge, a few milliseconds' worth: smaller pieces would cost look-ups more than that."""
    pieces: int = 32
    """About how many pieces a merge is cut into at most, as far as the budget allows: each costs every look-up a little."""
    piece_rows: int = 1 << 19
    """No segment has more rows: larger pieces, and what a large step changed, are cut."""
    base_runs: int = 4
    """The base is not merged with fewer runs than this, itself counted."""

    def fitting(self, rows: int, size: int) -> Bounds:
        """The same for `rows` that have `size` bytes in all: of wide rows about as many bytes at once as of usual ones."""
        wide = max(1, size // max(rows, 1) // _USUAL_BYTES)
        return replace(
            self,
            least_rows=max(self.least_rows // wide, min(self.least_rows, _FEWEST_ROWS)),
            piece_rows=max(self.piece_rows // wide, min(self.piece_rows, _FEWEST_ROWS)),
        )

    def allowance(self, changed: int) -> int:
        """Rows that a step with `changed` changed rows may merge."""
        return max(self.least_rows, int(self.budget * changed))

    def level(self, rows: int) -> int:
        """Half the fan-in lies between two levels: what merging leaves of `fan_in` runs is above them, unless
        most of it were repeated keys."""
        lowest = max(self.least_rows // _LOWEST, 1)
        if rows <= lowest:
            return 0
        return 1 + int(math.log(rows / lowest, max(2.0, self.fan_in / 2)))


DEFAULT_BOUNDS = Bounds()
_USUAL_BYTES = 64
"""Rows of a few aggregates have about as many."""
_FEWEST_ROWS = 1024
_LOWEST = 32
"""Runs of `least_rows` divided by this are all of the lowest level; more than the fan-in, so that they merge at once."""
_TAIL = 0.05
"""The base is merged without the newest runs if they have less than this share: they have merges of their own."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A run that no merge has as its input."""

    rows: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A merge under way: rows its inputs still have to give, and rows of its pieces."""

    left: int
    done: int


@dataclass(frozen=True, slots=True)
class Work:
    """Take the merge of blocks [first, end) on by `rows` rows of its inputs: one that is Busy, or several Idle."""

    first: int
    end: int
    rows: int


def plan(
    blocks: Sequence[Idle | Busy], changed: int, bounds: Bounds = DEFAULT_BOUNDS, since: int = 0
) -> list[Work]:
    """The work of one step that changed `changed` rows, newest first. The run of those rows is not among the blocks.
    `since`: blocks from there on are not merged with those before, unless they have more rows."""
    if sum(_size(blocks[:since])) < sum(_size(blocks[since:])):
        since = 0  # most was changed: the next checkpoint will be a base, and look-ups need one run
    merges = [(i, i + 1) for i, block in enumerate(blocks) if isinstance(block, Busy)]
    for first, runs in _idle_stretches(blocks, since):
        merges += _begun(first, runs, bounds)
    remaining = bounds.allowance(changed)
    works = []
    for first, end in sorted(merges, reverse=True):
        left, done = _size(blocks[first:end])
        rows = min(max(bounds.rate * changed, bounds.least_rows, (left + done) / bounds.pieces), remaining)
        if left <= min(1.25 * rows, remaining):
            rows = left  # rather than leave a crumb for the next step
        if rows >= 1:
            works.append(Work(first, end, int(rows)))
            remaining -= int(rows)
    return works


def _size(blocks: Sequence[Idle | Busy]) -> tuple[int, int]:
    """(rows to be merged if it were all one merge, rows in pieces already)."""
    idle = sum(block.rows for block in blocks if isinstance(block, Idle))
    busy = [block for block in blocks if isinstance(block, Busy)]
    return idle + sum(block.left for block in busy), sum(block.done for block in busy)


def _idle_stretches(blocks: Sequence[Idle | Busy], since: int) -> Iterator[tuple[int, list[int]]]:
    """(index of the first, row counts) of neighbours that are all idle, on one side of `since`."""
    first, rows = 0, list[int]()
    for i, block in enumerate(blocks):
        if rows and (i == since or isinstance(block, Busy)):
            yield first, rows
            first, rows = i, []
        if isinstance(block, Idle):
            rows.append(block.rows)
        else:
            first = i + 1
    if rows:
        yield first, rows


def _begun(first: int, rows: list[int], bounds: Bounds) -> list[tuple[int, int]]:
    """The merges that begin among idle neighbours, as [first, end) of blocks."""
    with_base = _runs_to_merge_with_base(rows, bounds) if first == 0 else 0
    begun = [(0, with_base)] if with_base else []
    begun += [
        (first + start, first + end)
        for start, end in _levels(rows, with_base, bounds)
        if end - start >= bounds.fan_in
    ]
    return begun


def _runs_to_merge_with_base(rows: list[int], bounds: Bounds) -> int:
    """How many of the oldest runs to merge, base included; 0: none."""
    least = max(bounds.base_runs, 2)
    if len(rows) < least or sum(rows[1:]) < rows[0]:
        return 0
    end, tail, small = len(rows), 0, _TAIL * sum(rows)
    while end > least and tail + rows[end - 1] <= small:
        end -= 1
        tail += rows[end]
    return end


def _levels(rows: list[int], start: int, bounds: Bounds) -> Iterator[tuple[int, int]]:
    """[first, end) of the runs of each level from `start` on, newest level first."""
    end = first = len(rows)
    level = 0
    while first > start:
        own = bounds.level(rows[first - 1])
        if own > level:
            if first < end:
                yield first, end
            end, level = first, own
        first -= 1
    if first < end:
        yield first, end
