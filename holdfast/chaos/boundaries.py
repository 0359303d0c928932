"""When epochs are asked for, where that is not at any time: at points of the input, and in turn, also when nothing comes in.

*Points.* Epochs where the input comes to a point: modes `drain` and `token`, with operators that have points of their own and inputs.

There an element gets its input up to the epoch's marker, and must be at a point then. So somebody has to know when to ask: the start of
the region at the end of each file (`trigger="operator"`), or a person who lets the sources come to rest first (`trigger="manual"`). Sources
here come to rest at every third row and at their end; then the epoch is asked for, and each goes on once its element is pinned. Some
epochs are asked for at the wrong moment, which counts as a fault: they must be given up, not established.

*Lulls.* Times in which nothing comes in. The region must come to rest, and then everything is visible that was read.

Epochs come in turn, as their trigger lets them: once in a while after the one before, and then no more until there was another one. In a
lull time passes only when nobody can do anything. If an epoch was due, none began and nobody can do anything, the region
is *at rest*: what is not visible now would stay so for ever. Crashes strike at rest, too.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.chaos.checkers import Checkers, InvariantBroken
from holdfast.chaos.store import SimStore
from holdfast.chaos.world import World
from holdfast.ids import Epoch
from holdfast.protocol.commands import UnderWay
from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.shape import Mode

MOST = 3
"""Lulls of a schedule, besides the one at the end of the input."""
SPARE = 3
"""An element may hold back what came with one epoch until the next: so many more epochs than elements may come in a lull."""
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


class Lulls:
    """Of one schedule. `due`: tells the controller that an epoch is due in turn; None: they come at points of the input only."""

    def __init__(
        self, world: World, store: SimStore, checkers: Checkers, rng: Random, due: Callable[[], None] | None
    ) -> None:
        # Operators that have points of their own may hold an epoch up until more comes.
        self.left = 0 if due is None or world.scene.region.conditional else rng.randint(0, MOST)
        self._world = world
        self._store = store
        self._checkers = checkers
        self._due = due
        self._rung = False
        self._rings = 0

    @property
    def is_on(self) -> bool:
        return self._world.is_silent

    @property
    def is_quiet(self) -> bool:
        """Nothing comes in now, or never any more."""
        return self.is_on or self._world.is_read()

    def begin(self) -> None:
        if self.left and not self.is_on:
            self.left -= 1
            self._rings = 0
            self._world.is_silent = True

    def end(self) -> None:
        self._rings = 0
        self._world.is_silent = False

    def went_on(self) -> None:
        """The region was reset: it does things again."""
        self._rung, self._rings = False, 0

    def shown(self) -> None:
        """An epoch is visible: the next one will be due."""
        self._rung = False

    def asked_by_name(self) -> None:
        """An epoch comes whatever is new: nothing follows from it for the row of those that came in turn."""
        self._rings = 0

    def ring(self) -> bool:
        """The period is over. False if it was, and nothing came of it."""
        if self._rung or self._due is None:
            return False
        self._rung = True
        self._due()
        return True

    def is_at_rest(self) -> bool:
        """Nobody can do anything, and no epoch is under way. Judged if time will not change that."""
        if self.ring():
            self._rings += 1
            if self._rings > len(self._world.elements) + SPARE:
                raise InvariantBroken(f"{self._rings} epochs in a row came due and something was always new")
            return False
        if self._due is None:
            return True
        positions = {e.name: e.position for e in self._world.elements.values() if e.rows is not None}
        self._checkers.rests(self._store.sinks, positions)
        return True
