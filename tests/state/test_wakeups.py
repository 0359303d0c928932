"""The index of wake-ups: every entry is due once, and what was passed is left out in the end."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.state.keyed.segment import Place, Segment
from holdfast.state.variables import wakeups

SCHEMA = wakeups.wake_schema([pa.field("k", pa.string())])


def entries_of(pairs: list[tuple[int, str]]) -> pa.Table:
    times, keys = [time for time, _ in pairs], [key for _, key in pairs]
    return pa.table([times, [len(key) for key in keys], keys], schema=SCHEMA)


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_is_due_when_the_watermark_passes_it(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "SMALL", 8)
    chance = random.Random(seed)
    segments: tuple[Segment, ...] = ()
    waiting: list[tuple[int, str]] = []
    mark: int | None = None
    for step in range(300):
        now = (mark or 0) + chance.choice([0, 0, 1, 7, 40])
        table = wakeups.due(segments, SCHEMA, mark, now)
        due = sorted(zip(table.column(0).to_pylist(), table.column("k").to_pylist(), strict=True))
        assert due == sorted(pair for pair in waiting if pair[0] <= now), f"seed {seed}, step {step}"
        waiting = [pair for pair in waiting if pair[0] > now]
        fresh = [(now + chance.randint(1, 500), f"k{n}") for n in range(chance.choice([0, 0, 1, 3, 50]))]
        waiting += fresh
        segments = wakeups.advanced(segments, entries_of(fresh), now, Place(tmp_path, f"s{step}"))
        mark = now
        assert len(segments) <= 12
        assert sum(segment.rows for segment in segments) <= 3 * len(waiting) + 8


def test_entries_are_dealt_out_by_hash(tmp_path: Path) -> None:
    segments = wakeups.advanced((), entries_of([(5, "a"), (3, "bb"), (4, "c")]), 0, Place(tmp_path, "s"))
    (mine,) = wakeups.joined(segments, SCHEMA, lambda hashes: hashes == 1, Place(tmp_path, "of"))
    assert wakeups.due([mine], SCHEMA, None, 9).column("k").to_pylist() == ["c", "a"]
    assert wakeups.joined(segments, SCHEMA, lambda hashes: hashes == 9, Place(tmp_path, "no")) == ()
    assert wakeups.parted((mine,)) == ((), (mine,))
