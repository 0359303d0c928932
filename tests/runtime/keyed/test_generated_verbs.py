"""Every verb in every configuration, with failures and deaths in the middle: what each wrote is what it writes without them.

`make test` draws some configurations of each verb anew in every run, `make chaos` takes all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import generated_verbs as generated
import pytest
from faults import fired
from generated_verbs import Configuration
from killed import killed_and_finished, written
from sampling import Extent

from holdfast.failpoints import arm, disarm
from holdfast.testing import compare_rows, run_local

FILE = Path(generated.__file__)
LOCAL = [verb for verb in generated.verbs() if verb not in generated.SPARK]
TOGETHER = 4
"""Configurations in one program."""
FAILURES = "step.end=raise@5;ckpt.op.put=raise@3;sink.commit.begin=raise@2"
DEATHS = ["step.begin=kill@4", "ckpt.epoch.published=kill@1", "sink.commit.applied=kill@1", "reset.op.loaded=kill@1"]  # fmt: skip
"""In this order each fires at any pace: first what needs rows, last what needs an epoch only."""


def drawn(verb: str, extent: Extent) -> list[list[int]]:
    """Numbers of configurations, in groups for one program each."""
    numbers = extent.of(generated.accepted(verb), keep=TOGETHER)
    return [numbers[first : first + TOGETHER] for first in range(0, len(numbers), TOGETHER)]


def outputs(chosen: list[Configuration], here: Path) -> dict[str, list[dict[str, Any]]]:
    """By configuration and output. When a row failed, and through which lines, is no matter of results."""
    return {
        f"{one}, output {place.name}": [
            {column: value for column, value in row.items() if column not in ("time", "traceback")}
            for row in written(here, place.name)
        ]
        for number, one in enumerate(chosen)
        for place in sorted(here.glob(f"op{number}-*"))
    }


def undisturbed(chosen: list[Configuration], here: Path) -> dict[str, list[dict[str, Any]]]:
    run_local(generated.topology(chosen, str(here)), store=f"file:{here}/store")
    found = outputs(chosen, here)
    assert any(found.values()), "nothing was written: nothing is learnt"
    return found


def compare(golden: dict[str, list[dict[str, Any]]], chosen: list[Configuration], here: Path) -> None:
    found = outputs(chosen, here)
    for name, rows in golden.items():
        compare_rows(rows, found.get(name, []), name)
    assert all(not rows for name, rows in found.items() if name not in golden)


@pytest.mark.always
@pytest.mark.sampled(keep=8, per=["extent"])
@pytest.mark.parametrize("verb", LOCAL)
def test_failures_in_a_run_change_no_result(
    verb: str, extent: Extent, tmp_path: Path, tell: Callable[..., None]
) -> None:
    for number, numbers in enumerate(drawn(verb, extent)):
        chosen = [generated.configurations(verb)[n] for n in numbers]
        golden = undisturbed(chosen, tmp_path / f"golden{number}")
        here = tmp_path / f"failing{number}"
        arm(FAILURES)
        try:
            run_local(generated.topology(chosen, str(here)), store=f"file:{here}/store")
        finally:
            hits = disarm()
        assert all(hits.values()), f"{hits}: not every fault fired"
        fired("exception at a failpoint", sum(hits.values()))
        compare(golden, chosen, here)
    tell(
        "generated verbs",
        f"{verb}: {len(generated.accepted(verb))} configurations of {len(generated.configurations(verb))}",
    )


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("verb", LOCAL)
def test_deaths_of_the_driver_change_no_result(verb: str, tmp_path: Path) -> None:
    numbers = list(generated.accepted(verb))[:: max(1, len(generated.accepted(verb)) // TOGETHER)][:TOGETHER]
    chosen = [generated.configurations(verb)[n] for n in numbers]
    golden = undisturbed(chosen, tmp_path / "golden")
    here = tmp_path / "killed"
    killed_and_finished(FILE, here, DEATHS, verb, ",".join(map(str, numbers)))
    compare(golden, chosen, here)


@pytest.mark.parametrize("verb", LOCAL)
def test_what_is_refused_is_refused_with_a_cure(verb: str) -> None:
    for one, refusal in generated.refused(verb):
        assert refusal.cure, f"{one}: {refusal}"


def test_every_window_is_used_by_the_verbs_that_take_windows() -> None:
    used = {
        dict(generated.configurations("aggregate")[n].arguments)["window"]
        for n in generated.accepted("aggregate")
    }
    assert used == {None, *generated.windows()}
    assert len(generated.windows()) >= 10
    assert sum(len(generated.accepted(verb)) for verb in LOCAL) >= 250
