"""Which faults a schedule has, and when they strike. Decided by the seed; their number is bounded."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from holdfast.chaos.world import SimElement, ToController, ToElement
from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.messages import ElementFailed

if TYPE_CHECKING:
    from holdfast.chaos.simulator import Simulator

FAULTS_MAX = 10

_AMBUSHES = (
    ControllerPhase.RESETTING,
    ControllerPhase.ESTABLISHING,
    ControllerPhase.PUBLISHING,
    ControllerPhase.PUBLISHING,
    ControllerPhase.COMMITTING,
    ControllerPhase.PAUSED,
)


class Faults:
    """The faults of one schedule. `left` falls to zero; after that nothing fails any more.

    Some strike at once (crashes, early timeouts); others lie in wait for the next upload, publish, commit or command.
    """

    def __init__(self, simulator: Simulator, rng: Random) -> None:
        self._sim = simulator
        self._rng = rng
        self.left = rng.randint(0, FAULTS_MAX)
        self.rate = rng.choice((0.01, 0.02, 0.03))  # per tick, while some are left
        self._waiting: dict[str, str] = {}  # place -> what will happen there
        self._doubles = rng.random() < 0.5
        self._kinds = (
            self._break_element,
            self._break_element,
            self._break_acting,
            self._break_in_ambush,
            self._break_in_ambush,
            self._replace_element,
            self._crash_controller,
            self._crash_controller_acting,
            self._crash_driver,
            self._time_out_early,
            self._break_upload,
            self._break_publish,
            self._break_commit,
        )

    def strike(self) -> None:
        self.left -= 1
        self._sim.outcome.faults += 1
        kind = self._kinds[int(self._rng.random() * len(self._kinds))]
        self._sim.say("FAULT %s", kind.__name__.strip("_"))
        kind()

    # --- at once --------------------------------------------------------------------------------------------------------

    def _any_element(self) -> SimElement:
        elements = self._sim.elements
        return elements[int(self._rng.random() * len(elements))]

    def _break_element(self) -> None:
        element = self._any_element()
        if self._rng.random() < 0.5:
            self._sim.world.lose_queues(element)
        self._sim.world.break_element(element)

    def _replace_element(self) -> None:
        """The element's process dies; whoever watches it starts another and tells the controller."""
        element = self._any_element()
        attempt = element.machine.attempt
        self._sim.world.lose_queues(element)
        self._sim.world.replace_element(element, knows_attempt=True)
        self._sim.pending.append(ToController(ElementFailed(element.name, attempt, "process died")))

    def _crash_controller(self) -> None:
        self._sim.crash_controller()

    def _crash_driver(self) -> None:
        self._sim.crash_driver()

    def _time_out_early(self) -> None:
        timers = self._sim.timers
        if timers:
            self._sim.tell_controller(timers.pop(int(self._rng.random() * len(timers))))

    # --- in wait ----------------------------------------------------------------------------------------------------------

    def _break_acting(self) -> None:
        self._any_element().breaks_next = True

    def _break_in_ambush(self) -> None:
        """An element breaks when the controller next reaches some phase: short phases are rarely hit by chance."""
        self._waiting["phase"] = _AMBUSHES[int(self._rng.random() * len(_AMBUSHES))]

    def _crash_controller_acting(self) -> None:
        self._waiting["controller"] = "dies"

    def _break_upload(self) -> None:
        self._waiting["upload"] = self._some_failure()

    def _break_publish(self) -> None:
        self._waiting["publish"] = self._some_failure()

    def _break_commit(self) -> None:
        self._waiting["commit"] = "fails"

    def _some_failure(self) -> str:
        return "no space" if self._rng.random() < 0.5 else "failed"

    def reached(self, phase: ControllerPhase) -> None:
        if self._waiting.get("phase") == phase:
            del self._waiting["phase"]
            self._break_element()

    def upload_breaks(self) -> str | None:
        return self._waiting.pop("upload", None)

    def publish_breaks(self) -> str | None:
        return self._waiting.pop("publish", None)

    def commit_breaks(self) -> bool:
        return self._waiting.pop("commit", None) is not None

    def controller_dies_acting(self) -> bool:
        return self._waiting.pop("controller", None) is not None

    def doubles(self, item: object) -> bool:
        """Whether a message is delivered now and will be once more, maybe much later."""
        if not self._doubles or not isinstance(item, ToController | ToElement):
            return False
        return self._rng.random() < 0.2
