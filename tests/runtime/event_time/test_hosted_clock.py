"""The clock of a Python operator in the driver: the same for every cut, with idle sources, and from run to run."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from holdfast.language.connectors import POSITION_FIELDS
from holdfast.operators.python.hosted_clock import Clock
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.keyed.expiry import LONG_AGO

SECOND = 1_000_000
INPUT = pa.schema([("at", pa.timestamp("us", tz="UTC")), *POSITION_FIELDS])


def clock(sources: dict[int, str], delay: int = 3, idle: int | None = None) -> Clock:
    delays = dict.fromkeys(sources, delay * SECOND)
    return Clock({0: TimedPort((), "at", sources, delays, None if idle is None else idle * SECOND)})


def table(rows: list[tuple[int, int, int | None]]) -> pa.Table:
    """Rows of (source, number, second)."""
    columns: list[list[Any]] = [
        [None if second is None else second * SECOND for *_, second in rows],
        [source for source, *_ in rows],
        [0] * len(rows),
        [number for _, number, _ in rows],
    ]
    return pa.table(
        [pa.array(v, pa.int64()).cast(f.type) for v, f in zip(columns, INPUT, strict=True)], INPUT
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_watermark_at_a_row_does_not_depend_on_batches_or_on_how_far_there_was_time(seed: int) -> None:
    chance = random.Random(seed)
    rows = [(0, n, None if chance.random() < 0.1 else n - chance.choice([0, 2, 9])) for n in range(60)]
    wanted, mark = [], LONG_AGO
    for _, _, second in rows:
        mark = max(mark, LONG_AGO if second is None else (second - 3) * SECOND)
        wanted.append(mark)
    at_work, found, begin = clock({0: "a"}), [], 0
    while begin < len(rows):
        batch = rows[begin : begin + chance.randint(1, 20)]
        ahead = at_work.ahead(0, table(batch), [])
        assert ahead is not None
        done = chance.randint(1, len(batch))
        before = at_work.watermark
        for number in range(done):
            before = ahead.rises.get(number, before)
            found.append(before)
        at_work.pass_by(ahead, done)
        assert at_work.watermark == found[-1]
        if chance.random() < 0.3:  # killed, and restored
            stored, at_work = at_work.stored(), clock({0: "a"})
            at_work.restore(stored)
        begin += done
    assert found == wanted


def test_nobody_waits_for_a_source_that_has_been_silent_for_too_long() -> None:
    at_work = clock({0: "a", 1: "b"}, delay=0, idle=10)

    def step(now: int, rows: list[tuple[int, int, int | None]]) -> int:
        at_work.begin(now * SECOND)
        ahead = at_work.ahead(0, table(rows), [])
        assert ahead is not None
        at_work.pass_by(ahead, len(rows))
        return at_work.watermark

    assert step(100, [(0, 0, 50), (1, 0, 40)]) == 40 * SECOND
    assert step(105, [(0, 1, 60)]) == 40 * SECOND
    assert step(110, [(0, 2, 70)]) == 70 * SECOND
    assert step(111, [(1, 1, 45)]) == 70 * SECOND, "it never falls"


def test_times_belong_to_names_not_to_numbers() -> None:
    before = clock({0: "a", 1: "b"}, delay=0)
    ahead = before.ahead(0, table([(0, 0, 50), (1, 0, 40)]), [])
    assert ahead is not None
    before.pass_by(ahead, 2)
    after = clock({4: "b", 5: "a"}, delay=0)
    after.restore(before.stored())
    ahead = after.ahead(0, table([(4, 1, 45)]), [])
    assert ahead is not None
    after.pass_by(ahead, 1)
    assert after.watermark == 45 * SECOND


def test_a_control_port_has_no_time() -> None:
    assert clock({0: "a"}).ahead(1, table([(0, 0, 1)]), []) is None
