"""How a schedule ended: its figures, or the seed to see the failure again."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.element import ElementPhase

ElementMove = tuple[ElementPhase, ElementPhase]
ControllerMove = tuple[ControllerPhase, ControllerPhase]


class SimulationFailed(AssertionError):
    """A schedule broke an invariant or did not end. Says how to see it again."""

    def __init__(self, seed: int, reason: str, module: str = "simulator") -> None:
        super().__init__(seed, reason, module)
        self.seed = seed
        self.reason = reason
        self.module = module

    def __str__(self) -> str:
        again = f"python -m holdfast.chaos.{self.module} --seed {self.seed}"
        return f"seed {self.seed}: {self.reason}\nre-run: {again}"


@dataclass(slots=True)
class Outcome:
    """Figures of one run, or of many added up."""

    schedules: int = 0
    events: int = 0
    faults: int = 0
    resets: int = 0
    epochs_begun: int = 0
    epochs_published: int = 0
    parked: int = 0
    runs: int = 0
    ignored: int = 0
    element_moves: set[ElementMove] = field(default_factory=set)
    controller_moves: set[ControllerMove] = field(default_factory=set)

    def add(self, other: Outcome) -> None:
        for name in ("schedules", "events", "faults", "resets", "epochs_begun", "epochs_published"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("parked", "runs", "ignored"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.element_moves |= other.element_moves
        self.controller_moves |= other.controller_moves

    def figures(self) -> str:
        return (
            f"{self.schedules} schedules, {self.events} events, {self.faults} faults, {self.resets} resets, "
            f"{self.epochs_begun} epochs begun, {self.epochs_published} published, {self.parked} times parked, "
            f"{self.runs} runs, {self.ignored} stale messages ignored"
        )
