"""The graph of a trial: what the program would write goes to a place of the trial's own, and what it reads is the same in each run.

A sink that can be redirected writes there by its own code. Of others nobody knows what writing to them does: their rows are recorded in
their place, with the same guarantee, and their own code is not run.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.connectors import Sink, Source
from holdfast.language.graph import CompositeMark, Graph, Operator, RegionSettings, SinkSpec, SourceSpec
from holdfast.language.operators.persist import PersistSpec
from holdfast.sinks.console import ConsoleSink
from holdfast.sinks.files import FileSink
from holdfast.sinks.foreach_batch import ForeachBatch
from holdfast.sinks.memory import MemorySink
from holdfast.sources.logs.replay_source import ReplayRange, ReplaySource

PERIOD_S = 0.7
"""Epochs and checkpoints come at least so often: a trial lasts for seconds."""


@dataclass(frozen=True, slots=True)
class Input:
    """What all runs of a trial read in the place of a source. `log`: its rows were recorded there, up to `end`; else `extent` is
    what the source said there was."""

    extent: Any = None
    log: str | None = None
    start: int = 0
    end: int = 0


class Record:
    """A function for `ForeachBatch` that keeps what it is given, as a function that sends it away would: for good, at once."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __call__(self, rows: Any, number: int) -> None:
        table = rows if isinstance(rows, pa.Table) else rows.toArrow()
        if not table.num_rows:
            return
        self._place.mkdir(parents=True, exist_ok=True)
        name = f"{number:09}-{secrets.token_hex(4)}.parquet"
        pq.write_table(table, self._place / f".{name}")
        os.rename(self._place / f".{name}", self._place / name)


def place_of(output: Path, sink: str) -> Path:
    return output / sink


def elsewhere(name: str, sink: Sink, output: Path) -> Sink:
    """What stands in the place of a sink."""
    place = place_of(output, name)
    if (other := sink.redirected(place)) is not None:
        if type(other) is not type(sink):
            raise ConfigError(
                f"sink {name!r} is redirected into another kind of sink, {type(other).__name__}.",
                cure=f"Let {type(sink).__name__}.redirected() answer one of its own kind, or None.",
            )
        return other
    if sink.guarantee == "exactly-once" or (isinstance(sink, ForeachBatch) and sink.per_epoch):
        return FileSink(place / "files", "parquet")
    return ForeachBatch(Record(place / "recorded"), check=cast(Any, sink.row_check()))


def is_recorded(name: str, sink: Sink, output: Path) -> str:
    """Why a sink's own code is not run, in a phrase; empty: it is."""
    if sink.redirected(place_of(output, name)) is not None:
        return ""
    if isinstance(sink, MemorySink | ConsoleSink):
        return ""  # nothing is in it that could fail otherwise
    if isinstance(sink, ForeachBatch):
        return "its function is not called"
    return f"{type(sink).__name__} cannot be redirected"


def rows_of(name: str, sink: Sink, output: Path) -> list[Mapping[str, Any]]:
    """What a sink of the program made visible in a run."""
    other = elsewhere(name, sink, output)
    if isinstance(other, FileSink) or sink.redirected(place_of(output, name)) is not None:
        return list(other.visible_rows())
    files = (place_of(output, name) / "recorded").glob("[!.]*.parquet")
    ordered = sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))
    return [row for path in ordered for row in pq.read_table(path).to_pylist()]


def sinks_of(graph: Graph) -> dict[OperatorName, Sink]:
    return {op.name: op.spec.sink for op in graph.operators.values() if isinstance(op.spec, SinkSpec)}


def sources_of(graph: Graph) -> dict[OperatorName, Source]:
    return {op.name: op.spec.source for op in graph.operators.values() if isinstance(op.spec, SourceSpec)}


def live_source(source: Source) -> Source | None:
    """What must be recorded before it can be read twice. None: it can be read again by itself."""
    preserved: Source | None = getattr(source, "preserves", None)
    return preserved or (None if source.replayable else source)


def trial_graph(graph: Graph, output: Path, inputs: Mapping[str, Input], period_s: float = PERIOD_S) -> Graph:
    """The program as it is tried."""
    operators = {name: _moved(op, output, inputs, period_s) for name, op in graph.operators.items()}
    marks = tuple(CompositeMark(m.name, m.members, _quicker(m.settings, period_s)) for m in graph.composites)
    return Graph(graph.name, operators, graph.feedback, marks)


def _moved(op: Operator, output: Path, inputs: Mapping[str, Input], period_s: float) -> Operator:
    spec, marks = op.spec, op.annotations
    if isinstance(spec, SinkSpec):
        spec = replace(spec, sink=elsewhere(str(op.name), spec.sink, output))
    elif isinstance(spec, SourceSpec):
        spec = SourceSpec(_kept_to(spec.source, inputs.get(str(op.name), Input())))
    elif isinstance(spec, PersistSpec):
        spec = replace(spec, path=None)  # in the trial's own store
    every = marks.checkpoint_every_s
    quicker = replace(
        marks,
        consistent=None if marks.consistent is None else _quicker(marks.consistent, period_s),
        checkpoint_every_s=None if every is None else min(every, period_s),
        may_lose=None,  # what faults cost here is counted against nobody's budget
    )
    return replace(op, spec=spec, annotations=quicker)


def _quicker(settings: RegionSettings, period_s: float) -> RegionSettings:
    if settings.trigger == "operator":
        return settings
    return replace(settings, trigger="periodic", period_s=min(settings.period_s, period_s))


def _kept_to(source: Source, told: Input) -> Source:
    if told.log is not None:
        return ReplaySource(ReplayRange(told.log, 0, told.start, told.end), source)
    if told.extent is not None:
        source.keep_to(told.extent)
    return source
