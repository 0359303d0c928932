"""The parts of a run, made from its plan and connected: regions, element loops, connections, accounts.

Made by the job before its threads start. `wire` builds, `find_beginnings` finds where everything goes on: what cannot go on is
refused before anything is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.clock import Clock
from holdfast.compiler.persisted.in_plan import recovers_from_log
from holdfast.compiler.plan import ConnectionPlan, ElementPlan, Plan, RegionPlan
from holdfast.compiler.regions import can_read_again
from holdfast.compiler.traverse import sinks_behind
from holdfast.errors import HoldfastError
from holdfast.ids import ConnectionId, ElementName, Epoch, OperatorName, OwnerToken, RegionName
from holdfast.language.connectors import SinkContext
from holdfast.language.graph import Graph, SinkSpec, SourceSpec
from holdfast.protocol.accounts import Account
from holdfast.protocol.bounds.loss_budget import Use
from holdfast.protocol.element import ElementMachine
from holdfast.runtime.carried_over import CarriedOver
from holdfast.runtime.element.account_books import AccountBooks
from holdfast.runtime.element.alone_life import AloneLife
from holdfast.runtime.element.borders import KnownBorders, kept_bytes, replayed_inputs, stored_borders
from holdfast.runtime.element.epochs.repeating import Repeating
from holdfast.runtime.element.epochs.size_watch import SizeWatch
from holdfast.runtime.element.eventual.life import EventualLife, recording_of
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import REST_S, ElementLoop, Ends
from holdfast.runtime.element.own_checkpoints import OwnCheckpoints
from holdfast.runtime.element.region_life import RegionLife
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.links.connection import Connection, Signals
from holdfast.runtime.links.preserved_queue import PreservedQueue, WhenParked
from holdfast.runtime.links.queue import Queue
from holdfast.runtime.loss_budgets import LossBudgets, OfTheRun
from holdfast.runtime.persisted.recovering_life import RecoveringLife
from holdfast.runtime.persisted.streams import PersistedStreams
from holdfast.runtime.poisoned_elements import PoisonedElements
from holdfast.runtime.program_memory import compare_program
from holdfast.runtime.region.aware_trigger import AwareTrigger
from holdfast.runtime.region.epochs import RegionEpochs, regions_gone, sources_of_regions
from holdfast.runtime.region.region import Region
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import SourceRun
from holdfast.runtime.source_positions import SourceNow, beginnings
from holdfast.runtime.telling.beginning_events import ProgramChanged
from holdfast.runtime.telling.events import RowsRepeated, RunEvent, RunStarted
from holdfast.runtime.telling.feed import Feed
from holdfast.store.base import Identity, Store
from holdfast.store.locks import signed

logger = logging.getLogger("holdfast.run")


@dataclass(frozen=True)
class Surroundings:
    """What all parts of a run share."""

    engine: Engine
    store: Store | None
    identity: Identity
    token: OwnerToken
    clock: Clock
    signals: Signals
    feed: Feed
    fail: Callable[[BaseException], None]
    rest_s: float = REST_S


class Wiring:
    """The parts of one run. Changed by `wire` and `find_beginnings` only."""

    def __init__(self, graph: Graph, plan: Plan, around: Surroundings) -> None:
        self._graph, self.plan = graph, plan
        self.program_change: ProgramChanged | None = None
        self.regions: dict[RegionName, Region] = {}
        self.loops: dict[ElementName, ElementLoop] = {}
        self._around = around
        self.connections: dict[ConnectionId, Connection] = {
            c.id: self._connection(c) for c in plan.connections
        }
        self._persisted = PersistedStreams(plan, around.store)
        self._repeated: list[tuple[ConnectionPlan, int]] = []
        run = OfTheRun(self._use_of, self._park, self._keep_all)
        self.budgets = LossBudgets(graph, plan, around.store, around.feed.announce, run)
        self._parked_for: dict[ElementName, set[str]] = {}
        park = partial(self._park, why="poison")
        self.poisoned = PoisonedElements(plan, around.feed.announce, park)
        self._books = AccountBooks(around.store, plan, around.token, around.feed.announce)
        self._carried = CarriedOver(plan, around.store, int(around.token), around.engine.live)

    def _connection(self, plan: ConnectionPlan) -> Connection:
        signals, unbounded = self._around.signals, plan.control
        elements = {element.name: element for element in self.plan.elements}
        if not plan.preserved and plan.id not in replayed_inputs(elements[plan.target]):
            return Queue(plan.id, signals, unbounded=unbounded)
        is_outside = elements[plan.source].region is None
        repeats = plan.preserved and not is_outside
        keep = None if plan.preserved else kept_bytes(elements[plan.target], plan.id)
        parked = WhenParked(keep, can_read_again(self.plan.graph, plan.stream.operator), is_outside)
        return PreservedQueue(plan.id, signals, unbounded=unbounded, repeats=repeats, parked=parked)

    def let_all_in(self) -> bool:
        """The run ends: senders need not wait for parked regions that keep their input. True if one did."""
        queues = [each for each in self.connections.values() if isinstance(each, PreservedQueue)]
        return sum(queue.let_all_in() for queue in queues) > 0

    @property
    def in_regions(self) -> list[RegionLife]:
        """The lives of elements in regions."""
        return [life for region in self.regions.values() for life in region.lives.values()]

    @property
    def alone(self) -> list[OutsideLife]:
        """The lives of elements outside of regions."""
        return [loop.life for loop in self.loops.values() if isinstance(loop.life, OutsideLife)]

    # --- building -----------------------------------------------------------------------------------------------

    def wire(self) -> None:
        around, by_name = self._around, {region.name: region for region in self.plan.regions}
        self._open_sinks()
        for region in self.plan.regions:
            self._add_region(region)
        for element in self.plan.elements:
            budget = None if element.region is None else self.regions[element.region].restoring.budget
            worker = Worker(self.plan, element, around.engine, around.clock, budget)
            loop = ElementLoop(worker, self._ends(element), around.rest_s)
            self.loops[element.name] = loop
            around.feed.subscribe(loop.metrics.on_event)
            if element.region is not None:
                self._live_in_region(loop, by_name[element.region])
        self._persisted.connect(self.loops, self.regions)
        around.feed.subscribe(self._persisted.on_event)

    def _open_sinks(self) -> None:
        around = self._around
        regions = {member: region.name for region in self.plan.regions for member in region.members}
        for op in self.plan.graph.operators.values():
            if isinstance(op.spec, SinkSpec):
                region = regions.get(op.name)
                context = SinkContext(
                    job_id=around.identity.job_id,
                    topology=self.plan.graph.name,
                    sink=op.name,
                    region=None if region is None else str(region),
                    token=around.token,
                    check_owner=around.store.check_owner if around.store is not None else lambda: None,
                    run_tasks=around.engine.run_tasks,
                    must_end=partial(self._must_end, op.name),
                    refuse=partial(self._refuse, op.name),
                )
                op.spec.sink.open(context)

    def _must_end(self, sink: OperatorName) -> bool:
        loops = (loop for loop in self.loops.values() if any(run.name == sink for run in loop.worker.sinks))
        return any(loop.stopping for loop in loops)

    def _refuse(self, sink: OperatorName, row: Any, error: Exception | str) -> None:
        """A sink cannot write a row: its element, which is wired after it was opened, tells of it."""
        runs = (run for loop in self.loops.values() for run in loop.worker.sinks if run.name == sink)
        next(runs).refusals.refuse(row, error)

    def _add_region(self, plan: RegionPlan) -> None:
        around = self._around
        assert around.store is not None
        identity = (around.identity, around.token)
        epochs = RegionEpochs(self.plan, plan, around.store, *identity, around.engine.live)
        region = Region(plan, epochs, around.signals, around.clock, around.feed.announce, around.fail)
        self.regions[plan.name] = region
        around.feed.subscribe(region.metrics.on_event)

    def _ends(self, element: ElementPlan) -> Ends:
        inputs = {c.id: self.connections[c.id] for c in element.inputs}
        outputs = {c.id: self.connections[c.id] for c in element.outputs}
        return Ends(inputs, outputs, self._around.signals)

    def _live_in_region(self, loop: ElementLoop, region: RegionPlan) -> None:
        side = self.regions[region.name]
        machine = ElementMachine(region.shape, loop.name)
        driven = region.settings.trigger == "operator"
        repeating = None if region.group is None else Repeating(loop.worker, loop.ends)
        is_kept = any(isinstance(queue, PreservedQueue) for queue in loop.ends.inputs.values())
        loop.worker.hurries = repeating is None and not is_kept
        log = self._carried.log_of(loop.name) if is_kept else None
        life = RegionLife(loop, machine, side, driven, repeating, log)
        side.lives[loop.name] = life
        with_state = [run for run in loop.worker.runs.values() if isinstance(run, KeyedRun | HostedRun)]
        if isinstance(side.trigger, AwareTrigger) and with_state:
            report = partial(side.turned, loop.name)
            life.sizes = SizeWatch(with_state, self._around.clock, report, bool(loop.worker.threaded))
            side.trigger.watches[loop.name], life.looks_around = life.sizes, True

    # --- where everything goes on -------------------------------------------------------------------------------

    def find_beginnings(self, bounded: bool) -> None:
        """Find where sources, regions and elements outside of them go on. Writes nothing before all is found."""
        self._books.read()
        self._persisted.check()
        self._books.ledger.positions.update(self._persisted.noted())
        self._place_sources()
        for region in self.regions.values():
            region.look()
        self._persisted.begin_readers(self.regions, self._books.ledger.positions)
        self._carried.read(self._epochs(), self._borders())
        self._books.settle(replace(self._borders(), recorded=self._carried.recorded))
        for loop in self.loops.values():
            if loop.plan.region is None:
                self._live_alone(loop, bounded)
            for run in loop.worker.hosted:
                run.give_up = loop.life.must_give_up
            for threaded in loop.worker.threaded:
                threaded.wake = loop.wake
        self._number_rows()
        self._carried.begin(self.connections, self.in_regions)
        # First: what it reads may be damaged, and then nothing may have been changed.
        changed = [region.change for region in self.regions.values() if region.change is not None]
        self.program_change = compare_program(self._around.store, self._graph, self.plan, changed)
        self._books.begin()
        self._persisted.remember()
        self._create_entries()
        for life in self.alone:
            life.on_loss = self.budgets.check
            life.on_poison = partial(self.poisoned.found, life.account.element)
        self._carried.drop()
        self._open_sources()

    def _place_sources(self) -> None:
        """Find where each source goes on, or refuse."""
        if self._around.store is None:
            return
        region_of = {member: region.name for region in self.plan.regions for member in region.members}
        now = {
            op.name: SourceNow(region_of.get(op.name), op.spec.source.describe(), op.named)
            for op in self.plan.graph.operators.values()
            if isinstance(op.spec, SourceSpec)
        }
        found = beginnings(now, self._books.ledger.positions, sources_of_regions(self._around.store))
        for loop in self.loops.values():
            for run in loop.worker.sources:
                run.beginning = found.get(run.name)

    def _live_alone(self, loop: ElementLoop, bounded: bool) -> None:
        around = self._around
        report = (around.feed.announce, around.fail)
        if (recording := recording_of(loop.worker)) is not None:
            EventualLife(loop, recording, self._books.account_of(loop.name), *report).bounded = bounded
            return
        own = OwnCheckpoints(loop.worker, around.store, around.clock, around.feed.announce)
        made = RecoveringLife if recovers_from_log(loop.plan) else AloneLife
        made(loop, self._books, own, *report).bounded = bounded

    def _epochs(self) -> dict[ElementName, Epoch]:
        """The newest epochs of the elements' regions."""
        return {
            life.loop.name: region.epoch for region in self.regions.values() for life in region.lives.values()
        }

    def _borders(self) -> KnownBorders:
        """What the newest epochs know of connections that cross borders."""
        manifests = [region.manifest for region in self.regions.values() if region.manifest is not None]
        return stored_borders(self.plan, manifests)

    def _number_rows(self) -> None:
        """Numbers of rows in connections go on where the settlement left them."""
        accounts, borders = self._books.ledger.accounts, self._borders()
        for c in self.plan.connections:
            sender, receiver = accounts.get(c.source), accounts.get(c.target)
            row = borders.sent.get(c.id, 0) if sender is None else sender.sent.get(c.id, 0)
            if self._carried.goes_on(c):
                self.connections[c.id].open(row, borders.taken[c.id].row)
                continue
            if c.preserved and borders.taken[c.id].row > row:
                # The sender stands behind: it sends rows again, with new numbers.
                self._repeated.append((c, borders.taken[c.id].row - row))
                row = borders.taken[c.id].row
            self.connections[c.id].open(row, row if receiver is None else receiver.taken.get(c.id, row))
        for life in self.in_regions:
            life.count_lost(self._books.ledger.border_lost)

    def _create_entries(self) -> None:
        store = self._around.store
        if store is not None:
            there = set(store.entries())
            for entry in sorted({e for loop in self.loops.values() for e in loop.worker.entries} - there):
                store.create_entry(entry)

    # --- the outside world --------------------------------------------------------------------------------------

    def _open_sources(self) -> None:
        try:
            for loop in self.loops.values():
                for run in loop.worker.sources:
                    run.source.open(loop.wake)
        except BaseException:
            self.close_connectors()
            raise

    def close_connectors(self) -> None:
        """The run is over: sources and sinks let go of what they hold. One that cannot is told of, and no more."""
        for op in self.plan.graph.operators.values():
            if isinstance(op.spec, SourceSpec | SinkSpec):
                connector = op.spec.source if isinstance(op.spec, SourceSpec) else op.spec.sink
                try:
                    connector.close()
                except Exception:
                    logger.warning("%r could not be closed", op.name, exc_info=True)

    def more_status(self) -> dict[str, Any]:
        """For the status: how the program differs from the one before, and loss budgets."""
        change, budgets, logs = self.program_change, self.budgets.status(), self._persisted.status()
        new: dict[str, Any] = {} if change is None else {"program_changed": list(change.changes)}
        return {**new, **({"loss_budgets": budgets} if budgets else {}), **({"logs": logs} if logs else {})}

    def how_it_begins(self, until: str | None) -> Iterator[RunEvent]:
        """What is told when all is found and the threads start."""
        sources = {
            str(run.name): self._place_of(loop, run)
            for loop in self.loops.values()
            for run in loop.worker.sources
        }
        url = None if (store := self._around.store) is None else store.url
        yield RunStarted(self.plan.graph.name, until, url, tuple(map(str, self.regions)), sources, signed())
        yield from (region.change for region in self.regions.values() if region.change is not None)
        yield from () if store is None else regions_gone(store, self.plan)
        behind = sinks_behind(self.plan.graph)
        for c, rows in self._repeated:
            sinks = tuple(sorted({sink for name, _ in c.ports for sink in behind[name]}))
            yield RowsRepeated(c.target, rows, self.loops[c.target].plan.region, sinks)
        yield from () if self.program_change is None else (self.program_change,)

    def _place_of(self, loop: ElementLoop, run: SourceRun) -> str:
        region = None if loop.plan.region is None else self.regions[loop.plan.region]
        if region is not None and region.epoch:
            return f"epoch {region.epoch}"
        known = "the beginning" if run.beginning is None else "where an earlier run left it"
        return "where the log of its results says" if isinstance(loop.life, EventualLife) else known

    # --- what was lost ------------------------------------------------------------------------------------------

    def lost_by_sink(self) -> dict[str, int]:
        """Rows that each sink lacks because they were lost outside of regions or at their borders, over all runs."""
        return self._books.lost_by_sink(*self._lost())

    def _use_of(self, operator: OperatorName) -> Use:
        return self._books.use_of(operator, *self._lost())

    def _lost(self) -> tuple[list[Account], dict[ConnectionId, int]]:
        """All accounts as they are now, and what was lost at the entrances of regions."""
        mine = {life.account.element: life.account for life in self.alone}
        lost = {id: n for life in self.in_regions for id, n in life.borders.lost.items()}
        return list({**self._books.ledger.accounts, **mine}.values()), lost

    def _keep_all(self) -> None:
        for life in self.alone:
            life.keep_all()

    def _park(self, element: ElementName, now: bool, why: str = "losses") -> None:
        life, reasons = self.loops[element].life, self._parked_for.setdefault(element, set())
        assert isinstance(life, OutsideLife)
        (reasons.add if now else reasons.discard)(why)
        life.park(bool(reasons))

    def resume(self) -> None:
        """Elements outside of regions that are parked go on."""
        self.budgets.resume()
        self.poisoned.resume()

    @property
    def parked_error(self) -> HoldfastError | None:
        """Why an element outside of regions is parked; None: none is."""
        return self.budgets.error() if self.budgets.parked else self.poisoned.error

    def close_books(self) -> None:
        """The run is over: what its end cost outside of regions is counted, and told."""
        lives = self.alone
        try:
            borders = self._borders()
            self._carried.store_all(self.in_regions, self._epochs())
            borders = replace(borders, recorded=self._carried.recorded_now(borders))
            accounts = [life.last_account() for life in lives]
            self._books.close({account.element: account for account in accounts}, borders)
        except (HoldfastError, OSError):
            return  # fenced, no space, or an input that cannot be counted: the next run does it
        for life in lives:
            life.count(self._books.account_of(life.account.element))
        for inside in self.in_regions:
            inside.count_lost(self._books.ledger.border_lost)
