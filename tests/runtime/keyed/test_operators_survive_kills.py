"""Keyed operators under kill -9: the driver dies at steps, checkpoints, commits and restores, and what each operator wrote
is what it writes without failures. A failpoint that does not fire fails the test.

Each program has two chains of kills; of all these some are drawn anew in every run, in `make chaos` all are run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from idle_program import rows as rows_of_sources
from killed import killed_and_finished, lived, undisturbed, written

from holdfast.testing import compare_rows

HERE = Path(__file__).parent
PROGRAMS: dict[str, tuple[str, ...]] = {
    "window_program": ("timed", "late", "counted"),
    "attribute_program": ("tumbling", "sliding", "marked"),
    "join_program": ("interval", "asof", "ordered"),
    "keyed_verbs_program": ("once", "again", "clocked", "lives", "best", "sixes", "both", "paired"),
    "keyed_program": ("sessions", "averages"),
    "idle_program": ("windows", "sorted", "asof"),
}
"""Program → outputs that do not depend on the pace of a run."""

CHAINS = {
    # An epoch is published first, so that there surely is something to load.
    "storing and loading": [
        "ckpt.epoch.published=kill@1",
        "ckpt.op.put_done=kill@2",
        "reset.op.loaded=kill@1",
    ],
    "committing and stepping": ["sink.commit.applied=kill@4", "step.begin=kill@6"],
}

Golden = Callable[[str], Path]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """golden(program): where it ran without failures."""
    known: dict[str, Path] = {}

    def run(program: str) -> Path:
        if program not in known:
            known[program] = tmp_path_factory.mktemp("golden")
            undisturbed(HERE / f"{program}.py", known[program])
        return known[program]

    return run


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.fault("P09", "I06", "O03")
def test_results_are_what_they_are_without_failures(
    program: str, chain: str, golden: Golden, tmp_path: Path
) -> None:
    killed_and_finished(HERE / f"{program}.py", tmp_path, CHAINS[chain])
    for name in PROGRAMS[program]:
        rows = written(golden(program), name)
        assert len(rows) > 5, f"{name} has few rows: little is learnt about it"
        compare_rows(rows, written(tmp_path, name), name)
    if program == "keyed_verbs_program":
        assert heights(tmp_path) == heights(golden(program)), (
            "which lists of the best ones come out is the pace's matter"
        )
    if program == "join_program":
        check_arrivals(tmp_path)


def heights(here: Path) -> dict[Any, int]:
    """The best value that each rank of each key ever had: it only grows, so that is the last one."""
    found: dict[Any, int] = {}
    for row in written(here, "running"):
        place = (row["k"], row["rank"])
        found[place] = max(row["n"], found.get(place, row["n"]))
    assert len(found) == 4 * 3
    return found


def check_arrivals(here: Path) -> None:
    """What meets what in a join by arrival follows the pace of the streams; but a window lost or doubled would show."""
    rows = written(here, "arrival")
    assert max(Counter((row["v"], row["w"]) for row in rows).values()) == 1, "a pair came out twice"
    late = [count for w, count in Counter(row["w"] for row in rows).items() if w > 100]
    assert len(late) > 140
    assert set(late) == {10}, "all windows are full by then, and stay so"


@pytest.mark.fault("I15")
def test_a_steady_source_alone_decides_how_far_results_go_if_the_other_is_idle(golden: Golden) -> None:
    here, last = golden("idle_program"), rows_of_sources(400)[-1][0]
    ends = [row["window_end"] for row in written(here, "windows")]
    assert (last - max(ends)).total_seconds() < 3
    assert sum(row["c"] for row in written(here, "windows") if row["window_end"] == min(ends)) == 20 + 10
    assert len(written(here, "sorted")) > 380
    assert len(written(here, "asof")) > 380


EVOLVING = HERE / "evolution_program.py"


def test_a_changed_topology_on_other_partitions_survives_kills_while_it_takes_over(tmp_path: Path) -> None:
    here = {"golden": tmp_path / "golden", "killed": tmp_path / "killed"}
    for place in here.values():
        assert lived(EVOLVING, place, "", "first") == 0
    undisturbed(EVOLVING, here["golden"], "then")
    killed_and_finished(
        EVOLVING,
        here["killed"],
        ["reset.op.loaded=kill@2", "ckpt.op.put_done=kill@1", "ckpt.epoch.published=kill@1"],
        "then",
    )
    for name, fewest in {
        "sums": 500,
        "pairs": 500,
        "ordered": 500,
        "best": 200,
        "near": 200,
        "both": 250,
    }.items():
        rows = written(here["golden"], name)
        assert len(rows) > fewest
        compare_rows(rows, written(here["killed"], name), name)
    assert {row["n"] for row in written(here["killed"], "sums") if "top" in row} >= {50, 80}, "sums went on"
