"""Runs one region through a random schedule of steps, deliveries and faults, decided by a seed alone.

The machines are the real ones (`holdfast.protocol`); everything around them is simulated. Anything may be late, in
another order, doubled (messages), lost (queues of a dead element), or of unknown outcome (writes whose answer dies with
the controller). Faults are bounded: after the last one the region must finish its input and stop.

    python -m holdfast.chaos.simulator --seed 42          tell one run, event by event
    python -m holdfast.chaos.simulator --count 1000       run seeds 0..999 and print figures

What is not simulated: torn or lost writes of the store, clocks, several regions, autonomous ports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from holdfast.chaos.boundaries import Boundaries, Lulls
from holdfast.chaos.checkers import Checkers, InvariantBroken
from holdfast.chaos.faults import Faults
from holdfast.chaos.outcome import Outcome, SimulationFailed, Teller, command_line
from holdfast.chaos.shapes import random_scene, with_points
from holdfast.chaos.store import SimStore
from holdfast.chaos.tapes import Floats
from holdfast.chaos.world import SimElement, ToController, ToElement, Uploading, World
from holdfast.protocol import commands, messages
from holdfast.protocol.controller import ControllerPhase, RegionController
from holdfast.protocol.phases import ProtocolViolation
from holdfast.protocol.shape import TOGETHER, Mode

EPOCHS_MIN = 5
TICKS_MAX = 30_000
TIMEOUTS_AFTER_FAULTS_MAX = 8
"""The last faults may leave work for a few timeouts; more means that the protocol itself is stuck."""


class Simulator(Teller):
    """One schedule. `trace` receives a line per event, if given."""

    def __init__(
        self,
        seed: int,
        *,
        mode: Mode | None = None,
        rng: Random | None = None,
        world_class: type[World] = World,
        controller_class: type[RegionController] = RegionController,
        store_class: type[SimStore] = SimStore,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        rng = rng or Floats(seed)
        self.seed = seed
        self.name = "simulator" if mode is None else f"simulator --mode {mode}"
        self.random = rng.random
        self.trace = trace
        self.scene = random_scene(rng)
        self.mode: Mode = mode or rng.choices(TOGETHER, (3, 4, 9))[0]
        if rng.random() < 0.4:
            self.scene = with_points(self.scene, rng)
        self.resets_max = rng.choice((0, 1, 2, 5, 5))
        self.checkers = Checkers(self.scene)
        self.store = store_class(self.scene, self.checkers)
        self.world = world_class(self.scene, self.store, self.checkers, rng, rng.choice((1, 2, 3)))
        self.elements = list(self.world.elements.values())
        self.pending = self.world.pending
        self.turns = [e for e in self.elements for _ in range(rng.choice((1, 1, 2, 6)))]  # some are faster
        self.is_sticky = rng.random() < 0.5  # stop() rather than the end of the input ends the run
        self.delivery_share = rng.choice((0.15, 0.4, 0.7))
        self.faults = Faults(self, rng)
        self.boundaries = Boundaries(self.world, self.mode, rng, self._ask_at_boundary)
        ask = partial(self.tell_controller, messages.EpochDue(if_new=True))
        in_turn = None if self.boundaries.are_needed else ask
        self.lulls = Lulls(self.world, self.store, self.checkers, rng, in_turn)
        self.controller_class = controller_class
        self.controller = controller_class(self.scene.region, self.mode, self.resets_max)
        self.timers: list[messages.DrainTimedOut | messages.ResetTimedOut] = []
        self.outcome = Outcome(schedules=1)
        self.timeouts_after_faults = 0
        self.is_final_asked = False
        self.is_over = False
        self.say("%s, at most %s consecutive resets, %s", self.mode, self.resets_max, self.scene.region)

    # --- running ----------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end; SimulationFailed if an invariant breaks or the end is not reached."""
        try:
            self.start_controller()
            self._run()
            self.checkers.ended(self.store.sinks)
        except (InvariantBroken, ProtocolViolation) as broken:
            raise SimulationFailed(self.seed, str(broken), self.name) from broken
        self._close_account()
        for element in self.elements:
            self.world.retire(element)
        self.outcome.element_moves = self.world.taken
        self.outcome.ignored += self.world.ignored
        return self.outcome

    def _run(self) -> None:
        ticks = idle = 0
        random, turns, pending = self.random, self.turns, self.pending
        boundaries, bounded = self.boundaries, self.boundaries.are_needed
        while not self.is_over:
            ticks += 1
            if ticks > TICKS_MAX:
                raise InvariantBroken(
                    f"no end after {ticks} ticks; the controller is {self.controller.phase.value}"
                )
            dice = random()
            if bounded and boundaries.turn(self.controller.phase, self._under_way):
                idle = 0
            elif dice < 0.05:
                self._by_chance(dice)
            elif dice < self.delivery_share and pending:
                self._deliver()
                idle = 0
            elif self._step(turns[int(random() * len(turns))]):
                idle = 0
            else:
                idle += 1
                if idle > 12:
                    idle = 0
                    self._when_idle()

    def _step(self, element: SimElement, *, must_read: bool = False) -> bool:
        if self.trace is None:
            done = self.world.step(element, must_read=must_read)
            self.outcome.events += done
            return done
        before = [len(link.queue) for link in element.inputs], element.position
        done = self.world.step(element, must_read=must_read)
        if done:
            after = [len(link.queue) for link in element.inputs], element.position
            self.say(
                "step %s (%s): inputs, position %s -> %s",
                element.name,
                element.machine.phase.value,
                before,
                after,
            )
        return done

    def _by_chance(self, dice: float) -> None:
        if self.faults.left and dice < self.faults.rate:
            self.faults.strike()
        elif dice > 0.048:
            self.lulls.begin()
        elif dice > 0.035 and not self.is_final_asked:
            self._ask_for_epoch(in_turn=self.random() < 0.7)

    def _ask_for_epoch(self, *, in_turn: bool = False) -> None:
        final = self.checkers.epochs_begun >= EPOCHS_MIN and self.world.is_read()
        if final and not self.is_sticky and self.controller.phase is not ControllerPhase.RUNNING:
            return
        self.is_final_asked = final
        drained = self.checkers.epochs_begun % 3 == 2  # as for a savepoint
        if self.boundaries.are_needed and not final and not drained:
            if not self.boundaries.is_misplaced(self.faults.left):
                return self.boundaries.want(self.controller.phase)
            self.say("FAULT an epoch where the input may not be at a point")
            self.faults.left -= 1
            self.outcome.faults += 1
        if not (in_turn and not final and not drained and self.lulls.ring()):
            self.lulls.asked_by_name()
            self.tell_controller(messages.EpochDue(final, self.is_sticky, drained))

    def _ask_at_boundary(self) -> None:
        self.tell_controller(messages.EpochDue(False, self.is_sticky, False))

    def _under_way(self) -> commands.UnderWay | None:
        return self.controller.under_way

    def _when_idle(self) -> None:
        """Look whether anything at all can go on; if not, time passes until the next timer, trigger or person."""
        if self.pending:
            return self._deliver()
        if any(self._step(element, must_read=True) for element in self.elements):
            return None
        phase = self.controller.phase
        if phase in (ControllerPhase.RESETTING, ControllerPhase.ESTABLISHING) and self.timers:
            return self._time_out()
        if phase is ControllerPhase.PARKED:
            return self.tell_controller(messages.ResumeRequested())
        if phase is ControllerPhase.RUNNING and self.lulls.is_quiet and not self.is_final_asked:
            return self._when_nothing_comes()
        asked = ", the final epoch was asked for" if self.is_final_asked else ""
        raise InvariantBroken(f"hang: the controller is {phase.value}, nothing can step or arrive{asked}")

    def _when_nothing_comes(self) -> None:
        """The region is to come to rest. There it may be struck, too; then more comes in, or the end."""
        if not self.lulls.is_at_rest():
            return
        self.outcome.rests += 1
        if self.faults.left and self.random() < 0.5:
            self.faults.strike()
        elif self.lulls.is_on:
            self.lulls.end()
        else:
            self._ask_for_epoch()

    def _time_out(self) -> None:
        if not self.faults.left:
            self.timeouts_after_faults += 1
            if self.timeouts_after_faults > TIMEOUTS_AFTER_FAULTS_MAX:
                raise InvariantBroken(f"hang: {self.timeouts_after_faults} timeouts after the last fault")
        self.tell_controller(self.timers.pop())

    # --- deliveries ---------------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Let anything that is under way arrive, whichever was sent first."""
        self.outcome.events += 1
        pending = self.pending
        place = int(self.random() * len(pending))
        item = pending[place]
        if self.faults.doubles(item):
            self.say("doubled: %s", item)
        else:
            pending[place] = pending[-1]
            pending.pop()
        if isinstance(item, ToController):
            self.tell_controller(item.event)
        elif isinstance(item, ToElement):
            self.say("%s <- %s", item.element, item.event)
            self.world.feed(self.world.elements[item.element], item.event)
        elif isinstance(item, Uploading):
            self._finish_upload(item)
        elif isinstance(item, tuple):
            self._finish_publish(*item)
        elif isinstance(item, commands.CommitSinks):
            self._finish_commit(item)
        elif isinstance(item, commands.AwaitSpace):
            self.tell_controller(messages.SpaceReturned())

    def _finish_upload(self, item: Uploading) -> None:
        part = item.part
        element = self.world.elements[part.element]
        broken = self.faults.upload_breaks()
        if broken is None:
            self.store.upload(part)
        if element.life != item.life:
            return
        self.say("%s uploads epoch %s: %s", part.element, part.epoch, broken or "done")
        if broken is None:
            self.world.feed(element, messages.UploadFinished(part.epoch, part.attempt, part))
        else:
            self.world.feed(
                element, messages.UploadBroke(part.epoch, part.attempt, broken == "no space", broken)
            )

    def _finish_publish(self, command: commands.Publish, owner: int) -> None:
        broken = self.faults.publish_breaks()
        if broken is not None:
            self.say("publish %s: %s", command.epoch, broken)
            self.pending.append(
                ToController(messages.PublishFailed(command.epoch, broken == "no space", broken))
            )
        elif self.store.publish(command.epoch, command.attempt, command.parts, owner):
            self.say("published %s", command.epoch)
            self.outcome.epochs_published += 1
            self.checkers.settles_epoch()
            self.pending.append(ToController(messages.Published(command.epoch)))

    def _finish_commit(self, command: commands.CommitSinks) -> None:
        sinks = list(self.store.sinks)
        broken = self.faults.commit_breaks()
        shown = sinks if not broken else sinks[: int(self.random() * len(sinks))]
        self.say("commit %s in %s%s", command.epoch, shown, ", then fail" if broken else "")
        for sink in shown:
            self.store.commit(sink, command.epoch)
        self.lulls.shown()
        answer = (
            messages.CommitFailed(command.epoch, "simulated") if broken else messages.Committed(command.epoch)
        )
        self.pending.append(ToController(answer))

    # --- the controller -----------------------------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """A controller takes over: it fences its predecessor off, looks what is published, and starts."""
        self.controller = self.controller_class(self.scene.region, self.mode, self.resets_max)
        self.store.owner += 1
        self.timers.clear()
        self.is_final_asked = False
        self.checkers.settles_epoch()
        self.outcome.runs += 1
        self.tell_controller(messages.Start(self.store.newest, self.store.record))

    def tell_controller(self, event: messages.ControllerEvent) -> None:
        self.say("controller (%s) <- %s", self.controller.phase.value, event)
        given = self.controller.handle(event)
        if given and self.faults.controller_dies_acting():
            for command in given[: int(self.random() * (len(given) + 1))]:
                self._perform(command)
            self.crash_controller()
            return
        for command in given:
            self._perform(command)
        self.faults.reached(self.controller.phase)

    def _perform(self, command: commands.ControllerCommand) -> None:
        self.say("    %s", command)
        match command:
            case commands.Persist(record):
                self.checkers.records(self.store.record, record, self.store.newest)
                self.store.record = record
            case messages.BeginEpoch(elements=elements):
                self.checkers.begins_epoch(command, self.store.record)
                self.world.style_of[command.epoch] = command.style
                self._send(elements, command)
            case messages.BeginReset(elements=elements):
                self.checkers.begins_reset(command, self.store.record, self.store.newest)
                self.outcome.resets += 1
                self.is_final_asked = self.is_final_asked and self.is_sticky
                self._send(elements, command)
            case messages.GoOn(elements=elements):
                self.checkers.goes_on(command.attempt)
                self.lulls.went_on()
                self._send(elements, command)
            case messages.Resume(elements=elements) | messages.Prepare(elements=elements):
                self.checkers.prepares(command)
                self._send(elements, command)
            case commands.Publish():
                self.pending.append((command, self.store.owner))
            case commands.CommitSinks() | commands.AwaitSpace():
                self.pending.append(command)
            case commands.AbortEpoch(epoch):
                self.checkers.aborts_epoch(epoch, self.store.newest)
            case commands.StartDrainTimer(epoch, attempt):
                self.timers.append(messages.DrainTimedOut(epoch, attempt))
            case commands.StartResetTimer(epoch, attempt):
                self.timers.append(messages.ResetTimedOut(epoch, attempt))
            case commands.Park():
                self.outcome.parked += 1
            case commands.Stop():
                self._stop()

    def _send(
        self,
        elements: Iterable[str],
        event: messages.Prepare | messages.BeginEpoch | messages.BeginReset | messages.Resume | messages.GoOn,
    ) -> None:
        for name in self.world.elements:
            if name in elements:
                self.pending.append(ToElement(name, event))

    def _stop(self) -> None:
        """The run ended in order. If a reset took sources back before the final epoch, another run reads the rest."""
        newest = self.store.manifests[self.store.newest]
        # What elements with points of their own left waiting is stored with the epoch, and for the next run.
        self.is_over = all(newest[name].position == rows for name, rows in self.scene.rows.items()) and all(
            self.world.is_complete(name, part.consumed) for name, part in newest.items()
        )
        if not self.is_over:
            self.checkers.stops_early(self.is_sticky)
            self.say("stopped before the end of the input: run again")
            self.crash_driver()

    # --- crashes ------------------------------------------------------------------------------------------------------------

    def crash_controller(self) -> None:
        self.say("controller crashes")
        self._close_account()
        self.pending[:] = [item for item in self.pending if not isinstance(item, commands.AwaitSpace)]
        self.start_controller()

    def crash_driver(self) -> None:
        """Everything in memory is gone: elements, links, messages, background work."""
        self.say("driver crashes")
        self._close_account()
        self.pending.clear()
        for element in self.elements:
            self.world.lose_queues(element)
            self.world.replace_element(element, knows_attempt=False)
        self.start_controller()

    def _close_account(self) -> None:
        """Add what the controller counted, before another one takes over."""
        outcome = self.outcome
        outcome.controller_moves |= self.controller.taken
        outcome.ignored += self.controller.ignored
        outcome.epochs_begun = self.checkers.epochs_begun


def main(arguments: list[str] | None = None) -> int:
    def run(seed: int, trace: Callable[[str], None] | None, mode: Mode | None) -> Outcome:
        return Simulator(seed, mode=mode, trace=trace).run()

    return command_line("simulator", __doc__.split("\n")[0], run, Outcome(), arguments, TOGETHER)


if __name__ == "__main__":
    sys.exit(main())
