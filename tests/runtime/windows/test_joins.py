"""Joins against nested loops: the same pairs for every cut into steps, number of partitions, and pace of the streams."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from driven import Driven

from holdfast.language.operators.joins import asof_match, interval_match, join_schema, join_spec, right_names
from holdfast.operators.joins.asof import AsofJoin
from holdfast.operators.joins.interval import IntervalJoin
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.columns.hashing import HASH_COLUMN

UTC = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("at", UTC), ("w", pa.int64())])
SECOND = 1_000_000
SOURCES = ({0: "left"}, {1: "right"})

Row = tuple[str | None, int | None, int]
"""(key, event second, value), in position order within its stream."""


def drawn(chance: random.Random, count: int, lag: int, first: int) -> list[Row]:
    """Rows whose times grow and lag behind now and then; some without key or time."""
    rows: list[Row] = []
    for n in range(count):
        key = chance.choice(["a", "b", "c", "d", None]) if chance.random() < 0.3 else chance.choice("ab")
        second = None if chance.random() < 0.03 else n // 3 - chance.choice([0, 0, 0, 1, lag, 2 * lag])
        rows.append((key, second, first + n))
    return rows


def in_time(rows: list[Row], delay: int) -> list[Row]:
    reached, kept = -(10**9), []
    for key, second, value in rows:
        if second is not None:
            reached = max(reached, second)
            if second >= reached - delay:
                kept.append((key, second, value))
    return kept


def mark(rows: list[Row], delay: int) -> int:
    return max((second for _, second, _ in rows if second is not None), default=-(10**9)) - delay


def table_of(rows: list[Row], first: int, source: int, value: str, one_hash: bool) -> pa.Table:
    columns = {
        "k": pa.array([key for key, _, _ in rows], pa.string()),
        "at": pa.array([None if s is None else s * SECOND for _, s, _ in rows], pa.int64()).cast(UTC),
        value: pa.array([v for *_, v in rows], pa.int64()),
        "__hf_source": pa.array([source] * len(rows), pa.int32()),
        "__hf_ordinal": pa.array([0] * len(rows), pa.int64()),
        "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
    }
    if one_hash:
        columns[HASH_COLUMN] = pa.array([7] * len(rows), pa.int64())
    return pa.table(columns)


def run(
    logic: Any, left: list[Row], right: list[Row], chance: random.Random, where: Path, one_hash: bool
) -> Driven:
    """Both streams to their ends, cut at random, neither waiting for the other, dealt out anew in the middle."""
    driven = Driven(logic, chance.randint(1, 4), where)
    done = [0, 0]
    while done != [len(left), len(right)]:
        step = {}
        for port, (rows, value) in enumerate(((left, "v"), (right, "w"))):
            count = min(chance.choice([0, 1, 5, 30]), len(rows) - done[port])
            if count:
                piece = rows[done[port] : done[port] + count]
                step[port] = table_of(piece, done[port], port, value, one_hash)
                done[port] += count
        if step:
            driven.step(step, chance.randint(0, 3))
        if chance.random() < 0.1:
            driven.rescale(chance.randint(1, 4))
    return driven


def ports(delay: int) -> tuple[TimedPort, TimedPort]:
    left, right = (TimedPort(("k",), "at", of, dict.fromkeys(of, delay * SECOND)) for of in SOURCES)
    return left, right


def late_values(rows: list[Row], delay: int) -> list[int]:
    """Of the rows that come too late to meet anybody, or have no time: of the kept side none is lost."""
    kept = {value for *_, value in in_time(rows, delay)}
    return [value for _, _, value in rows if value not in kept]


def found(driven: Driven, *names: str) -> Counter[Any]:
    return Counter(tuple(row[name] for name in names) for row in driven.emitted)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("seed", range(12))
def test_an_interval_join_finds_the_pairs_that_nested_loops_find(seed: int, how: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    delay, before, after = chance.choice([0, 2, 6]), chance.randint(0, 5), chance.randint(0, 5)
    left, right = drawn(chance, 150, 3, 0), drawn(chance, 150, 3, 1000)
    where = None if chance.random() < 0.5 else (lambda t: pc.less(pc.bit_wise_and(t.column("w"), 3), 2))
    spec = join_spec(interval_match((before, after)), "k", "at", delay, how, where)
    shape = PairShape(join_schema(LEFT, RIGHT, spec), right_names(RIGHT, spec), where)
    logic = IntervalJoin(ports(delay), (LEFT, RIGHT), shape, how == "left", before * SECOND, after * SECOND)
    driven = run(logic, left, right, chance, tmp_path, one_hash=seed % 3 == 0)

    rights = in_time(right, delay)
    wanted: Counter[Any] = Counter()
    for key, second, value in in_time(left, delay):
        met = [
            w
            for k, s, w in rights
            if k is not None
            and k == key
            and second - before <= s <= second + after  # type: ignore[operator]
            and (where is None or w & 3 < 2)
        ]
        wanted.update((value, w) for w in met)
        if how == "left" and not met and (key is None or second + after < mark(right, delay)):  # type: ignore[operator]
            wanted[value, None] += 1
    if how == "left":
        wanted.update((value, None) for value in late_values(left, delay))
    assert found(driven, "v", "w") == wanted, f"seed {seed}"
    late = len([r for r in left + right if r[1] is not None]) - len(in_time(left, delay)) - len(rights)
    assert driven.counts.get("late", 0) == late
    assert driven.counts.get("without_time", 0) == sum(second is None for _, second, _ in left + right)


@pytest.mark.parametrize("seed", range(12))
def test_an_asof_join_finds_the_latest_row_that_is_not_later(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    delay, exact = chance.choice([0, 2, 6]), chance.random() < 0.5
    tolerance = chance.choice([None, 0, 3])
    left, right = drawn(chance, 150, 3, 0), drawn(chance, 150, 3, 1000)
    spec = join_spec(asof_match(tolerance, exact), "k", "at", delay, "left")
    shape = PairShape(join_schema(LEFT, RIGHT, spec), right_names(RIGHT, spec))
    reach = None if tolerance is None else tolerance * SECOND
    logic = AsofJoin(ports(delay), (LEFT, RIGHT), shape, True, reach, exact, stamp=5)
    driven = run(logic, left, right, chance, tmp_path, one_hash=seed % 3 == 0)

    rights = in_time(right, delay)
    wanted: Counter[Any] = Counter()
    for key, second, value in in_time(left, delay):
        assert second is not None
        if second >= mark(right, delay):
            continue  # still waiting
        best: tuple[int, int] | None = None
        for k, s, w in rights:
            assert s is not None
            fits = s <= second if exact else s < second
            if k is not None and k == key and fits and (tolerance is None or s >= second - tolerance):
                best = (s, w) if best is None or s >= best[0] else best
        wanted[value, best[1] if best else None] += 1
    wanted.update((value, None) for value in late_values(left, delay))
    assert found(driven, "v", "w") == wanted, f"seed {seed}"
    times = [row["__hf_ordinal"] for row in driven.emitted]
    timed = [row for row in driven.emitted if row["at"] is not None]
    assert all(row["at"].timestamp() * SECOND == row["__hf_ordinal"] for row in timed)
    assert len(times) - len(timed) == sum(second is None for _, second, _ in left)
    assert {row["__hf_source"] for row in driven.emitted} <= {5}
    assert len(times) == sum(wanted.values())


def test_old_rows_are_forgotten(tmp_path: Path) -> None:
    spec = join_spec(interval_match(2), "k", "at")
    shape = PairShape(join_schema(LEFT, RIGHT, spec), right_names(RIGHT, spec))
    logic = IntervalJoin(ports(0), (LEFT, RIGHT), shape, False, 2 * SECOND, 2 * SECOND)
    driven = Driven(logic, 1, tmp_path)
    for step in range(200):
        rows: list[Row] = [("a", step, step)]
        driven.step({0: table_of(rows, step, 0, "v", False), 1: table_of(rows, step, 1, "w", False)}, 0)
    kept = sum(segment.rows for segment in driven.segments[0])
    assert kept <= 24, f"{kept} rows are kept, of which 3 a side are needed"
    assert len(driven.emitted) == 200 + 2 * (199 + 198)
