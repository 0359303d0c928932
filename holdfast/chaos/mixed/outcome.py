"""Figures of mixed schedules."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.chaos.outcome import ControllerMove
from holdfast.protocol.autonomous import AutonomousPhase

AutonomousMove = tuple[AutonomousPhase, AutonomousPhase]


@dataclass(slots=True)
class MixedOutcome:
    """Of one schedule, or of many added up."""

    schedules: int = 0
    with_region: int = 0
    events: int = 0
    faults: int = 0
    runs: int = 0
    kills: int = 0
    lost: int = 0
    """Rows counted at the end, added up over all sinks."""
    moves: set[AutonomousMove] = field(default_factory=set)
    controller_moves: set[ControllerMove] = field(default_factory=set)

    def add(self, other: MixedOutcome) -> None:
        for name in ("schedules", "with_region", "events", "faults", "runs", "kills", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.moves |= other.moves
        self.controller_moves |= other.controller_moves

    def figures(self) -> str:
        return (
            f"{self.schedules} schedules, {self.with_region} with a region, {self.events} events, "
            f"{self.faults} faults, {self.kills} kills, {self.runs} runs, {self.lost} rows counted as lost"
        )
