"""Best effort under kill -9: what is missing is counted, hardly more is counted, and no row comes twice.

The driver is killed at random moments and at failpoints, several times in a row on one store, and then runs to its end. A
small sample; `make chaos` kills more often. HOLDFAST_SEED=n repeats a run's draws.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from best_effort_program import Lives

from holdfast.chaos.best_effort import ALONE, Graph, Place, Size
from holdfast.chaos.losses import HEADER, SinkLosses, markdown, record

SEED = os.environ.get("HOLDFAST_SEED")
KILLS = 3
KILLS_OF_A_CAMPAIGN, CAMPAIGNS = 12, 10
GRAPHS: tuple[Graph, ...] = tuple(ALONE)

FAILPOINTS: dict[Graph, list[str]] = {
    "chain": ["step.begin=kill@9", "step.end=kill@20", "sink.write=kill@15", "step.begin=kill@1"],
    "behind": [
        "step.end=kill@12",
        "ckpt.epoch.published=kill@2",
        "sink.commit.begin=kill@1",
        "reset.op.loaded=kill@1",
    ],
    "port": [
        "step.begin=kill@30",
        "ckpt.epoch.published=kill@2",
        "ckpt.manifest.renamed=kill@1",
        "reset.source.seek=kill@1",
    ],
    "own": [
        "ckpt.op.put_done=kill@3",
        "ckpt.op.put=kill@2",
        "step.end=kill@15",
        "reset.op.loaded=kill@1",
    ],
}

Note = Callable[[Sequence[SinkLosses]], None]


@pytest.fixture
def place(fast_directory: Path) -> Place:
    return Place(Path(tempfile.mkdtemp(prefix="loose-", dir=fast_directory)))


@pytest.fixture
def note(request: pytest.FixtureRequest, tell: Callable[..., None]) -> Note:
    """note(losses) puts them into the tables of the run, and beside that of `--chaos-table FILE`."""
    table: Path | None = request.config.getoption("--chaos-table", default=None)

    def add(losses: Sequence[SinkLosses]) -> None:
        tell(f"best effort under kills: {HEADER.splitlines()[0]}", *(each.line() for each in losses))
        if table is not None:
            record(table.with_suffix(".losses.md"), losses)

    return add


def check(losses: Sequence[SinkLosses], again: str) -> None:
    for each in losses:
        assert each.broken is None, (
            f"{each.graph}, sink {each.sink}: {each.broken}\n{markdown(losses)}{again}"
        )


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.fault("R09", "O09")
def test_kills_at_random_moments_cost_no_more_than_is_counted(
    graph: Graph, place: Place, note: Note, request: pytest.FixtureRequest
) -> None:
    kill_and_check(graph, place, note, KILLS, request.node.name)


@pytest.mark.parametrize("graph", ["chain", "own"])
def test_a_database_as_store_counts_as_well(graph: Graph, place: Place, note: Note) -> None:
    lives = Lives(place, graph, Size(rows=400), kind="sqlite")
    for failpoint in ("step.begin=kill@12", "step.end=kill@15"):
        lives.kill_at(failpoint)
    losses = lives.end()
    note(losses)
    check(losses, "on sqlite, killed at its 12th and after its 15th step")


def taken_over_and_checked(graph: Graph, place: Place, note: Note, test: str) -> None:
    chance, again = drawn(graph, test)
    losses = Lives(place, graph, Size(rows=800)).put_to_sleep_and_taken_over(chance, within_s=0.2)
    note(losses)
    check(losses, again)


@pytest.mark.parametrize("graph", ["chain"])
@pytest.mark.fault("D02")
def test_a_driver_that_was_only_asleep_hands_out_no_row_twice(
    graph: Graph, place: Place, note: Note, request: pytest.FixtureRequest
) -> None:
    taken_over_and_checked(graph, place, note, request.node.name)


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("campaign", range(CAMPAIGNS))
@pytest.mark.parametrize("graph", GRAPHS)
class TestCampaigns:
    def test_many_kills_at_random_moments_cost_no_more_than_is_counted(
        self, graph: Graph, campaign: int, place: Place, note: Note, request: pytest.FixtureRequest
    ) -> None:
        kill_and_check(graph, place, note, KILLS_OF_A_CAMPAIGN, request.node.name)

    def test_drivers_that_were_only_asleep_hand_out_no_row_twice(
        self, graph: Graph, campaign: int, place: Place, note: Note, request: pytest.FixtureRequest
    ) -> None:
        taken_over_and_checked(graph, place, note, request.node.name)


def kill_and_check(graph: Graph, place: Place, note: Note, kills: int, test: str) -> None:
    chance, again = drawn(graph, test)
    lives = Lives(place, graph, Size(rows=400 * (kills + 1)))
    for _ in range(kills):
        lives.kill_at_some_moment(chance, within_s=0.4)
    losses = lives.end()
    note(losses)
    check(losses, again)


def drawn(graph: Graph, test: str) -> tuple[random.Random, str]:
    """What a test draws from, and how to draw the same again."""
    seed = int(SEED) if SEED else random.SystemRandom().randrange(1 << 32)
    again = f"HOLDFAST_SEED={seed} .venv/bin/python -m pytest -m '' 'tests/runtime/best_effort/test_best_effort_kills.py::{test}'"
    print(f"seed {seed}; to run it again: {again}")
    return random.Random(f"{graph} {seed}"), again


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.fault("R09", "R08")
def test_kills_at_failpoints_cost_no_more_than_is_counted(graph: Graph, place: Place, note: Note) -> None:
    lives = Lives(place, graph, Size(rows=600, pace_s=0.005))
    for failpoint in FAILPOINTS[graph]:
        lives.kill_at(failpoint)
    losses = lives.end()
    note(losses)
    check(losses, f"killed at {', '.join(FAILPOINTS[graph])}")


SLOW_STEPS = ("ckpt.op.serialize=sleep:0.02@1+", "ckpt.dir.fsynced=late:0.05@1+", "lease.acquired=sleep:0.1")
"""Beside a kill: parts and what refers to them are stored late."""


@pytest.mark.parametrize("graph", ["port", "own"])
@pytest.mark.fault("R09")
def test_kills_while_others_are_slow_or_late_cost_no_more_than_is_counted(
    graph: Graph, place: Place, note: Note
) -> None:
    lives = Lives(place, graph, Size(rows=1200, pace_s=0.005))
    kills = [";".join((*SLOW_STEPS, failpoint)) for failpoint in FAILPOINTS[graph]]
    for failpoints in kills:
        lives.kill_at(failpoints)
    assert lives.fired() >= {"lease.acquired", "ckpt.op.serialize"}
    losses = lives.end()
    note(losses)
    check(losses, f"killed at {', '.join(kills)}")


# --- the tests themselves ---------------------------------------------------------------------------------------------

SLOW = Size(rows=200, pace_s=0.0, slow_s=0.1, period_s=0.5)
"""Queues fill up, and little is stored."""


@pytest.mark.parametrize(
    ("defect", "graph", "failpoint", "size", "told"),
    [
        ("queues", "chain", "step.begin=kill@10", SLOW, "missing"),
        ("steps", "chain", "step.begin=kill@10", Size(rows=200), "missing"),
        ("states", "own", "step.begin=kill@10", SLOW, "missing"),
        ("borders", "port", "step.begin=kill@20", SLOW, "missing"),
        ("too many", "chain", "step.begin=kill@20", Size(rows=400), "not missing"),
        ("late", "chain", "step.end=kill@10", Size(rows=200), "twice"),
    ],
)
@pytest.mark.fault("O09")
def test_defects_in_the_accounts_are_noticed(
    defect: str, graph: Graph, failpoint: str, size: Size, told: str, place: Place
) -> None:
    lives = Lives(place, graph, size, defect)
    lives.kill_at(failpoint)
    broken = [each.broken for each in lives.end() if each.broken is not None]
    assert any(told in each for each in broken), broken


def test_the_table_is_markdown_and_grows(tmp_path: Path) -> None:
    one = SinkLosses("chain", "out", kills=2, golden=100, found=90, repeated=0, counted=15, held=20)
    line = "| chain | out | 2 | 100 | 90 | 0 | 10 | 15 | 5 | 20 |\n"
    assert markdown([one, one]) == HEADER + line + line
    record(tmp_path / "deep" / "table.md", [one])
    record(tmp_path / "deep" / "table.md", [one])
    assert (tmp_path / "deep" / "table.md").read_text() == HEADER + line + line


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, None),
        ({"found": 84}, "16 rows are missing and 15 were counted"),
        ({"repeated": 1}, "1 rows came twice"),
        ({"repeated": 1, "may_repeat": True}, None),
        ({"held": 4}, "5 rows were counted that are not missing"),
    ],
)
def test_what_is_promised_is_judged(changed: dict[str, Any], told: str | None) -> None:
    one = SinkLosses("chain", "out", kills=2, golden=100, found=90, repeated=0, counted=15, held=5)
    broken = replace(one, **changed).broken
    assert broken is None if told is None else told in str(broken)
