"""What `topology.run`, `submit` and `explain` do. Installed into the language when this is imported."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import explain_mermaid, explain_text
from holdfast.compiler.plan import Plan
from holdfast.errors import BudgetExceededError, PoisonFound
from holdfast.language.run import RunStatus, Until
from holdfast.language.topology import Format, Topology, set_runner
from holdfast.operators.kinds import needs_spark
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.job import Job
from holdfast.store.base import Store
from holdfast.store.urls import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkRunner:
    """Runs topologies on Spark: on the caller's session if one is given or active, else on one made for the run."""

    def run(
        self,
        topology: Topology,
        spark: SparkSession | None,
        store: Any,
        until: Until | None,
        *,
        on_start: Callable[[Job], None] | None = None,
        **options: Any,
    ) -> RunStatus:
        """Blocks until the end; returns the final status. Ctrl-C and SIGTERM establish a final epoch first."""
        return run_and_restart(
            lambda take_over: self._start(topology, spark, store, until, **{**options, **take_over}), on_start
        )

    def submit(self, topology: Topology, spark: SparkSession | None, store: Any, **options: Any) -> Job:
        """Starts and returns at once."""
        return self._start(topology, spark, store, options.pop("until", None), **options)

    def explain(self, topology: Topology, format: Format, spark: SparkSession | None) -> str:
        plan = _plan(topology, spark)
        return explain_mermaid(plan) if format == "mermaid" else explain_text(plan)

    def _start(
        self, topology: Topology, spark: SparkSession | None, store: Any, until: Until | None, **options: Any
    ) -> Job:
        place = _store(store)
        engine = options.pop("engine", None) or engine_for(topology, spark, options.pop("partitions", None))
        try:
            engine.check_workers()
            return Job(topology.graph(), engine, place, until=until, **options).start()
        except BaseException:
            engine.stop()
            raise


def _plan(topology: Topology, spark: SparkSession | None) -> Plan:
    """Spark is started only for graphs with expressions, whose columns nobody else knows."""
    graph = topology.graph()
    if not needs_spark(graph):
        return compile_graph(graph, ArrowAnalyser())
    engine = engine_for(topology, spark)
    try:
        return compile_graph(graph, engine.analyser())
    finally:
        engine.stop()


def check_graph(topology: Topology) -> None:
    """Raise what can be known to be wrong without Spark, which takes seconds to start."""
    graph = topology.graph()
    if not needs_spark(graph):
        compile_graph(graph, ArrowAnalyser())


def run_and_restart(
    start: Callable[[dict[str, Any]], Job], on_start: Callable[[Job], None] | None = None
) -> RunStatus:
    """Run a graph to its end. If a stream becomes consistent because too much was lost, the run stops in order and another begins, in
    which it is. `start` is given what is another in a second run."""
    changed: dict[str, Any] = {}
    while True:
        job = start(changed)
        job.can_restart = True
        if on_start is not None:
            on_start(job)
        status = run_to_end(job)
        if not job.wants_restart:
            return status
        changed = {"take_over": False}


def run_to_end(job: Job) -> RunStatus:
    """Wait for the job's end; a first Ctrl-C or SIGTERM asks it to stop well, a second one ends it at once."""
    with _stop_signals(job):
        try:
            while not job.await_termination(timeout=3600.0):
                pass
        except (BudgetExceededError, PoisonFound):
            job.stop()  # what was taken from sources is worked off
            raise
        finally:
            job.close()
    return job.status()


@contextlib.contextmanager
def _stop_signals(job: Job) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        signal.signal(number, signal.default_int_handler)
        # Not from within the handler: it may have interrupted a thread that holds the run's lock.
        threading.Thread(target=job.ask_to_stop, daemon=True).start()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _store(store: Any) -> Store | None:
    return None if store is None else open_store(store)


def engine_for(topology: Topology, spark: SparkSession | None, partitions: int | None = None) -> Engine:
    from holdfast.runtime.engines.spark.engine import SparkEngine
    from holdfast.runtime.engines.spark.session import active_or_new

    session, owned = (spark, False) if spark is not None else active_or_new(topology.name)
    return SparkEngine(session, owned=owned, partitions=partitions)


set_runner(SparkRunner())
