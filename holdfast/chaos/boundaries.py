"""Epochs where the input comes to a point: modes `drain` and `token`, with operators that have points of their own and inputs.

There an element gets its input up to the epoch's marker, and must be at a point then. So somebody has to know when to ask: the start of
the region at the end of each file (`trigger="operator"`), or a person who lets the sources come to rest first (`trigger="manual"`). Sources
here come to rest at every third row and at their end; then the epoch is asked for, and each goes on once its element is pinned. Some
epochs are asked for at the wrong moment, which counts as a fault: they must be given up, not established.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.chaos.world import World
from holdfast.ids import Epoch
from holdfast.protocol.commands import UnderWay
from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.shape import Mode

NEXT_EPOCH = Epoch(1 << 40)
"""Sources wait for an epoch that has no number yet."""


class Boundaries:
    """Of one schedule. `ask`: tells the controller that an ordinary epoch is due."""

    def __init__(self, world: World, mode: Mode, rng: Random, ask: Callable[[], None]) -> None:
        self._world = world
        self._ask = ask
        self._random = rng.random
        self.are_needed = mode in ("drain", "token") and not world.scene.region.drains
        world.cuts_at_points = self.are_needed

    def want(self, phase: ControllerPhase) -> None:
        """An epoch is wanted: sources come to rest for it."""
        if phase is ControllerPhase.RUNNING and self._world.rests_for is None:
            self._world.rests_for = NEXT_EPOCH

    def is_misplaced(self, faults_left: int) -> bool:
        """Whether this epoch is asked for anywhere in the input."""
        return faults_left > 0 and self._random() < 0.3

    def turn(self, phase: ControllerPhase, under_way: Callable[[], UnderWay | None]) -> bool:
        """Ask for the epoch once all sources rest; let them go on when that is over. True if something happened."""
        epoch = self._world.rests_for
        if epoch is None:
            return False
        if epoch != NEXT_EPOCH:
            if phase is not ControllerPhase.ESTABLISHING:
                self._world.rests_for = None
            return phase is not ControllerPhase.ESTABLISHING
        if phase is not ControllerPhase.RUNNING:
            self._world.rests_for = None
            return True
        if not self._world.rests():
            return False
        self._ask()
        begun = under_way()
        self._world.rests_for = None if begun is None else begun.epoch
        return True
