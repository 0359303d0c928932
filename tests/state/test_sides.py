"""Segments of a join regroup: rows of rare keys do not remain in groups of their own, and little is written twice."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.joins.sides import Group, regrouped

Counts = tuple[list[int], list[int]]


@st.composite
def segments(draw: st.DrawFn) -> Counts:
    """(rows left, rows had) of some segments, the last of which is new."""
    had = draw(st.lists(st.integers(1, 5000), min_size=1, max_size=30))
    left = [draw(st.integers(0, count)) for count in had]
    return left, had


@given(segments(), st.integers(1, 10_000))
def test_every_row_left_is_in_one_group_and_the_order_is_kept(counts: Counts, group_rows: int) -> None:
    left, had = counts
    groups = regrouped(left, had, group_rows)
    covered = [place for group in groups for place in range(group.first, group.last + 1)]
    assert covered == sorted(set(covered))
    assert {place for place, rows in enumerate(left) if rows} <= set(covered)
    assert all(left[group.first] and left[group.last] for group in groups)


@given(segments(), st.integers(1, 10_000))
def test_only_a_segment_by_itself_of_which_half_is_left_stays(counts: Counts, group_rows: int) -> None:
    left, had = counts
    for group in regrouped(left, had, group_rows):
        alone = group.first == group.last
        kept = group.first < len(left) - 1 and 2 * left[group.first] >= had[group.first]
        assert group.stays == (alone and kept)


@given(segments(), st.integers(1, 10_000))
def test_what_is_joined_fits_into_a_group_or_into_a_step(counts: Counts, group_rows: int) -> None:
    left, had = counts
    for group in regrouped(left, had, group_rows):
        if group.first != group.last:
            assert sum(left[group.first : group.last + 1]) <= max(group_rows, left[-1])


def test_a_large_neighbour_is_not_written_again_for_a_few_rows() -> None:
    assert regrouped([4000, 10, 3000], [4000, 100, 3000], 4096) == [
        Group(0, 0, stays=True),
        Group(1, 2, stays=False),
    ]
    assert regrouped([4000, 10], [4000, 10], 8192) == [Group(0, 0, stays=True), Group(1, 1, stays=False)]


def test_a_window_per_key_keeps_few_groups_however_uneven_the_keys() -> None:
    """50 keys by Zipf's law, the last 1,024 rows of each: what is left of old groups is joined."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, 51)
    seen = np.zeros(50, dtype=np.int64)
    held: list[np.ndarray] = []
    written = 0
    for _ in range(100):
        keys = random.choice(50, 3500, p=shares / shares.sum())
        numbers = np.empty_like(keys)
        for key in range(50):
            of_key = keys == key
            numbers[of_key] = seen[key] + np.arange(1, of_key.sum() + 1)
            seen[key] += of_key.sum()
        held.append(np.stack([keys, numbers], axis=1))
        masks = [rows[:, 1] > seen[rows[:, 0]] - 1024 for rows in held]
        groups = regrouped([int(m.sum()) for m in masks], [len(rows) for rows in held], 4096)
        pieces = [rows[mask] for rows, mask in zip(held, masks, strict=True)]
        held = [held[g.first] if g.stays else np.concatenate(pieces[g.first : g.last + 1]) for g in groups]
        written += sum(len(rows) for rows, g in zip(held, groups, strict=True) if not g.stays)
    assert len(held) <= 2 * -(-50 * 1024 // 4096)
    assert written <= 100 * 3500 * 2.5
