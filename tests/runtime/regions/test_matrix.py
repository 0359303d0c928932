"""The matrix of document 004, §7.1: topology × mode × failure, every cell against what a loop over the rows gives.

In-process failures are exceptions at failpoints; deaths of the driver are SIGKILLs of a child, which is then started again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matrix_program as program
import pytest
from faults import fired
from killed import lived

from holdfast.failpoints import arm, disarm
from holdfast.protocol.shape import MODES
from holdfast.testing import run_local

FILE = Path(program.__file__)

DEATHS = {
    "in a step": "step.end=kill@9",
    "while a part is stored": "ckpt.op.put_done=kill@2",
    "between manifest and record": "ckpt.epoch.published=kill@1",
    "in a commit": "sink.commit.applied=kill@1",
}

EXACT = [mode for mode in MODES if mode != "independent"]
CELLS = [cell for cell in program.cells(program.FAILURES) if cell[0] not in program.DRAWN]
MORE = [cell for cell in program.cells(program.FAILURES) if cell[0] in program.DRAWN]
AGAIN = [name for name, points in program.FAILURES.items() if "{again}" in points]
"""What only a reset after a failure comes to."""
MORTAL = [topology for topology in program.TOPOLOGIES if topology != "replayable"]
"""Not what enters a region in its middle: a death of the driver costs it, and it is counted."""
DEADLY = [
    (topology, mode, death)
    for topology in MORTAL
    if topology not in program.DRAWN
    for mode in EXACT
    for death in DEATHS
]
MORE_DEADLY = [
    (topology, mode, death)
    for topology in MORTAL
    if topology in program.DRAWN
    for mode in EXACT
    for death in DEATHS
]


def elements(topology: str, mode: Any, here: Path) -> int:
    """Elements in regions: each of them is reset when a run begins."""
    text = program.build(topology, mode, str(here)).explain()
    lines = text.partition("\nelements\n")[2].partition("\n\n")[0].splitlines()[1:]
    return sum(line.split()[1] != "-" for line in lines)


@pytest.mark.always
@pytest.mark.parametrize(("topology", "mode", "failure"), CELLS)
@pytest.mark.fault("X09", "O01", "O03")
def test_a_failure_changes_no_result(topology: str, mode: str, failure: str, tmp_path: Path) -> None:
    disturbed(topology, mode, failure, tmp_path)


@pytest.mark.sampled(per=("topology", "mode"))
@pytest.mark.parametrize(("topology", "mode", "failure"), MORE)
def test_a_failure_changes_no_result_of_further_topologies(
    topology: str, mode: str, failure: str, tmp_path: Path
) -> None:
    disturbed(topology, mode, failure, tmp_path)


def disturbed(topology: str, mode: str, failure: str, tmp_path: Path) -> None:
    faults = program.FAILURES[failure].format(again=elements(topology, mode, tmp_path) + 1)
    arm(faults)
    try:
        status = run_local(
            program.build(topology, mode, str(tmp_path)), store=f"file:{tmp_path}/store"
        ).as_dict()
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: not every fault fired"
    assert sum(region["resets"] for region in status["regions"].values()) >= 1
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("exception at a failpoint", sum(hits.values()))


@pytest.mark.sampled(keep=6)
@pytest.mark.parametrize("how", ["sleep:0.2", "late:0.5"])
@pytest.mark.parametrize(
    ("topology", "mode", "failure"), [cell for cell in (*CELLS, *MORE) if cell[2] not in AGAIN]
)
def test_what_is_slow_or_late_changes_no_result(
    topology: str, mode: str, failure: str, how: str, tmp_path: Path
) -> None:
    """Where another cell fails, nothing does, but others come first."""
    arm(program.FAILURES[failure].replace("=raise", f"={how}"))
    try:
        run_local(program.build(topology, mode, str(tmp_path)), store=f"file:{tmp_path}/store")
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: not every step was slow"
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("slow or late step", sum(hits.values()))


@pytest.mark.sampled(keep=2, per=("topology", "mode"))
@pytest.mark.parametrize(("topology", "mode", "death"), DEADLY)
@pytest.mark.fault("P11", "X01")
def test_a_death_of_the_driver_changes_no_result(
    topology: str, mode: str, death: str, tmp_path: Path
) -> None:
    killed_and_run_again(topology, mode, death, tmp_path)


@pytest.mark.sampled(per=("topology",))
@pytest.mark.parametrize(("topology", "mode", "death"), MORE_DEADLY)
def test_a_death_of_the_driver_changes_no_result_of_further_topologies(
    topology: str, mode: str, death: str, tmp_path: Path
) -> None:
    killed_and_run_again(topology, mode, death, tmp_path)


def killed_and_run_again(topology: str, mode: str, death: str, tmp_path: Path) -> None:
    assert lived(FILE, tmp_path, DEATHS[death], topology, mode) == -signal.SIGKILL, (
        "the driver was not killed"
    )
    run_local(program.build(topology, mode, str(tmp_path)), store=f"file:{tmp_path}/store")
    assert program.found(topology, tmp_path) == program.golden(topology)


def test_the_matrix_is_large_enough(tell: Callable[..., None]) -> None:
    failures, deaths = len(CELLS) + len(MORE), len(DEADLY) + len(MORE_DEADLY)
    tell("matrix", f"{failures} cells with failures in the run, {deaths} with a death of the driver")
    drawn = len({cell[:2] for cell in MORE}) + len({cell[0] for cell in MORE_DEADLY})
    assert len(CELLS) + 2 * len({cell[:2] for cell in DEADLY}) + drawn >= 300
