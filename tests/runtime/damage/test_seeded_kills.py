"""The driver is killed with SIGKILL at random moments, again and again; the output stays exact.

A kill before the first epoch or after the last row does not count: another moment is drawn, until enough of them do.
`make test` has four rounds of it, `make chaos` ten or HOLDFAST_KILL_ROUNDS.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import campaign
import pytest
from campaign import ROWS, Place

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("HOLDFAST_KILL_ROUNDS", "10"))
SEED = os.environ.get("HOLDFAST_SEED")
KILLS_PER_ROUND = 3
RUNS_MAX = 8
"""Runs that a round may use up: a kill that does not count is drawn again, in a new run."""


@pytest.mark.timeout(280)
@pytest.mark.sampled(keep=4)
@pytest.mark.parametrize("round_number", range(ROUNDS))
@pytest.mark.fault("P11", "O01", "O02")
def test_kills_at_random_moments_leave_the_output_exact(
    round_number: int, place: Place, tell: Callable[[str, str], None]
) -> None:
    seed = int(SEED) if SEED else random.SystemRandom().randrange(1 << 32)
    again = f"HOLDFAST_SEED={seed} .venv/bin/python -m pytest tests/runtime/damage/test_seeded_kills.py -k '[{round_number}]'"
    print(f"seed {seed}; to run it again: {again}")
    chance = random.Random(seed)
    mode = chance.choice(["async", "drain", "token"])
    counted: list[Kill] = []
    drawn = replayed = 0
    for number in range(RUNS_MAX):
        here = Place(place.input, place.root / f"run-{number}")
        kills = kill_until(here, mode, chance, KILLS_PER_ROUND - len(counted), again)
        life = campaign.live(here, mode=mode, schedule=False)
        assert life.exit == 0, f"{life.report}; {again}"
        campaign.check(here)
        counted += [kill for kill in kills if kill.counts]
        drawn += len(kills)
        replayed += campaign.story(here).rows_replayed
        if len(counted) == KILLS_PER_ROUND:
            break
    told = ", ".join(f"epoch {kill.epoch} row {kill.row}" for kill in counted)
    figures = f"{len(counted)} of {drawn} kills count, {number + 1} runs, {replayed} rows replayed"
    tell("random kills of the driver", f"seed {seed:10} {mode:5} killed at {told}: {figures}")
    assert len(counted) == KILLS_PER_ROUND, f"too few kills count after {RUNS_MAX} runs: {figures}; {again}"


@dataclass(frozen=True)
class Kill:
    """Where a run was when it was killed."""

    epoch: int
    row: int

    @property
    def counts(self) -> bool:
        """One before the first epoch or after the last row tells nothing."""
        return self.epoch >= 1 and self.row < ROWS - 1


def kill_until(place: Place, mode: str, chance: random.Random, wanted: int, again: str) -> list[Kill]:
    """Kill one life after the other, each some time after its first new epoch, until so many kills count; fewer if
    the run came to the end of its input."""
    kills: list[Kill] = []
    while sum(kill.counts for kill in kills) < wanted:
        epoch_before = campaign.newest_epoch(place.store)
        process = campaign.start(place, mode=mode)
        patience = time.monotonic() + 30
        while campaign.newest_epoch(place.store) <= epoch_before and process.is_alive():
            assert time.monotonic() < patience, f"no epoch for 30 s; {again}"
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.25))
        process.kill()
        life = campaign.finish(place, process)
        campaign.check(place, complete=life.exit == 0)
        if not life.killed:
            assert life.exit == 0, f"{life.report}; {again}"
            break
        kills.append(Kill(life.epoch, last_row(place)))
        if not kills[-1].counts:
            break  # its next life would be at the end of its input again
    return kills


def last_row(place: Place) -> int:
    """The last row that was taken, in whichever life: behind it there is nothing left to disturb."""
    steps = [line.split() for line in place.hits.read_text().splitlines() if line.startswith("# ")]
    return max((int(step[3]) for step in steps), default=-1)


@pytest.mark.fault("O02")
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
