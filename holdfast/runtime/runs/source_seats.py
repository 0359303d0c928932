"""Where the sources of an element outside of regions are, and up to where they are told that nothing is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.clock import Clock, Every
from holdfast.ids import OperatorName
from holdfast.runtime.runs.operator_runs import SourceRun
from holdfast.runtime.source_positions import KnownPosition

LET_GO_S = 1.0


def positions_of(runs: Sequence[SourceRun]) -> dict[OperatorName, KnownPosition]:
    """Behind all that was taken."""
    return {run.name: KnownPosition(run.source.snapshot(), run.source.describe()) for run in runs}


class LettingGo:
    """Tells sources now and then that nothing before some positions is read again."""

    def __init__(self, runs: Sequence[SourceRun], clock: Clock) -> None:
        self._runs = runs
        self._times = Every(clock, LET_GO_S, at_once=False)

    def __call__(self, seats: Mapping[OperatorName, Any], at_once: bool = False) -> None:
        if at_once or self._times.due():
            for run in self._runs:
                if run.name in seats:
                    run.source.kept([seats[run.name]], None)
