"""A run of a topology: ownership, wiring, threads, status, stop."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any

from holdfast.clock import Clock, SystemClock
from holdfast.compiler.compile import compile_graph
from holdfast.durations import Duration, seconds
from holdfast.errors import ConfigError, FencedError, HoldfastError
from holdfast.ids import ElementName, OwnerToken, RegionName
from holdfast.language.graph import Graph
from holdfast.language.run import ElementStatus, RegionStatus, Run, RunState, RunStatus, Until
from holdfast.runtime.correspondence import Correspondence
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import REST_S, ElementLoop
from holdfast.runtime.ending import Ending, ending_last
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.links.connection import Signals
from holdfast.runtime.loss_budgets import become_consistent
from holdfast.runtime.region.region import Region
from holdfast.runtime.region.savepoint_requests import answer, establish
from holdfast.runtime.source_schemas import store_schemas, use_stored_schemas
from holdfast.runtime.telling.event_log import EventLog
from holdfast.runtime.telling.events import RunFailed, RunRefused
from holdfast.runtime.telling.feed import Feed, Subscriber
from holdfast.runtime.telling.listener import Listener
from holdfast.runtime.telling.plan_record import remember_plan
from holdfast.runtime.telling.run_log import RunLog
from holdfast.runtime.telling.watchers import Watchers
from holdfast.runtime.wiring import Surroundings, Wiring
from holdfast.store.base import Identity, Store

MONITOR_S = 0.05
JOIN_S = 30.0
PAGE = "holdfast.dashboard.server"
"""Lies above this layer: it is found by its name, when somebody asks for it."""


class Job(Run):
    """One run. `start`, then `await_termination`; `status`, `stop`, `resume` at any time from any thread."""

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        store: Store | None,
        *,
        until: Until | None = None,
        close: bool = False,
        clock: Clock | None = None,
        take_over: bool = False,
        subscribers: Sequence[Subscriber] = (),
        listeners: Sequence[Listener] = (),
        metrics: str | None = None,
        rest_s: float = REST_S,
    ) -> None:
        self.graph = graph
        self._engine = engine
        self._store = store
        self._until = until
        self._closes = close
        if close and until != "available":
            raise ConfigError(
                "close=True needs an end of the input.",
                cure="Give until='available' as well, or leave it out.",
            )
        self._clock = clock or SystemClock()
        self._take_over = take_over
        self._rest_s = rest_s
        self._event_log = EventLog(store, self._clock)
        self.watchers = Watchers(listeners, metrics, lambda: self.status() if self._threads else None)
        self._identity = ("none", 0)
        self.feed = Feed(self._event_log, RunLog(self._clock), *subscribers, *self.watchers.listening)
        self._signals = Signals()
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._stop_asked = False
        self.can_restart = False
        """Set by an owner who runs the graph again when this run has ended because it `wants_restart`."""
        self.wants_restart = False
        self._closing = threading.Lock()
        self._closed = False
        self._threads: list[threading.Thread] = []
        self.regions: dict[RegionName, Region] = {}
        self.loops: dict[ElementName, ElementLoop] = {}
        self._started_at = self._clock.monotonic()
        self._correspondence = Correspondence(store, self._clock, self.feed, self._event_log)

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> Job:
        """Own the store, compile, wire and start the threads. Errors here leave nothing behind."""
        token = OwnerToken(0)
        identity = Identity("none", self.graph.name)
        if self._store is not None:
            identity = self._store.open(self.graph.name)
            token = self._store.acquire(take_over=self._take_over)
        try:
            self.watchers.open()
            use_stored_schemas(self.graph, self._store, self._until == "available")
            consistent = become_consistent(self.graph, self._store)
            has_store, logs = self._store is not None, None if self._store is None else self._store.logs
            analyser = self._engine.analyser()
            self.plan = compile_graph(self.graph, analyser, consistent, has_store=has_store, logs=logs)
            if self.plan.regions and self._store is None:
                names = ", ".join(repr(str(region.name)) for region in self.plan.regions)
                raise ConfigError(
                    f"region {names} needs a store to keep its epochs in.",
                    cure='Pass one: topology.run(store="file:path/to/store").',
                )
            store_schemas(self.graph, self._store)
            self._wiring = Wiring(self.graph, self.plan, self._surroundings(identity, token))
            self._wiring.wire()
            self.regions, self.loops = self._wiring.regions, self._wiring.loops
            bounded = self._until == "available"
            connections = self._wiring.connections
            self._ending = Ending(self.regions, self.loops, connections, self._signals, bounded)
            self._wiring.find_beginnings(bounded)
            for run in (run for loop in self.loops.values() for run in loop.worker.sources):
                run.closes = self._closes
            self._identity = (identity.job_id, int(token))
        except BaseException as error:
            self.feed.announce(RunRefused(type(error).__name__, str(error)))
            self._event_log.flush()
            self.watchers.close()
            self._let_go_of_store()
            raise
        self._start_threads()
        return self

    def status(self) -> RunStatus:
        now = self._clock.monotonic()
        return RunStatus(
            self.graph.name,
            self._state(),
            round(now - self._started_at, 1),
            {str(name): RegionStatus.of(region.status(now)) for name, region in self.regions.items()},
            {str(name): ElementStatus.of(loop.status(now)) for name, loop in self.loops.items()},
            self._wiring.lost_by_sink(),
            *self._identity,
            self._clock.wall(),
            more=self._wiring.more_status(),
        )

    def stop(self, timeout: Duration | None = None) -> None:
        limit_s = _timeout_s(timeout)
        self.ask_to_stop()
        if limit_s is None:
            drains = [region.plan.settings.drain_timeout_s for region in self.regions.values()]
            limit_s = max(drains, default=30.0)
        self._ended_within(limit_s)
        self._shut_down()

    def ask_to_stop(self) -> None:
        self.wants_restart = False
        self._stop_all()

    def _stop_all(self) -> None:
        self._stop_asked = True
        self._wiring.let_all_in()
        last = ending_last(self.plan)
        for region in self.regions.values():
            if region.plan.name in last:
                region.stop_at_end()
            else:
                region.stop_when_possible()
        for life in self._wiring.alone:
            life.stop_when_possible()

    def resume(self) -> None:
        for region in self.regions.values():
            region.resume()
        self._wiring.resume()

    def trigger_epoch(self) -> None:
        for region in self.regions.values():
            region.epoch_wanted()

    def savepoint(
        self, name: str, region: str | None = None, timeout: Duration | None = None
    ) -> dict[str, int]:
        return establish(self.regions, name, region, _timeout_s(timeout))

    def await_termination(self, timeout: Duration | None = None) -> bool:
        ended = self._ended_within(_timeout_s(timeout))
        if self._failure is not None:
            self._shut_down()
            raise self._failure
        parked = next((region for region in self.regions.values() if region.parked), None)
        if parked is not None and (ended or self._ending.stands_still()):
            raise parked.parked_error() from parked.cause
        if (error := self._wiring.parked_error) is not None and (ended or self._ending.stands_still()):
            raise error
        if ended:
            self._shut_down()
            for life in self._wiring.alone:
                if life.failure is not None:
                    raise life.failure
        return ended

    def ui(self, port: int | None = None, host: str = "127.0.0.1", allow_commands: bool = False) -> Any:
        if self._store is None:
            raise ConfigError("a run without a store has no page.", cure='Give it one: store="path".')
        server = importlib.import_module(PAGE)
        return server.Page(self._store, host, port, allow_commands)

    def close(self) -> None:
        self._shut_down()

    def fail(self, error: BaseException) -> None:
        """No reset can help: remember why and end."""
        error = self._root_of(error)
        with self._signals.condition:
            if self._failure is None:
                self._failure = error
                self.feed.announce(RunFailed(type(error).__name__, str(error)))
            self._ended.set()
            self._signals.condition.notify_all()

    def _root_of(self, error: BaseException) -> BaseException:
        """Whatever goes wrong in a run that was replaced by a newer owner goes wrong because of that."""
        if self._store is not None and not isinstance(error, FencedError):
            try:
                self._store.check_owner()
            except FencedError as fenced:
                fenced.__cause__ = error
                return fenced
            except HoldfastError:
                pass  # the store cannot tell; the error speaks for itself
        return error

    # --- waiting ------------------------------------------------------------------------------------------------

    def _ended_within(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        while not self._ended.wait(MONITOR_S * (4 if deadline is None else 1)):
            if self._ending.stands_still():
                return False
            if deadline is not None and self._clock.monotonic() >= deadline:
                return False
        return True

    def _state(self) -> RunState:
        if self._failure is not None:
            return "failed"
        if any(region.parked for region in self.regions.values()) or self._wiring.parked_error is not None:
            return "parked"  # also of a run that has come to its end otherwise
        if self._ended.is_set():
            return "ended"
        return "stopping" if self._stop_asked else "running"

    def _monitor(self) -> None:
        """Thread body: ends of regions, mail, reports."""
        try:
            while not self._ended.is_set():
                self._look_at_budgets()
                self._watch_regions()
                self._ending.end_cycles()
                self._read_mail()
                self._correspondence.report(self.loops.values(), self.status)
                if all(r.done.is_set() for r in self.regions.values()) and self._autonomous_over():
                    self._ended.set()
                is_steady = self._until is None and not self._stop_asked
                with self._signals.condition:
                    self._signals.condition.wait(MONITOR_S * (2 if is_steady else 1))
        except BaseException as error:
            self.fail(error)
        self._signals.notify()

    def _look_at_budgets(self) -> None:
        """A stream that becomes consistent does so at once if the owner of this run starts it again."""
        self._wiring.budgets.check()
        if self._wiring.budgets.wants_restart and self.can_restart and not self._stop_asked:
            self.wants_restart = True
            self._stop_all()

    def _watch_regions(self) -> None:
        for region in self.regions.values():
            if region.done.is_set():
                for name in region.plan.shape.elements:
                    self._end_element(name)
            elif region.stops_at_end and self._ending.waits_in_vain(region):
                region.stop_when_possible()
            elif region.stops_at_end or (self._until == "available" and not self._stop_asked):
                region.finish_if_exhausted()

    def _end_element(self, name: ElementName) -> None:
        loop = self.loops[name]
        if not loop.finished:
            loop.finished = True
            loop.stop()
            for connection in loop.plan.outputs:
                self._wiring.connections[connection.id].close()

    def _autonomous_over(self) -> bool:
        return all(loop.finished for loop in self.loops.values() if isinstance(loop.life, OutsideLife))

    def _read_mail(self) -> None:
        for command, data in self._correspondence.commands():
            match command:
                case "stop":
                    self.ask_to_stop()
                case "resume":
                    self.resume()
                case "epoch":
                    self.trigger_epoch()
                case "savepoint" | "savepoint.delete":
                    answer(self.regions, command, data, self.feed.announce)

    def _shut_down(self) -> None:
        """End everything, once: a second call finds a session that may be gone with the first."""
        with self._closing:
            if not self._closed:
                self._closed = True
                if self._failure is None and self._wiring.let_all_in():
                    self._stop_all()  # what waits before a parked region goes into the store first
                    self._ended_within(JOIN_S)
                self._end_everything()

    def _end_everything(self) -> None:
        self._ended.set()
        for region in self.regions.values():
            region.end()
        for loop in self.loops.values():
            loop.stop()
        self._signals.notify()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_S)
        self._threads.clear()
        self._wiring.close_connectors()
        self._wiring.close_books()
        self._correspondence.report_end(self.loops.values(), self.status, self._failure)
        self.watchers.close()
        self._let_go_of_store()
        self._engine.stop()

    def _let_go_of_store(self) -> None:
        if self._store is not None:
            try:
                self._store.release()
            except HoldfastError:
                pass  # fenced: there is nothing left to release

    # --- starting -------------------------------------------------------------------------------------------------

    def _surroundings(self, identity: Identity, token: OwnerToken) -> Surroundings:
        owned = (self._engine, self._store, identity, token, self._clock)
        return Surroundings(*owned, self._signals, self.feed, self.fail, self._rest_s)

    def _start_threads(self) -> None:
        remember_plan(self._store, self.plan)
        for event in self._wiring.how_it_begins(self._until):
            self.feed.announce(event)
        self._wiring.budgets.check()
        bodies = [(loop.run, f"element-{name}") for name, loop in self.loops.items()]
        bodies += [(region.run, f"region-{name}") for name, region in self.regions.items()]
        bodies.append((self._monitor, "monitor"))
        self._threads = [self._engine.thread(body, name) for body, name in bodies]
        for thread in self._threads:
            thread.start()


def _timeout_s(timeout: Duration | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout", zero=True)


def job_of(run: Run) -> Job:
    """What is behind a handle, for those who look inside."""
    assert isinstance(run, Job), f"{run!r} is not run here"
    return run
