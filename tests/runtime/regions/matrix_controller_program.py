"""Child of test_matrix_controller: a topology of the matrix whose driver dies at a move of a region's controller.

matrix_controller_program.py TOPOLOGY MODE FROM TO MOMENT DIRECTORY. A parked region is resumed at once, as by a person.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import matrix_program as program

from holdfast.protocol import commands
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.runtime.job import Job
from holdfast.runtime.region.region import Region
from holdfast.runtime.telling.events import RegionParked, RunEvent
from holdfast.testing import run_local

MOMENTS = ("decided", "recorded", "done")
"""The controller has moved, and nobody knows; its record is written; all that it commanded is done."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(here: str, there: str, moment: str) -> None:
    """From now on this process dies the first time that a controller makes this move."""
    moved: list[RegionController] = []
    decide, perform, handle = RegionController._move, Region._perform, Region._handle

    def dying_decide(controller: RegionController, to: ControllerPhase) -> None:
        made = (controller.phase, to)
        decide(controller, to)
        if made == (here, there):
            moved.append(controller)
            if moment == "decided":
                die()

    def dying_perform(region: Region, command: Any) -> None:
        perform(region, command)
        if moment == "recorded" and region.controller in moved and isinstance(command, commands.Persist):
            die()

    def dying_handle(region: Region, event: Any) -> None:
        handle(region, event)
        if region.controller in moved:
            die()

    RegionController._move = dying_decide  # type: ignore[method-assign]
    Region._perform = dying_perform  # type: ignore[method-assign]
    Region._handle = dying_handle  # type: ignore[method-assign]


def main(topology: str, mode: str, from_: str, to: str, moment: str, here: str) -> None:
    die_at(from_, to, moment)
    settings: dict[str, Any] = {"max_consecutive_resets": 1} if "parked" in (from_, to) else {}
    if from_ == "running" and to != "establishing":
        settings["period"] = 3600  # else it may be in the middle of an epoch when it fails
    jobs: list[Job] = []

    def resume(event: RunEvent) -> None:
        if isinstance(event, RegionParked):
            jobs[0].resume()

    run_local(
        program.build(topology, mode, here, **settings),
        store=f"file:{here}/store",
        on_start=jobs.append,
        subscribers=[resume],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
