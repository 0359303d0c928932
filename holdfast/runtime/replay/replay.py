"""`replay`: feeds a stored stretch of a log through a topology, into files.

Nothing of the real run is touched: its sinks are not opened, its source neither, and epochs lie in a store of the replay's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.connectors import Sink
from holdfast.language.graph import Graph, RegionSettings, SinkSpec, SourceSpec
from holdfast.language.topology import Topology
from holdfast.log.log import From, Log
from holdfast.runtime.api import engine_for, run_and_restart
from holdfast.runtime.job import Job
from holdfast.runtime.replay.place import Asked, ReplayPlace, refuse_another
from holdfast.runtime.replay.rewrite import chosen_source, replayed
from holdfast.sinks.files import FileSink
from holdfast.sources.logs.log_source import ROWS_PER_STEP
from holdfast.sources.logs.replay_source import ReplayRange, ReplaySource
from holdfast.store.urls import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.2
PERIOD_S = 2.0


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay has come. Positions of the log."""

    start: int
    at: int
    end: int
    due_in_s: float
    """With a speed: when the next rows are due."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: rows of the log from `start`, up to `at`, of those up to `end`, and where each sink's rows are."""

    start: int
    at: int
    end: int
    sinks: dict[str, Path]
    seconds: float
    """0: it had come to its end before, and nothing was done."""
    is_whole: bool = True
    """False: somebody stopped it; the same call goes on."""


def replay(
    topology: Topology,
    log: str | Path | Log,
    *,
    into: str | Path,
    source: str | None = None,
    start: From | None = None,
    end: int | datetime | None = None,
    partition: int | None = None,
    speed: float | None = None,
    format: str = "json",
    close: bool = False,
    rows_per_step: int = ROWS_PER_STEP,
    spark: SparkSession | None = None,
    on_progress: Callable[[ReplayProgress], None] | None = None,
    engine: Any = None,
    period_s: float = PERIOD_S,
) -> Replayed:
    """Feed rows of a log through a topology, in place of its `source` (needed if it has several), and write what its sinks would get
    into files: `into`/SINK.

    Example::

        hf.replay(topology, "logs/orders", into="try", start=yesterday, end=today)

    `start`: "beginning" (the default), a position, or a time; `end`: a position or a time, by default all rows that count now.
    `speed`: 1 as they came, 60 a minute in a second, None as fast as it goes. `close`: event time ends with the rows. Twice
    gives the same rows; a replay that was killed goes on when it is called again with the same arguments."""
    opened = log if isinstance(log, Log) else Log(log)
    _check(opened, speed, partition)
    graph, place = topology.graph(), ReplayPlace(Path(into).absolute())
    name = chosen_source(graph, source)
    begun = place.begun()
    stretch = _stretch(opened, partition or 0, start, end, begun)
    asked = Asked(
        graph.name, name, opened.facts.id, stretch.partition, stretch.start, stretch.end, speed, rows_per_step, format, close
    )  # fmt: skip
    if begun is not None:
        refuse_another(place.into, begun, asked)
    original = graph.operators[name].spec
    assert isinstance(original, SourceSpec)
    rows = ReplaySource(stretch, original.source, speed=speed, rows_per_step=rows_per_step)
    made = replayed(graph, name, rows, _sinks(place.into, format), RegionSettings(period_s=period_s))
    paths = {
        str(key): place.into / key for key, op in made.operators.items() if isinstance(op.spec, SinkSpec)
    }
    if place.is_whole:
        place.end()
        return Replayed(stretch.start, stretch.end, stretch.end, paths, 0.0)
    if begun is None:
        place.begin(asked)
    since = time.monotonic()
    with _telling(rows, on_progress):
        _run(topology, made, place, close, spark, engine)
    is_whole = rows.is_at_end
    if is_whole:
        place.end()
    at = stretch.end if is_whole else rows.position
    return Replayed(stretch.start, at, stretch.end, paths, time.monotonic() - since, is_whole)


def _check(log: Log, speed: float | None, partition: int | None) -> None:
    if speed is not None and not 0 < speed < float("inf"):
        raise ConfigError(
            f"a replay cannot go at {speed} times its speed.", cure="Give a number above 0, or None."
        )
    if partition is None and log.facts.partitions > 1:
        raise ConfigError(
            f"the log {log.path} has {log.facts.partitions} partitions, and there is no order between them.",
            cure="Say which one: partition=0, …",
        )


def _stretch(
    log: Log, partition: int, start: From | None, end: int | datetime | None, begun: Asked | None
) -> ReplayRange:
    """The positions that are meant; what was begun is gone on with, although there are more rows now."""
    first = (
        begun.start
        if begun is not None and start is None
        else _position(log, partition, start or "beginning")
    )
    if begun is not None and end is None:
        last = begun.end
    else:
        last = log.bounds(partition).end if end is None else _position(log, partition, end)
    if first > last:
        raise ConfigError(f"position {last} is before {first}.", cure="Give the beginning first.")
    return ReplayRange(str(log.path), partition, first, last)


def _position(log: Log, partition: int, at: Any) -> int:
    place = {partition: at} if type(at) is int else at
    return min(log.reader(place, partitions=[partition]).position[partition], log.bounds(partition).end)


def _sinks(into: Path, format: str) -> Callable[[OperatorName], Sink]:
    return lambda name: FileSink(into / name, format)  # type: ignore[arg-type]


def _run(
    topology: Topology, graph: Graph, place: ReplayPlace, close: bool, spark: SparkSession | None, engine: Any
) -> None:
    def start(changed: dict[str, Any]) -> Job:
        at_work = engine or engine_for(topology, spark)
        try:
            at_work.check_workers()
            job = Job(graph, at_work, open_store(place.store), until="available", close=close, **changed)
            return job.start()
        except BaseException:
            at_work.stop()
            raise

    run_and_restart(start)


@contextmanager
def _telling(rows: ReplaySource, on_progress: Callable[[ReplayProgress], None] | None) -> Iterator[None]:
    """Tell now and then how far it is, by a thread of its own; and once more at the end."""
    if on_progress is None:
        yield
        return
    stop, stretch = threading.Event(), rows.stretch

    def tell() -> None:
        on_progress(ReplayProgress(stretch.start, rows.position, stretch.end, rows.due_in_s))

    def go_on() -> None:
        while not stop.wait(LOOK_S):
            tell()

    thread = threading.Thread(target=go_on, name="holdfast-replay-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        tell()
