"""A topology with its sources fed and its sinks caught: the graph of a test. Nothing outside is read or written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.connectors import Slice, Source
from holdfast.language.graph import Graph, Operator, RegionSettings, SinkSpec, SourceSpec
from holdfast.language.operators.persist import PersistSpec
from holdfast.language.tables import is_tabular
from holdfast.runtime.telling.events import EpochPublished, RunEvent
from holdfast.sinks.files import FileSink
from holdfast.sources.beacon import Beacon
from holdfast.sources.files import Files
from holdfast.sources.lists import Rows

PERIOD_S = 0.02
STEPS = 5
"""A feed is cut into so many steps, unless the test says how."""
PATIENCE_S = 0.5
"""So long a step waits for an epoch after the one before it."""

Feed = Mapping[str, Any]
"""By source: rows as tuples or mappings, a table, or `Steps`."""


class Steps:
    """Rows of a source step by step: `Steps([row, row], [row])` gives two rows, then one. An epoch lies between two steps."""

    def __init__(self, *steps: Sequence[Any]) -> None:
        self.steps = steps


class Pace:
    """Lets steps wait for epochs, so that a short feed has several. Its `on_event` hears of the run."""

    def __init__(self, has_regions: bool) -> None:
        self._has_regions = has_regions
        self.epochs = 0

    def on_event(self, event: RunEvent) -> None:
        self.epochs += isinstance(event, EpochPublished)

    def is_over(self, epochs: int, since: float) -> bool:
        """Whether a step that was given when there were so many epochs lies behind one."""
        return not self._has_regions or self.epochs > epochs or time.monotonic() - since > PATIENCE_S


class Fed(Rows):
    """Rows in the steps of a test; the next comes when an epoch lies behind the one before."""

    def __init__(self, table: pa.Table, ends: Sequence[int], pace: Pace) -> None:
        super().__init__(table)
        self._ends, self._pace = sorted(set(ends)), pace
        self._given: tuple[int, float] | None = None

    def awaits_more(self) -> bool:
        return self._next < int(self._table.num_rows)

    def seek(self, state: Any | None) -> None:
        self._given = None
        super().seek(state)

    def next_slice(self) -> Slice | None:
        if not self.awaits_more() or (self._given is not None and not self._pace.is_over(*self._given)):
            return None
        start = self._next
        self._next = next(end for end in self._ends if end > start)
        self._given = (self._pace.epochs, time.monotonic())
        return Slice(start, self._next, self._next - start, boundary=True)


def prepared(graph: Graph, feed: Feed, output: Path, pace: Pace, rows_per_step: int | None) -> Graph:
    """The graph of a test. ConfigError if a source would have to be read outside."""
    sources = [name for name, op in graph.operators.items() if isinstance(op.spec, SourceSpec)]
    unknown = sorted(set(feed) - set(map(str, sources)))
    if unknown:
        raise ConfigError(
            f"topology {graph.name!r} has no source {unknown[0]!r}.", cure=f"There are: {', '.join(sources)}."
        )
    operators = {
        name: _replaced(op, feed, output, pace, rows_per_step) for name, op in graph.operators.items()
    }
    composites = tuple(replace(each, settings=_settings(each.settings)) for each in graph.composites)
    return Graph(graph.name, operators, graph.feedback, composites)


def fed_graph(graph: Graph, feed: Feed) -> Graph:
    """The graph with lists of rows for the sources that are fed, and nothing else changed."""
    operators = dict(graph.operators)
    for name, rows in feed.items():
        op = operators.get(OperatorName(name))
        if op is None or not isinstance(op.spec, SourceSpec):
            raise ConfigError(
                f"topology {graph.name!r} has no source {name!r}.", cure="Feed one that it has."
            )
        operators[op.name] = replace(op, spec=SourceSpec(Rows(rows, op.spec.source.schema())))
    return replace(graph, operators=operators)


def has_regions(graph: Graph) -> bool:
    return bool(graph.composites) or any(op.annotations.consistent for op in graph.operators.values())


def caught_in(output: Path, sink: str) -> Path:
    """Where the rows of a sink are."""
    return output / sink


def _replaced(op: Operator, feed: Feed, output: Path, pace: Pace, rows_per_step: int | None) -> Operator:
    spec, marks = op.spec, op.annotations
    if isinstance(spec, SourceSpec):
        if str(op.name) in feed:
            spec = SourceSpec(_fed(op.name, spec.source, feed[str(op.name)], pace, rows_per_step))
        elif not isinstance(spec.source, Rows | Beacon | Files):
            raise ConfigError(
                f"source {op.name!r} reads {spec.source.describe()}, which a test should not.",
                cure=f"Feed it: run(topology, feed={{{str(op.name)!r}: rows}}).",
            )
    elif isinstance(spec, SinkSpec):
        spec = SinkSpec(FileSink(caught_in(output, str(op.name)), format="parquet"), spec.on_error)
    elif isinstance(spec, PersistSpec):
        spec = replace(spec, path=None)
    settings = None if marks.consistent is None else _settings(marks.consistent)
    return replace(op, spec=spec, annotations=replace(marks, consistent=settings) if settings else marks)


def _settings(settings: RegionSettings) -> RegionSettings:
    """Epochs come quickly, unless operators say when."""
    if settings.trigger == "operator":
        return settings
    return replace(settings, trigger="periodic", period_s=PERIOD_S)


def _fed(name: OperatorName, source: Source, rows: Any, pace: Pace, rows_per_step: int | None) -> Fed:
    schema = source.schema()
    steps = rows.steps if isinstance(rows, Steps) else None
    table = Rows(_joined(steps) if steps is not None else rows, schema)._table
    if steps is not None:
        ends = [sum(map(len, steps[: n + 1])) for n in range(len(steps))]
    else:
        size = rows_per_step or max(1, -(-table.num_rows // STEPS))
        ends = list(range(size, table.num_rows, size))
    return Fed(table, [*(end for end in ends if end), table.num_rows], pace)


def _joined(steps: Sequence[Sequence[Any]]) -> list[Any]:
    if any(is_tabular(step) for step in steps):
        raise ConfigError("Steps take lists of rows.", cure="Give table.to_pylist().")
    return [row for step in steps for row in step]
