"""All applications at once in one driver, killed in the middle: `python killed_program.py DIRECTORY SECONDS`.

Every source hands out a few slices and then waits. When each application has published an epoch that can be seen, all
sources go on together, and after SECONDS the process kills itself: every application is then at work, with an epoch to
go back to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from app_data import APPS

from holdfast.language.connectors import Slice
from holdfast.runtime.engines.spark.session import make_session
from holdfast.sources import Files

FIRST = 1
"""Slices before the wait."""


class Gate:
    """Holds all file sources back after their first slices."""

    def __init__(self) -> None:
        self.is_open = False
        self._taken: dict[int, int] = {}
        self._next = Files.next_slice

    def next_slice(self, source: Files) -> Slice | None:
        taken = self._taken.get(id(source), 0)
        if taken >= FIRST and not self.is_open:
            return None  # nothing there now: the run goes on and establishes epochs
        piece = self._next(source)
        self._taken[id(source)] = taken + (piece is not None)
        return piece


def shows_something(out: Path) -> bool:
    """True if some epoch's output is visible; hidden directories hold what is not."""
    return any(out.glob("part-*.csv")) or any(out.glob("[!.]*/part-*.csv"))


def main(directory: Path, seconds: float) -> None:
    gate = Gate()
    Files.next_slice = lambda self: gate.next_slice(self)  # type: ignore[method-assign]
    session = make_session("killed", settings={"spark.sql.codegen.wholeStage": "false"})
    for app in APPS.values():
        here = directory / app.name
        app.build(here, period=0.5, **app.small_steps).submit(session, store=str(here / "store"))
    while not all(shows_something(directory / name / "out") for name in APPS):
        time.sleep(0.05)
    gate.is_open = True
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
