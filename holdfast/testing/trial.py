"""`run`: a topology in a test, fed with rows, killed where the test says, and what came out of it.

    golden = run(shop, feed={"orders": rows})
    run(shop, feed={"orders": rows}, kill_at="ckpt.epoch.published@2").same_as(golden)

`kill_at` names failpoints (`holdfast.testing.FAILPOINTS`); `@n` is the n-th time it is reached. The run happens in a process of its own, which gets
SIGKILL there; another one goes on from its store, up to the next kill; the last one comes to the end. A kill that never came is an error: then
the test shows nothing. Topologies that need Spark (filter, select, sql) run on the session that is given, or the active one; the process that is killed
is a driver that shares its JVM, which survives: what was under way there when the driver died comes to its end by itself.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast import failpoints
from holdfast.errors import ConfigError
from holdfast.language.graph import Graph, SinkSpec
from holdfast.language.run import RunStatus
from holdfast.language.topology import Topology
from holdfast.operators.kinds import needs_spark
from holdfast.runtime.api import run_and_restart
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.job import Job
from holdfast.store.urls import open_store
from holdfast.testing.fed import Feed, Pace, caught_in, has_regions, prepared
from holdfast.testing.golden import compare_changelog, compare_rows

HUNG_S = 120.0


@dataclass(frozen=True)
class Trial:
    """What came out of a run."""

    tables: Mapping[str, pa.Table]
    """By sink."""
    status: RunStatus
    """Of the last life."""
    kills: int

    def rows(self, sink: str | None = None) -> list[dict[str, Any]]:
        """Of a sink, or of the only one. Their order is that in which they became visible, if the sink writes one file per epoch."""
        if sink is None and len(self.tables) != 1:
            raise ConfigError("there are several sinks.", cure=f"Name one: {', '.join(self.tables)}.")
        found = self.tables[next(iter(self.tables)) if sink is None else sink]
        return list(found.to_pylist())

    def same_as(self, golden: Trial, sink: str | None = None, by: str | Sequence[str] | None = None) -> None:
        """GoldenMismatch, with the first row that differs, unless the same rows came out, each as often. `by`: of each key only the last row counts,
        since how often a running result is told depends on how its input is cut into steps."""
        for name in [sink] if sink is not None else list(golden.tables):
            wanted, got = golden.tables[name], self.tables[name]
            if by is None:
                compare_rows(wanted, got, f"sink {name!r}")
            else:
                compare_changelog(wanted, got, by, what=f"sink {name!r}")


def run(
    topology: Topology,
    feed: Feed | None = None,
    *,
    kill_at: str | Sequence[str] = (),
    rows_per_step: int | None = None,
    close: bool = False,
    spark: Any = None,
    partitions: int = 2,
    **options: Any,
) -> Trial:
    """Run a topology to the end of its feed and return what its sinks got. `feed`: rows by source; `close`: at the end windows close. Sinks are
    replaced, sources that read from outside must be fed. `options` as of `topology.run`."""
    graph, kills = topology.graph(), [kill_at] if isinstance(kill_at, str) else list(kill_at)
    for each in kills:
        failpoints.parse(_armed(each))
    on_spark = spark is not None or needs_spark(graph)
    engines: _Engines = _OnSpark(spark) if on_spark else _Local(partitions)
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", ignore_cleanup_errors=True) as place:
        life = _Life(graph, feed or {}, Path(place), rows_per_step, {"close": close, **options})
        try:
            for each in kills:
                life.killed_at(each, engines.forked)
        except BaseException:
            engines.last().stop()
            raise
        status = life.to_the_end(engines.last())
        return Trial(dict(life.caught()), status, len(kills))


class _Local:
    """Engines of runs without Spark."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def forked(self) -> Engine:
        """In a process that is going to be killed."""
        return LocalEngine(self._partitions)

    last = forked


class _OnSpark:
    """Engines of runs on one session: that of the test, or the active one, or one of their own."""

    def __init__(self, session: Any) -> None:
        from holdfast.runtime.engines.spark.session import active_or_new

        self._session: Any
        self._session, self._owned = (
            (session, False) if session is not None else active_or_new("holdfast test")
        )

    def forked(self) -> Engine:
        from holdfast.runtime.engines.spark.engine import SparkEngine
        from holdfast.runtime.engines.spark.session import take_own_connections

        take_own_connections(self._session)
        return SparkEngine(self._session)

    def last(self) -> Engine:
        """It ends a session of its own."""
        from holdfast.runtime.engines.spark.engine import SparkEngine

        return SparkEngine(self._session, owned=self._owned)


_Engines = _Local | _OnSpark


class _Life:
    """Runs of one test on one store."""

    def __init__(
        self, graph: Graph, feed: Feed, place: Path, rows_per_step: int | None, options: Mapping[str, Any]
    ) -> None:
        self._graph, self._feed, self._place = graph, feed, place
        self._rows_per_step, self._options = rows_per_step, options

    def to_the_end(self, engine: Engine) -> RunStatus:
        pace = Pace(has_regions(self._graph))
        graph = prepared(self._graph, self._feed, self._place / "out", pace, self._rows_per_step)
        subscribers = [pace.on_event, *self._options.get("subscribers", ())]
        options = {"rest_s": 0.005, **self._options, "subscribers": subscribers}

        def start(changed: dict[str, Any]) -> Job:
            store = open_store(f"file:{self._place}/store")
            return Job(graph, engine, store, until="available", **{**options, **changed}).start()

        try:
            return run_and_restart(start)
        finally:
            engine.stop()

    def killed_at(self, kill: str, engine: Callable[[], Engine]) -> None:
        """A life in a process of its own, which must end by the kill."""
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            self._die(kill, engine)
        _await_death(child, kill, self._place / "error")

    def _die(self, kill: str, engine: Callable[[], Engine]) -> None:
        """The child; never returns."""
        try:
            failpoints.arm(_armed(kill))
            self.to_the_end(engine())
            os._exit(0)
        except BaseException:
            (self._place / "error").write_text(traceback.format_exc())
            os._exit(1)

    def caught(self) -> Iterator[tuple[str, pa.Table]]:
        """The rows of each sink."""
        for name, op in self._graph.operators.items():
            if isinstance(op.spec, SinkSpec):
                place = caught_in(self._place / "out", str(name))
                files = sorted(path for path in place.glob("*.parquet")) if place.exists() else []
                tables = [pq.read_table(path) for path in files]
                yield str(name), pa.concat_tables(tables) if tables else pa.table({})


def _armed(kill: str) -> str:
    name, _, number = kill.partition("@")
    return f"{name}=kill@{number or 1}"


def _never(kill: str) -> str:
    return (
        f"the run came to its end before {kill}: nothing was killed, and the test shows nothing. "
        "Feed more rows, let a step hold fewer (rows_per_step=), or kill elsewhere."
    )


def _await_death(child: int, kill: str, error: Path) -> None:
    deadline = time.monotonic() + HUNG_S
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the run that was to be killed at {kill} hung for {HUNG_S:.0f} s")
        time.sleep(0.005)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return
    if error.exists():
        raise AssertionError(f"the run that was to be killed at {kill} failed before:\n{error.read_text()}")
    raise AssertionError(_never(kill))
