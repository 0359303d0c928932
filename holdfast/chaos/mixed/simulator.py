"""Runs a random graph of elements outside of regions, alone or around a region, through a random schedule of steps and
faults, decided by a seed alone.

The machines and the accounts are the real ones (`holdfast.protocol`); everything around them is simulated. A schedule has
several runs: kills of the driver, stops that cut a run off, and ends in order lie between them. After the last fault the
input is read to its end. Checkers judge after every event that can cost rows; in some schedules after every event.

    python -m holdfast.chaos.mixed --seed 42          tell one schedule, event by event
    python -m holdfast.chaos.mixed --count 1000       run seeds 0..999 and print figures

What is not simulated: torn writes, damaged epochs, several regions, changed graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from random import Random
from typing import Literal

from holdfast.chaos.checkers import InvariantBroken
from holdfast.chaos.mixed.actor import Around
from holdfast.chaos.mixed.books import SimBooks, up_to_date
from holdfast.chaos.mixed.checkers import MixedCheckers
from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.element import AutonomousElement
from holdfast.chaos.mixed.faults import MixedFaults
from holdfast.chaos.mixed.graph import MixedGraph, random_graph
from holdfast.chaos.mixed.region import RegionElement, SimRegion
from holdfast.chaos.mixed.store import BooksRecord, MixedStore
from holdfast.chaos.outcome import MixedOutcome, SimulationFailed, Teller, added_up, command_line
from holdfast.chaos.tapes import Floats
from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import Account
from holdfast.protocol.autonomous import AutonomousMachine, Stop, Unpark
from holdfast.protocol.controller import ControllerPhase
from holdfast.protocol.phases import ProtocolViolation
from holdfast.protocol.shape import TOGETHER, Mode

TICKS_MAX = 20_000
SCHEDULES_PER_GRAPH = 4


@lru_cache(maxsize=4)
def _graph(number: int) -> MixedGraph:
    return random_graph(Random(number))


class MixedSimulator(Teller):
    """One schedule. `trace` receives a line per event, if given. Subclasses put defective classes in place of these."""

    machine_class: type[AutonomousMachine] = AutonomousMachine
    element_class: type[AutonomousElement] = AutonomousElement
    connection_class: type[SimConnection] = SimConnection
    region_class: type[SimRegion] = SimRegion
    books_class: type[SimBooks] = SimBooks

    def __init__(
        self, seed: int, *, rng: Random | None = None, trace: Callable[[str], None] | None = None
    ) -> None:
        rng = rng or Floats(seed)
        self.seed = seed
        self.random = rng.random
        self.trace = trace
        self.graph = _graph(seed // SCHEDULES_PER_GRAPH)
        self.mode: Mode = rng.choices(TOGETHER, (3, 4, 9))[0]
        self.resets_max = rng.choice((0, 1, 3))
        self.paces = [rng.choice((1, 1, 2, 6)) for _ in self.graph.elements]
        self.capacity = rng.choice((2, 3, 8))  # of connections, in batches
        self.region_pace = rng.choice((1, 1, 4))
        self.epoch_pace = rng.choice((0.1, 0.3, 1.0))
        self.watches = seed % 16 == 0  # judge after every event
        self.checkers = MixedCheckers(self.graph)
        self.store = MixedStore(self.graph)
        self.books = self.books_class(self.graph, self.store)
        self.outcome = MixedOutcome(schedules=1, with_region=int(self.graph.region is not None))
        self.faults = MixedFaults(self, rng)
        self.outside: dict[int, AutonomousElement] = {}
        self.region: SimRegion | None = None
        self.connections: dict[ConnectionId, SimConnection] = {}
        self.phase: Literal["settle", "open", "begin", "run", "over"] = "settle"
        self.opening: BooksRecord | None = None
        self.actors: list[Callable[[], bool]] = []
        self.turns: list[int] = []  # numbers of actors; some have more turns than others
        self.idle: list[bool] = []  # those that had nothing to do since something happened
        self.awake = 0  # how many are not idle
        self.is_doomed = False  # the driver dies next
        self.cut_in = -1  # ticks until a stopped run is cut off; -1: it was not stopped

    # --- running ------------------------------------------------------------------------------------------------

    def run(self) -> MixedOutcome:
        """Run to the end; SimulationFailed if an invariant breaks or the end is not reached."""
        try:
            self._run()
        except (InvariantBroken, ProtocolViolation) as broken:
            raise SimulationFailed(self.seed, str(broken), "mixed") from broken
        return self.outcome

    def _run(self) -> None:
        ticks = 0
        random, faults, checkers = self.random, self.faults, self.checkers
        while self.phase != "over":
            ticks += 1
            if ticks > TICKS_MAX:
                raise InvariantBroken(f"no end after {ticks} ticks")
            if self.store.full:
                faults.space_in -= 1
                self.store.full = faults.space_in > 0
                self._wake()
            if faults.left and random() < faults.rate:
                faults.strike()
                self._wake()
            if self.is_doomed:
                self.kill()
            elif self.phase != "run":
                self._start()
            elif self.cut_in == 0:
                self.say("cut off")
                self._close(in_order=False)
            else:
                self.cut_in -= 1
                self._turn()
            if checkers.is_changed and self.phase == "run" and not self.is_doomed:
                checkers.is_changed = False
                checkers.judge(self._counted(), is_settled=False)

    def _turn(self) -> None:
        """Somebody does something. Who has nothing to do is not asked again before something happened."""
        if not self.awake:
            self._when_idle()
            self._wake()
            return
        random, turns, idle = self.random, self.turns, self.idle
        number = turns[int(random() * len(turns))]
        while idle[number]:
            number = turns[int(random() * len(turns))]
        actor = self.actors[number]
        if not actor():
            idle[number] = True
            self.awake -= 1
            return
        self.outcome.events += 1
        if self.trace is not None:
            self._tell_actor(actor)
        self._wake()
        if self.watches:
            self.checkers.is_changed = True

    def _wake(self) -> None:
        if self.awake != len(self.actors):
            self.awake = len(self.actors)
            self.idle = [False] * self.awake

    def _tell_actor(self, actor: Callable[[], bool]) -> None:
        who = getattr(actor, "__self__", None)
        if isinstance(who, AutonomousElement):
            step = "" if who.step is None else f", step of {who.step.held} at stage {who.step.stage}"
            self.say("%s (%s)%s, %s", who.plan.name, who.machine.phase.value, step, list(who.todo))
        elif isinstance(who, RegionElement):
            self.say(
                "%s (%s) has %s, %s", who.plan.name, who.machine.phase.value, bin(who.state), list(who.todo)
            )
        elif isinstance(who, SimRegion):
            self.say("region (%s), %s", who.controller.phase.value, list(who.todo))

    def reached(self, moment: str) -> None:
        """Something was just done. If a fault lies in wait for it, the driver dies now."""
        if self.trace is not None:
            self.trace(f"    {moment}")
        if self.faults.ambush == moment:
            self.faults.ambush = ""
            self.is_doomed = True

    def _ask_for_epoch(self) -> bool:
        assert self.region is not None
        return self.random() < self.epoch_pace and self.region.ask_for_epoch()

    def _when_idle(self) -> None:
        """Time passes until somebody does something."""
        region = self.region
        sleepers = [element for element in self.outside.values() if element.asleep]
        if sleepers:
            for element in sleepers:
                element.asleep = 0
        elif self.store.full:
            self.store.full = False
        elif parked := [element for element in self.outside.values() if element.machine.is_parked]:
            for element in parked:
                element.park_for = 0
                element.feed(Unpark())
        elif region is not None and region.controller.phase is ControllerPhase.PARKED:
            region.resume()
        elif region is not None and region.ask_for_epoch():
            pass
        elif self._is_over():
            self._close(in_order=True)
        else:
            raise InvariantBroken("hang: nothing can go on")

    def _is_over(self) -> bool:
        is_region_over = self.region is None or self.region.is_stopped
        return is_region_over and all(element.is_ended for element in self.outside.values())

    # --- beginning of a run -------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.phase == "settle":
            self.store.token += 1
            self.opening = self.books.opening(self.store.token)
            self.phase = "open"
            self.reached("settled")
        elif self.phase == "open" and not self.store.full:
            assert self.opening is not None
            self.say("run %s begins with %s", self.store.token, self.opening)
            self.store.books = self.opening
            with self.checkers.destroying():
                self._build(self.opening)
            for element in self.outside.values():
                element.forget_damage()
            self.checkers.judge(self.books.counted(self.opening.accounts), is_settled=True)
            self.phase = "begin"
            self.reached("opened")
        elif self.phase == "begin":
            self.phase = "run"
            self.outcome.runs += 1
            for element in self.outside.values():
                element.begin()
            if self.region is not None:
                self.region.begin()

    def _build(self, books: BooksRecord) -> None:
        """Elements and connections in memory, as the books say."""
        lost = {c: taken.lost for c, taken in self.books.taken_by_regions().items()}
        self.connections = {
            wire.id: self.connection_class(
                wire, self._opened(wire.id, books), lost.get(wire.id, 0), self.capacity
            )
            for wire in self.graph.wires
        }
        around = Around(self.store, self.checkers, self.connections, self.random, self.reached)
        self.outside = {
            plan.number: self.element_class(
                around, plan, self.machine_class(books.accounts[plan.name], plan.operators, plan.kept)
            )
            for plan in self.graph.elements
            if not plan.in_region
        }
        self.actors = [element.act for element in self.outside.values()]
        paces = [self.paces[number] for number in self.outside]
        self.region = None
        if self.graph.region is not None:
            self.region = self.region_class(around, self.graph, self.mode, self.resets_max)
            self.actors += [*(e.act for e in self._inside().values()), self.region.act, self._ask_for_epoch]
            inside = [*(self.paces[number] for number in self._inside()), 3, 1]
            paces += [pace * self.region_pace for pace in inside]
        self.turns = [number for number, pace in enumerate(paces) for _ in range(pace)]
        self.awake = 0  # other actors than before
        self._wake()
        self.checkers.look_at(self.outside, self._inside(), self.connections)
        self.cut_in = -1

    def _opened(self, connection: ConnectionId, books: BooksRecord) -> int:
        """The number of the last row that a connection brought in earlier runs."""
        for account in books.accounts.values():
            if connection in account.taken:
                return account.taken[connection]
            if connection in account.sent and connection in self.books.ports:
                return account.sent[connection]
        return 0

    def _inside(self) -> dict[int, RegionElement]:
        return {} if self.region is None else self.region.elements

    # --- end of a run -------------------------------------------------------------------------------------------

    def stop(self, patience: int) -> None:
        """A person stops the run, and waits for some ticks."""
        if self.phase != "run" or self.cut_in >= 0:
            return
        self.cut_in = patience
        for element in self.outside.values():
            element.feed(Stop())
        if self.region is not None:
            self.region.stop()

    def accounts(self) -> dict[ElementName, Account]:
        """As they are in memory."""
        return {
            element.plan.name: up_to_date(
                element.machine.account, 0 if element.step is None else element.step.uncounted
            )
            for element in self.outside.values()
        }

    def _counted(self) -> dict[OperatorName, int]:
        lost = {c: connection.lost for c, connection in self.connections.items() if c in self.books.ports}
        accounts = {element.plan.name: element.machine.account for element in self.outside.values()}
        return self.books.counted(accounts, lost)

    def _close(self, *, in_order: bool) -> None:
        """Write the books of a run that ends, in order or cut off."""
        record = self.books.closing(self.accounts())
        if self.store.full:
            self.kill()
            return
        self.say("the run ends with %s", record)
        self.store.books = record
        self.checkers.run_ends()
        with self.checkers.destroying():
            self._empty_memory(with_states=False)
        counted = self.books.counted(record.accounts)
        self.checkers.judge(counted, is_settled=True)
        self.phase = "settle"
        if in_order and not self.checkers.still_coming:
            self.checkers.ended(counted)
            self.phase = "over"
            self.outcome.lost += sum(counted.values())
        self.reached("closed")

    def kill(self) -> None:
        """The driver dies: all that is in memory is gone."""
        self.say("driver dies")
        self.outcome.kills += 1
        self.checkers.run_ends()
        with self.checkers.destroying():
            self._empty_memory(with_states=True)
        self.phase = "settle"
        self.is_doomed = False

    def _empty_memory(self, *, with_states: bool) -> None:
        self.store.full = False
        for connection in self.connections.values():
            connection.items.clear()
            connection.taken = connection.sent
        for element in self.outside.values():
            self.outcome.moves |= element.machine.taken
            element.step = None
            element.saved_rows = 0
            element.uploads, element.arrived = {}, []
            element.position = self.store.position(element.plan.name)
            if with_states:
                element.safe = {op: self.store.readable(op) for op in element.plan.operators}
                element.again = dict.fromkeys(element.plan.operators, 0)
            element.states = element.safe
        for inside in self._inside().values():
            part = self.store.epoch[inside.plan.name]
            inside.state, inside.position = part.state, part.position
        if self.region is not None:
            self.outcome.controller_moves |= self.region.controller.taken


def simulate_mixed(seeds: Iterable[int]) -> MixedOutcome:
    """Run many schedules and add up their figures; the first failure ends it."""
    return added_up(MixedOutcome(), (MixedSimulator(seed).run() for seed in seeds))


def main(arguments: list[str] | None = None) -> int:
    about = __doc__.split("\n\n")[0]
    return command_line(
        "mixed",
        about,
        lambda seed, trace, _: MixedSimulator(seed, trace=trace).run(),
        MixedOutcome(),
        arguments,
    )
