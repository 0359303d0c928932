"""A soak's judge sees what was lost, doubled, wrong or out of order, and its page says so."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.chaos.soak.app import KEYS, Places
from holdfast.chaos.soak.report import page
from holdfast.chaos.soak.verdict import Judged, judge
from holdfast.chaos.soak.watch import Sample, sampled
from holdfast.testing.ordeal.strikes import Struck

ROWS = 200


def write(places: Places, sink: str, ids: list[int]) -> None:
    place = places.out(sink)
    place.mkdir(parents=True, exist_ok=True)
    columns = {"id": pa.array(ids, pa.int64())}
    if sink == "exact":
        columns["cents"] = pa.array([n * 2 for n in ids], pa.int64())
    pq.write_table(pa.table(columns), place / "part-x-p0000.parquet")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """What a soak without any damage leaves."""
    found = Places(tmp_path)
    for sink in ("exact", "events", "clicks"):
        write(found, sink, list(range(ROWS)))
    with closing(sqlite3.connect(found.database)) as connection, connection:
        connection.execute("CREATE TABLE totals (key INTEGER, n INTEGER, cents INTEGER)")
        for key in range(KEYS):
            ids = range(key, ROWS, KEYS)
            connection.execute("INSERT INTO totals VALUES (?, ?, ?)", (key, len(ids), 2 * sum(ids)))
    return found


def of(places: Places, sink: str, lost_rows: dict[str, int] | None = None) -> Judged:
    return next(each for each in judge(places, lost_rows or {}) if each.sink == sink)


def test_a_sound_output_is_kept(places: Places) -> None:
    assert [each.is_kept for each in judge(places, {})] == [True] * 4


def test_lost_doubled_and_wrong_rows_are_seen(places: Places) -> None:
    write(places, "exact", [*range(10), *range(12, ROWS)])
    assert (of(places, "exact").lost, of(places, "exact").is_kept) == (2, False)
    write(places, "exact", [*range(ROWS), 7])
    assert (of(places, "exact").doubled, of(places, "exact").is_kept) == (1, False)
    write(places, "events", [1, 0, *range(2, ROWS)])
    assert (of(places, "events_out").out_of_order, of(places, "events_out").is_kept) == (1, False)


def test_the_table_of_the_database_is_compared_with_the_numbers(places: Places) -> None:
    with closing(sqlite3.connect(places.database)) as connection, connection:
        connection.execute("UPDATE totals SET cents = cents + 1 WHERE key = 3")
        connection.execute("DELETE FROM totals WHERE key = 4")
    found = of(places, "totals_out")
    assert (found.wrong, found.lost, found.is_kept) == (1, 1, False)


def test_best_effort_may_lose_what_is_counted(places: Places) -> None:
    write(places, "clicks", [*range(10), *range(12, ROWS)])
    assert of(places, "clicks_out", {"clicks_out": 2}).is_kept
    assert not of(places, "clicks_out", {"clicks_out": 1}).is_kept


def test_the_page_tells_faults_lives_and_growth(places: Places) -> None:
    struck = [Struck(0, "driver", "SIGKILL", 30.0, 0.0, 4, "step.begin", True, True, "started again")]
    samples = [
        Sample(n * 5.0, 0, 40.0 + n, n, 100.0 + n, 300.0, 50, 40, 2.0, 1.0, 5.0, 30) for n in range(30)
    ]
    text = page(150.0, 5, 200, struck, ["SIGKILL", "end in order"], samples, judge(places, {}), "")
    assert "every promise was kept" in text
    assert "| driver | 1 | 1 | 1 × started again |" in text
    assert "| driver_mb | 104.5 | 124.5 | +19% |" in text
    assert "A PROMISE WAS BROKEN" in page(1.0, 5, 200, [], [], [], judge(places, {}), "It hung.")


def test_a_sample_of_this_very_process(places: Places) -> None:
    import os

    found = sampled(places, "no-such-tag", os.getpid(), 1.0, 0, 1.0, 7)
    assert found.driver_mb > 10
    assert found.jvm_mb == 0
    assert found.threads >= 1
    assert found.descriptors > 2
    assert found.out_mb > 0
