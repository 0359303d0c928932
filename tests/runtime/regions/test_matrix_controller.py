"""Cells of the matrix in which a controller dies, with its driver, at each move that its machine knows; and in which several things go
wrong in one run.

The moves come from the machine's own table. HOLDFAST_SEED=n repeats the draws of what goes wrong together.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import matrix_program as program
import pytest
from faults import fired
from killed import lived
from matrix_controller_program import MOMENTS
from test_matrix import DEATHS, EXACT, FILE, MORTAL, elements

from holdfast.failpoints import arm, disarm
from holdfast.protocol.controller import CONTROLLER_MOVES, ControllerPhase
from holdfast.protocol.phases import legal_moves
from holdfast.testing import run_local

PROGRAM = Path(__file__).with_name("matrix_controller_program.py")
FIRST_EPOCH = "sink.commit.applied=kill@1"

PROVOKED = {
    "resetting resetting": "reset.begin=raise@1",
    "resetting parked": "reset.begin=raise@1+",
    "running resetting": "step.begin=raise@7",
    "running parked": "step.begin=raise@7+",
    "establishing resetting": "ckpt.op.put=raise@1",
    "establishing paused": "ckpt.op.put=enospc@1",
    "establishing parked": "ckpt.op.put=raise@1+",
    "publishing resetting": "drain.all_acked=raise@1",
    "publishing paused": "drain.all_acked=enospc@1",
    "publishing parked": "drain.all_acked=raise@1+",
    "committing resetting": "sink.commit.begin=raise@1",
    "paused resetting": "drain.all_acked=enospc@1",
    "parked resetting": "drain.all_acked=raise@1+",
}
"""Moves that a run makes only after a failure, and which. The others every run makes."""
NEVER = {"committing parked"}
"""An epoch was just published, and a region has at least one reset before it is parked: a run resets instead."""
MOVES = sorted(
    move
    for move in (f"{here.value} {there.value}" for here, there in legal_moves(CONTROLLER_MOVES))
    if move not in NEVER
)
CELLS = [
    (MORTAL[(number + 3 * turn) % len(MORTAL)], mode, move, moment)
    for number, move in enumerate(MOVES)
    for turn, mode in enumerate(EXACT)
    for moment in MOMENTS
    if not (moment == "recorded" and move.endswith("paused"))  # nothing is recorded: there may be no space
]


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize(("topology", "mode", "move", "moment"), CELLS)
@pytest.mark.fault("B06", "R03")
def test_a_controller_that_dies_at_a_move_changes_no_result(
    topology: str, mode: str, move: str, moment: str, tmp_path: Path
) -> None:
    if move.startswith(
        ("new", "resetting")
    ):  # at the beginning of a run: there shall be something to go back to
        assert lived(FILE, tmp_path, FIRST_EPOCH, topology, mode) == -signal.SIGKILL
    given = (topology, mode, *move.split(), moment)
    fault = PROVOKED.get(move, "step.end=log")
    assert lived(PROGRAM, tmp_path, fault, *given) == -signal.SIGKILL, f"no controller went from {move}"
    run_local(program.build(topology, mode, str(tmp_path)), store=f"file:{tmp_path}/store")
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("controller killed at a move")


def test_every_move_of_the_machine_is_a_cell(tell: Callable[..., None]) -> None:
    moves = {(ControllerPhase(here), ControllerPhase(there)) for here, there in map(str.split, MOVES)}
    assert len(legal_moves(CONTROLLER_MOVES) - moves) == len(NEVER)
    assert set(PROVOKED) <= set(MOVES)
    tell("matrix", f"{len(CELLS)} cells with a controller that dies at one of {len(MOVES)} moves")


LATER = [
    "reset.begin=raise@1", "drain.begin=raise@1", "ckpt.op.put=raise@1", "ckpt.manifest.fsynced=raise@1",
    "sink.commit.begin=raise@1",
]  # fmt: skip
"""Failures that every run meets that goes on after a death: it restores, and establishes at least a final epoch."""
ROUNDS = range(4)


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("turn", ROUNDS)
@pytest.mark.parametrize("mode", EXACT)
@pytest.mark.parametrize("topology", MORTAL)
@pytest.mark.fault("B04")
def test_several_failures_in_one_run_change_no_result(
    topology: str, mode: str, turn: int, tmp_path: Path
) -> None:
    """Two or three failures, or a death of the driver and then two failures."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().randrange(1 << 32))
    chance = random.Random(f"{seed} {topology} {mode} {turn}")
    if turn % 2:
        death = chance.choice(sorted(DEATHS))
        assert lived(FILE, tmp_path, DEATHS[death], topology, mode) == -signal.SIGKILL
        faults = ";".join(chance.sample(LATER, 2))
        print(f"HOLDFAST_SEED={seed}: a death {death}, then {faults}")
    else:
        faults = drawn(chance, elements(topology, mode, tmp_path) + 1)
        print(f"HOLDFAST_SEED={seed}: {faults}")
    arm(faults)
    try:
        run_local(program.build(topology, mode, str(tmp_path)), store=f"file:{tmp_path}/store")
    finally:
        hits = disarm()
    assert all(hits.values()), f"{hits}: not every fault fired"
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("exception at a failpoint", sum(hits.values()))


def drawn(chance: random.Random, again: int) -> str:
    """Two or three of the matrix's failures, none of which needs the same failpoint as another."""
    count = chance.choice([2, 3])
    while True:
        chosen = [program.FAILURES[name] for name in chance.sample(sorted(program.FAILURES), count)]
        faults = ";".join(chosen).format(again=again)
        names = [fault.partition("=")[0] for fault in faults.split(";")]
        if len(set(names)) == len(names):
            return faults
