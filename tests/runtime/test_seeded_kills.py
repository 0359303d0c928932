"""The driver is killed with SIGKILL at random moments, again and again; the output stays exact."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import campaign
import pytest
from campaign import ROWS, Place

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("HOLDFAST_KILL_ROUNDS", "10"))
SEED = os.environ.get("HOLDFAST_SEED")
KILLS_PER_ROUND = 3


@pytest.mark.timeout(280)
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_kills_at_random_moments_leave_the_output_exact(
    round_number: int, place: Place, table: Callable[[str, str], None]
) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(1 << 32)
    again = f"HOLDFAST_SEED={seed} .venv/bin/python -m pytest tests/runtime/test_seeded_kills.py -k '[{round_number}]'"
    print(f"seed {seed}; to run it again: {again}")
    chance = random.Random(seed)
    mode = chance.choice(["async", "drain"])
    kills = []
    for _ in range(KILLS_PER_ROUND):
        epoch_before = campaign.newest_epoch(place.store)
        process = campaign.start(place, mode=mode)
        # A moment that lies between the life's first new epoch and its last row.
        patience = time.monotonic() + 30
        while campaign.newest_epoch(place.store) <= epoch_before and process.is_alive():
            assert time.monotonic() < patience, f"no epoch for 30 s; {again}"
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.25))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        life = campaign.finish(place, process)
        campaign.check(place, complete=life.exit == 0)
        if life.exit == 0:
            break
        last = last_row(place)
        kills.append(f"epoch {life.epoch} row {last}" + ("" if last < ROWS - 1 else " (does not count)"))
    if not kills or life.exit != 0:
        life = campaign.live(place, mode=mode, schedule=False)
    assert life.exit == 0, f"{life.report}; {again}"
    campaign.check(place)
    replayed = campaign.story(place).rows_replayed
    table(
        "random kills of the driver", f"seed {seed:10} {mode:5} killed at {kills}, {replayed} rows replayed"
    )


def last_row(place: Place) -> int:
    lines = [line.split() for line in place.hits.read_text().splitlines() if line.startswith("# ")]
    return int(lines[-1][3])


def test_the_oracle_notices_a_lost_a_repeated_and_a_wrong_row(place: Place) -> None:
    assert campaign.live(place, schedule=False).exit == 0
    campaign.check(place)
    newest = sorted(place.ledger.glob("part-*"))[-1]
    original = newest.read_text()
    lines = original.splitlines(keepends=True)
    for spoilt in (lines[:-1], [*lines, lines[-1]], [lines[0].replace('"seq":', '"seq":9'), *lines[1:]]):
        _spoil(newest, "".join(spoilt))
        with pytest.raises(AssertionError):
            campaign.check(place)
        _spoil(newest, original)
    campaign.check(place)
    changes = sorted(place.totals.glob("part-*"))
    _spoil(changes[0].with_name("part-copy.csv"), changes[0].read_text())
    with pytest.raises(AssertionError, match="visible twice"):
        campaign.check(place)


def _spoil(path: Path, text: str) -> None:
    path.write_text(text)
