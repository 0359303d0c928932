"""Which faults a mixed schedule has, and when they strike. Decided by the seed; their number is bounded."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.chaos.mixed.simulator import MixedSimulator

FAULTS_MAX = 8

AMBUSHES = (
    "saved",
    "wrote sinks",
    "handed on",
    "step done",
    "step failed",
    "settled",
    "opened",
    "closed",
    "gave up",
)
OPERATOR_AMBUSHES = ("stored a checkpoint", "stored a checkpoint", "restored", "restored")
REGION_AMBUSHES = ("reset", "reset", "published", "published", "parked")
"""Moments at which the driver may be killed in particular: most are short and rarely hit by chance."""


class MixedFaults:
    """The faults of one schedule. `left` falls to zero; after that nothing fails any more."""

    def __init__(self, simulator: MixedSimulator, rng: Random) -> None:
        self._sim = simulator
        self._random = rng.random
        self.left = rng.randint(0, FAULTS_MAX)
        self.rate = rng.choice((0.01, 0.02, 0.06))  # per tick, while some are left
        self.ambush = ""
        self.space_in = 0  # ticks until the store has space again
        graph = simulator.graph
        has_kept = any(element.kept for element in graph.elements)
        moments = AMBUSHES + (OPERATOR_AMBUSHES if has_kept else ())
        moments += REGION_AMBUSHES if graph.region is not None else ()
        self._moment = rng.choice(moments)
        kinds = [
            self._kill,
            self._kill,
            self._lie_in_wait,
            self._lie_in_wait,
            self._fail,
            self._fail,
            self._spoil,
        ]
        kinds += [self._stop, self._stall, self._fill, self._ruin]
        kinds += [self._damage, self._spoil_and_store] if has_kept else []
        kinds += [self._break, self._break_behind_backs, self._refuse] if graph.region is not None else []
        # Few kinds per schedule: they meet more often than if each schedule had all of them.
        self._kinds = rng.sample(kinds, rng.choice((2, 3, 4)))

    def strike(self) -> None:
        self.left -= 1
        kind = self._kinds[int(self._random() * len(self._kinds))]
        self._sim.say("FAULT %s", kind.__name__.strip("_"))
        self._sim.outcome.faults += 1
        kind()
        if self._random() < 0.15:
            self._park()

    def _kill(self) -> None:
        self._sim.kill()

    def _lie_in_wait(self) -> None:
        self.ambush = self._moment

    def _fail(self) -> None:
        self._fail_step(spoils=False)

    def _spoil(self) -> None:
        self._fail_step(spoils=True)

    def _spoil_and_store(self) -> None:
        """The driver dies as soon as an operator has stored what is left of its state."""
        self._fail_step(spoils=True)
        self.ambush = "stored a checkpoint"

    def _fail_step(self, *, spoils: bool) -> None:
        """A step that is under way fails, if there is one."""
        at_work = [e for e in self._sim.outside.values() if e.step is not None and e.step.is_running]
        at_work = [e for e in at_work if e.plan.operators] or at_work if spoils else at_work
        if at_work:
            at_work[int(self._random() * len(at_work))].fail(spoils=spoils)

    def _stall(self) -> None:
        """A step takes very long; sometimes the driver dies when others have gone on."""
        elements = list(self._sim.outside.values())
        elements = [e for e in elements if e.step is not None and e.step.is_running] or elements
        if elements:
            elements[int(self._random() * len(elements))].asleep = int(self._random() * 40)
            if self._random() < 0.5:
                self.ambush = "wrote sinks"

    def _ruin(self) -> None:
        """All steps of an element fail from now on: it will give up."""
        elements = list(self._sim.outside.values())
        if elements:
            elements[int(self._random() * len(elements))].is_ruined = True

    def _park(self) -> None:
        """A budget is exceeded: an element takes nothing until somebody resumes it."""
        elements = list(self._sim.outside.values())
        if elements:
            elements[int(self._random() * len(elements))].park_for = 2 + int(self._random() * 30)

    def _fill(self) -> None:
        self._sim.store.full = True
        self.space_in = int(self._random() * 30)

    def _damage(self) -> None:
        for element in self._sim.outside.values():
            element.damages_next = True

    def _stop(self) -> None:
        """Sometimes because a person sees that an element fails, and waits for long."""
        is_failing = self._random() < 0.3
        if is_failing:
            self._ruin()
        self._sim.stop(int(self._random() * (800 if is_failing else 50)))

    def _break(self) -> None:
        if self._sim.region is not None:
            elements = list(self._sim.region.elements.values())
            elements[int(self._random() * len(elements))].break_down()

    def _break_behind_backs(self) -> None:
        """The region resets and goes on while those who take from it sleep; then the driver dies."""
        if self._sim.region is not None:
            self._break()
            for element in self._sim.outside.values():
                element.asleep = 60
            self.ambush = "published"

    def _refuse(self) -> None:
        if self._sim.region is not None:
            self._sim.region.fails_next = True
