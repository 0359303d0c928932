"""Kills while a region is at rest, and at the first epoch behind that: the output is that of a run that nobody disturbed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import rest_program as program
from killed import lived, undisturbed, written

FILE = Path(program.__file__)
FIRST_BEHIND_REST = (
    ("async", "drain.begin=kill@3"),
    ("token", "drain.all_acked=kill@2"),
    ("drain", "ckpt.op.put=kill@3"),
    ("async", "ckpt.manifest.tmp_written=kill@2"),
    ("drain", "ckpt.epoch.published=kill@2"),
    ("async", "sink.commit.begin=kill@2"),
    ("token", "sink.commit.recorded=kill@2"),
)


def output(here: Path) -> list[dict[str, Any]]:
    return sorted(written(here, "rows"), key=lambda row: (row["seen"], row["n"]))


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    here = tmp_path_factory.mktemp("golden")
    undisturbed(FILE, here, "async", "0")
    found = output(here)
    assert found == [{"n": n, "seen": n + 1} for n in range(program.ROWS)]
    return found


@pytest.mark.parametrize("mode", ["async", "token", "drain"])
def test_a_kill_at_rest_costs_and_doubles_nothing(
    mode: str, tmp_path: Path, golden: list[dict[str, Any]]
) -> None:
    here = tmp_path / "killed"
    for rest in ("1", "2", "1"):
        assert lived(FILE, here, "", mode, rest) == -signal.SIGKILL, f"it was not at rest {rest} times"
        found = output(here)
        assert found == golden[: len(found)]
        assert len(found) % program.BURST == 0, "at rest all is visible that came in"
    assert lived(FILE, here, "", mode, "0") == 0
    assert output(here) == golden


@pytest.mark.parametrize(("mode", "failpoint"), FIRST_BEHIND_REST)
def test_a_kill_at_the_first_epoch_behind_a_rest_costs_and_doubles_nothing(
    mode: str, failpoint: str, tmp_path: Path, golden: list[dict[str, Any]]
) -> None:
    here = tmp_path / "killed"
    assert lived(FILE, here, failpoint, mode, "0") == -signal.SIGKILL, f"{failpoint} did not fire"
    assert lived(FILE, here, "", mode, "0") == 0
    assert output(here) == golden


def test_elements_with_epochs_of_their_own_come_to_rest_too(
    tmp_path: Path, golden: list[dict[str, Any]]
) -> None:
    """A kill at rest finds nothing between them, so it costs nothing there either."""
    here = tmp_path / "killed"
    for rest in ("1", "2"):
        assert lived(FILE, here, "", "independent", rest) == -signal.SIGKILL
    assert lived(FILE, here, "", "independent", "0") == 0
    assert output(here) == golden
