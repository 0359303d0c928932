"""Child of test_group_size_kills: a window join whose groups get another size, and a death at a certain moment of that.

group_size_program.py STAGE DIRECTORY
STAGE: `chosen` (the size is chosen, nothing has it yet), a failpoint (armed when it is chosen), or `none`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import holdfast as hf
from holdfast.checkpoint import group_size
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.runs import group_profile
from holdfast.testing import arm, run_local

ROWS = 6_000


def build(here: str, groups: int | None = None) -> hf.Topology:
    made = hf.Topology("windows")
    sides = []
    for side, column in (("left", "a"), ("right", "b")):
        rows = hf.Rows([(n % 200, n) for n in range(ROWS)], f"k long, {column} long", rows_per_step=20)
        sides.append(made.source(rows, name=side).consistent("joined", period=0.02))
    joined = sides[0].join(sides[1], "k", keep=hf.latest(rows=1_000), name="joined")
    if groups is not None:
        joined = joined.checkpoint(form=hf.groups(groups))
    joined.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    return made


def die_when_chosen(stage: str) -> None:
    """Small groups always win, so that the size changes at the first choice."""
    prices = group_size.Prices(1e-7, 1e-3)
    group_profile.fitted = lambda samples: prices  # type: ignore[assignment]
    chosen, run_step = group_profile.GroupProfile.chosen, ElementLoop.run_step

    def choosing(self: Any, *given: Any) -> int:
        before = self.rows
        rows = chosen(self, *given)
        if rows != before and stage == "chosen":
            os.kill(os.getpid(), signal.SIGKILL)
        if rows != before and stage != "none":
            arm(f"{stage}=kill@1")
        return rows

    def slowly(self: Any, work: Any) -> Any:
        time.sleep(0.01)  # so that several epochs come in each life, and there is a rest for the next
        return run_step(self, work)

    group_profile.GroupProfile.chosen = choosing  # type: ignore[method-assign]
    ElementLoop.run_step = slowly  # type: ignore[method-assign]


def main(stage: str, here: str) -> None:
    die_when_chosen(stage)
    run_local(build(here), f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
