"""The plan of merges by numbers alone: work per step, number of runs and space stay bounded, whatever the sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.keyed.merge_plan import DEFAULT_BOUNDS, Bounds, Busy, Idle, Work, plan

STRETCHES = st.lists(st.tuples(st.floats(0, 7), st.integers(1, 40)), min_size=1, max_size=6)
"""Stretches of steps of one size: its logarithm, and how many."""
SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=5)
"""What is left of a merge's inputs, between the largest of them and all: keys may be all new, or the same again."""
BOUNDS = st.just(DEFAULT_BOUNDS) | st.builds(
    Bounds,
    fan_in=st.integers(3, 10),
    rate=st.sampled_from([2.0, 3.0, 4.0]),
    budget=st.just(12.0),
    least_rows=st.sampled_from([64, 4096, 1 << 17]),
    pieces=st.integers(8, 64),
)


@dataclass
class Merging:
    inputs: list[int]
    left: int
    keep: float
    done: int = 0


@dataclass
class Simulation:
    """A partition of which only row counts are known."""

    bounds: Bounds
    shares: list[float]
    blocks: list[int | Merging] = field(default_factory=list)
    merges: int = 0
    since: int = 0
    """Blocks before the last checkpoint."""

    def step(self, changed: int) -> list[Work]:
        self.blocks.append(changed)
        shape = [Idle(b) if isinstance(b, int) else Busy(b.left, b.done) for b in self.blocks]
        works = plan(shape, changed, self.bounds, self.since)
        for newer, older in pairwise(works):
            assert older.end <= newer.first, "newest first, nothing twice"
        for work in works:
            self._advance(work)
        return works

    def _advance(self, work: Work) -> None:
        block = self.blocks[work.first]
        if isinstance(block, int):
            inputs = [b for b in self.blocks[work.first : work.end] if isinstance(b, int)]
            assert len(inputs) == work.end - work.first >= 2, (
                "only idle runs, and at least two, begin a merge"
            )
            share = self.shares[self.merges % len(self.shares)]
            self.merges += 1
            keep = (max(inputs) + share * (sum(inputs) - max(inputs))) / sum(inputs)
            block = Merging(inputs, sum(inputs), keep)
        assert 1 <= work.rows <= block.left
        block.left -= work.rows
        block.done += round(work.rows * block.keep)
        self.blocks[work.first : work.end] = [block if block.left else max(block.done, 1)]
        if work.end <= self.since:
            self.since -= work.end - work.first - 1
        elif work.first < self.since:
            self.since = 0  # it reached across

    @property
    def runs(self) -> int:
        """Runs that a look-up may have to visit: inputs of merges count in full, pieces of one merge as one."""
        return sum(1 if isinstance(block, int) else 1 + len(block.inputs) for block in self.blocks)


def runs_max(bounds: Bounds, rows: int) -> int:
    return bounds.fan_in * (bounds.level(rows) + 2)


@examples(1500)
@given(STRETCHES, SHARES, BOUNDS, st.sampled_from([None, 1, 7, 50]))
def test_work_and_runs_stay_bounded(
    stretches: list[tuple[float, int]], shares: list[float], bounds: Bounds, every: int | None
) -> None:
    simulation, total = Simulation(bounds, shares), 0
    sides = 1 if every is None else 2  # of a checkpoint
    for exponent, steps in stretches:
        changed = int(10**exponent)
        for step in range(steps):
            if every is not None and step % every == 0:
                simulation.since = len(simulation.blocks)
            works = simulation.step(changed)
            total += changed
            assert sum(work.rows for work in works) <= bounds.allowance(changed)
            assert simulation.runs <= sides * runs_max(bounds, total)


@pytest.mark.parametrize("changed", [1, 100, 5_000, 50_000, 1_000_000])
@pytest.mark.parametrize("keys", [50_000, 5_000_000])
def test_a_steady_stream_neither_piles_up_runs_nor_space(changed: int, keys: int) -> None:
    simulation = Simulation(DEFAULT_BOUNDS, [0.5])
    simulation.blocks = [keys]
    merged = 0
    for _ in range(1500):
        works = simulation.step(changed)
        merged += sum(work.rows for work in works)
        for i, block in enumerate(simulation.blocks):
            if isinstance(block, int):
                simulation.blocks[i] = min(block, keys)  # no run has more rows than there are keys
        assert simulation.runs <= 30
    rows = sum(b if isinstance(b, int) else b.left + b.done for b in simulation.blocks)
    assert rows <= 4 * keys + 12 * changed
    assert merged <= 1500 * max(6 * changed, 5_000)


