"""Exactly-once under real kills on Spark: a small sample of the campaigns of test_spark_chaos, judged by the same oracle. Part
of `make chaos`; `make test` has kills of drivers and workers in test_spark_operators_survive_kills,
test_spark_short_way_kills and the demonstration."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.chaos import campaign
from holdfast.chaos.campaign import Size, Wrong
from holdfast.chaos.kills import Kill, Run
from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SEED = 20
# Steps have become quick: it must not come to its end before it is killed.
SMALL = Size(files=8, rows_per_file=200, rows_per_step=40, period_s=0.5, work_s=0.3)

Note = Callable[[list[Kill]], None]


@pytest.mark.chaos
@pytest.mark.fault("P09")
def test_the_driver_may_be_killed_at_any_moment_and_started_again(tmp_path: Path, note_kills: Note) -> None:
    chance = random.Random(SEED)
    with Run(tmp_path / "run", SMALL, SEED) as run:
        while run.counted < 1:
            driver = run.start()
            assert run.await_moment(driver, chance, within_s=1.0), driver.last_words()
            run.strike(driver, "driver")
            if run.counted == 1:
                assert processes.left_after(driver.tag, 20) == [], "its JVM and workers notice and end"
            campaign.check(run.place, complete=False)
        run.to_the_end()
        note_kills(run.kills)
        assert all(kill.epoch >= 1 for kill in run.kills if kill.counts)


@pytest.mark.chaos
@pytest.mark.fault("P01")
def test_a_python_worker_may_be_killed_in_the_middle_of_a_step(tmp_path: Path, note_kills: Note) -> None:
    """Without a second try per task, so that holdfast feels it: the region resets in place."""
    chance = random.Random(SEED)
    size = Size(files=3, rows_per_file=200, rows_per_step=40, period_s=0.5, work_s=0.4)
    for again in range(3):
        with Run(tmp_path / str(again), size, SEED, master="local[2]") as run:
            driver = run.start()
            assert run.await_moment(driver, chance, within_s=0.5), driver.last_words()
            while driver.alive and not run.counted:
                run.strike(driver, "worker")
            run.to_the_end()
            note_kills(run.kills)
        if run.counted:
            break
    assert run.counted == 1
    assert run.resets() >= 1
    assert len(run.drivers) == 1, "the driver went on by itself"


def test_the_oracle_notices_what_is_lost_repeated_or_wrong(tmp_path: Path) -> None:
    """It judges output that this test writes itself: no run is needed to see it go red."""
    size = Size(files=1, rows_per_file=30)
    place = campaign.Place(tmp_path)
    place.write_input(size, SEED)
    write_right_output(place)
    campaign.check(place)
    ledger, totals = place.out("ledger") / "part-0.json", place.out("totals") / "part-0.csv"
    for path, spoil in (
        (ledger, lambda lines: lines[:-1]),
        (ledger, lambda lines: [*lines, lines[3]]),
        (ledger, lambda lines: [lines[0].replace('"total": ', '"total": 1'), *lines[1:]]),
        (totals, lambda lines: [*lines, lines[-1]]),
        (totals, lambda lines: lines[:-1]),
        (totals, lambda lines: [lines[0], lines[1].replace("0,", "5,", 1), *lines[2:]]),
    ):
        original = path.read_text()
        path.write_text("".join(spoil(original.splitlines(keepends=True))))
        with pytest.raises(Wrong):
            campaign.check(place)
        path.write_text(original)
    campaign.check(place)


def write_right_output(place: campaign.Place) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    orders = [json.loads(line) for line in (place.input / "orders-000.json").read_text().splitlines()]
    ledger, totals, seen = [], ["user,n,total,top,mean\n"], {}
    for seq, row in enumerate(orders, 1):
        amounts = seen.setdefault(row["user"], [])
        amounts.append(row["amount"])
        ledger.append(json.dumps({"seq": seq, "id": row["id"], "user": row["user"], "total": sum(amounts)}))
        cents = [amount * 200 for amount in amounts]
        mean = sum(cents) / len(cents)
        totals.append(f"{row['user']},{len(cents)},{sum(cents)},{max(cents)},{mean}\n")
    for sink in ("ledger", "totals", "thirds"):
        place.out(sink).mkdir(parents=True)
    (place.out("ledger") / "part-0.json").write_text("\n".join(ledger) + "\n")
    (place.out("totals") / "part-0.csv").write_text("".join(totals))
    thirds = [row for row in orders if row["amount"] % 3 == 0]
    table = pa.table({"id": [r["id"] for r in thirds], "user": [r["user"].upper() for r in thirds]})
    pq.write_table(table, place.out("thirds") / "part-0.parquet")