def test_a_small_step_on_a_large_base_does_not_touch_it() -> None:
    runs = [10_000_000, 90, 90, 90, 90]
    assert plan([Idle(rows) for rows in [*runs, 90]], 90) == []
    assert plan([Idle(rows) for rows in [*runs, 90, 90]], 90) == [Work(1, 7, 540)]


def test_the_base_joins_when_as_many_rows_lie_behind_it() -> None:
    bounds = Bounds(least_rows=10, fan_in=10, rate=1.0, pieces=1000)
    assert plan([Idle(1000), Idle(500), Idle(400), Idle(50)], 50, bounds) == []
    (work,) = plan([Idle(1000), Idle(500), Idle(450), Idle(50)], 50, bounds)
    assert work == Work(0, 4, 50)


def test_a_merge_goes_on_and_its_last_crumb_is_taken_along() -> None:
    bounds = Bounds(least_rows=10, rate=2.0, budget=6.0, pieces=1000)
    assert plan([Busy(1000, 500), Idle(50)], 50, bounds) == [Work(0, 1, 100)]
    assert plan([Busy(120, 500), Idle(50)], 50, bounds) == [Work(0, 1, 120)]


def test_the_newest_merges_come_first_when_the_budget_is_short() -> None:
    bounds = Bounds(least_rows=1, rate=2.0, budget=3.0, pieces=1000)
    blocks = [Busy(10_000, 1), Busy(1_000, 1), Busy(500, 1), Idle(50)]
    assert plan(blocks, 50, bounds) == [Work(2, 3, 100), Work(1, 2, 50)]


def test_a_large_newer_run_takes_the_small_older_ones_along() -> None:
    bounds = Bounds(least_rows=10_000_000, fan_in=4)
    blocks = [Idle(50_000_000), Idle(10), Idle(10), Idle(10), Idle(1_000_000)]
    assert plan(blocks, 1_000_000, bounds) == [Work(1, 5, 1_000_030)]


def test_of_wide_rows_fewer_are_merged_at_once_and_never_less_than_a_few() -> None:
    usual = DEFAULT_BOUNDS
    assert usual.fitting(5, 50) == usual.fitting(5, 500) == usual.fitting(0, 0) == usual
    wide = usual.fitting(3, 3 * 640)
    assert (wide.least_rows, wide.piece_rows) == (usual.least_rows // 10, usual.piece_rows // 10)
    huge = usual.fitting(1, 1 << 30)
    assert (huge.least_rows, huge.piece_rows) == (1024, 1024)
    assert Bounds(least_rows=3, piece_rows=5).fitting(1, 1 << 30) == Bounds(least_rows=3, piece_rows=5)


def test_merges_do_not_reach_across_a_checkpoint() -> None:
    bounds = Bounds(fan_in=3, least_rows=1)
    runs = [Idle(rows) for rows in (10_000, 50, 50, 50, 50)]
    assert plan(runs, 50, bounds) == [Work(1, 5, 200)]
    assert plan(runs, 50, bounds, since=2) == [Work(2, 5, 150)]
    assert plan(runs, 50, bounds, since=3) == []
    assert plan(runs, 50, bounds, since=5) == [Work(1, 5, 200)]


def test_what_lies_behind_a_checkpoint_joins_the_base_as_ever() -> None:
    bounds = Bounds(fan_in=9, base_runs=3, least_rows=1)
    runs = [Idle(rows) for rows in (1000, 500, 500, 300)]
    (work,) = plan(runs, 500, bounds, since=3)
    assert (work.first, work.end) == (0, 3)
    assert plan(runs, 500, bounds, since=2) == []


def test_a_checkpoint_holds_nobody_up_once_most_was_changed_since() -> None:
    bounds = Bounds(fan_in=9, base_runs=3, least_rows=1)
    (work,) = plan([Idle(rows) for rows in (1000, 500, 600)], 600, bounds, since=1)
    assert (work.first, work.end) == (0, 3)
