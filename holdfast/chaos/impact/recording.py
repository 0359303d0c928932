"""Sinks of a program, redirected: what it would write is kept in memory, each row with the moment at which it was written.

Nothing reaches the user's own outputs. Files, memory and console are redirected by themselves; of other sinks nobody knows what writing
to them does, so they are refused unless the user says that their rows may be recorded in their place.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar, Literal
from uuid import uuid4

import pyarrow as pa

from holdfast.chaos.impact.deviation import AT
from holdfast.clock import Clock
from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.connectors import Sink, SinkContext, StepId
from holdfast.language.graph import Graph, Operator, SinkSpec, SourceSpec
from holdfast.language.operators.persist import PersistSpec
from holdfast.sinks.console import ConsoleSink
from holdfast.sinks.files import FileSink
from holdfast.sinks.memory import MemorySink

REDIRECTED = (FileSink, MemorySink, ConsoleSink)


class Recorder(MemorySink):
    """Takes the place of a sink that shows rows once, with their epoch."""

    def __init__(self, clock: Clock) -> None:
        self.shelf = f"impact-{uuid4()}"
        self._clock = clock
        super().__init__(self.shelf)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        at = pa.array([self._clock.monotonic()] * table.num_rows, pa.float64())
        return super().write_arrow(table.append_column(AT, at), step)

    def taken(self) -> pa.Table | None:
        """The rows that were written; they are forgotten."""
        found = MemorySink.table(self.shelf)
        MemorySink.clear(self.shelf)
        return found


class RepeatingRecorder(Recorder):
    """Takes the place of a sink that cannot take rows back: after a reset they come again."""

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"

    @property
    def is_staged(self) -> bool:
        return False

    def open(self, context: SinkContext) -> None:
        super().open(replace(context, region=None))

    def seal(self, epoch: object) -> None:
        return None

    def prepare(self, epoch: object, sealed: object) -> None:
        return None

    def commit(self, epoch: object, prepared: object) -> None:
        return None

    def restore(self, epoch: object, prepared: object) -> None:
        return None

    def verify(self, epoch: object, prepared: object) -> None:
        return None


def sinks_of(graph: Graph) -> dict[OperatorName, Sink]:
    return {op.name: op.spec.sink for op in graph.operators.values() if isinstance(op.spec, SinkSpec)}


def check_program(graph: Graph, recorded: Collection[str]) -> None:
    """ConfigError if a sink cannot be redirected, or if a source cannot be read again and again."""
    sinks = sinks_of(graph)
    if unknown := sorted(set(recorded) - {str(name) for name in sinks}):
        raise ConfigError(f"there is no sink {unknown[0]!r}.", cure=f"There are: {', '.join(sinks)}.")
    bad = [name for name, sink in sinks.items() if not _is_safe(sink) and name not in recorded]
    if bad:
        said = ", ".join(f"{name!r} ({sinks[name].describe()})" for name in bad)
        raise ConfigError(
            f"these sinks cannot be redirected, and impact must not write to them: {said}.",
            cure=f"Record the rows that would go there instead: {' '.join(f'--record {name}' for name in bad)}.",
        )
    fleeting = [op.name for op in graph.operators.values() if not _is_repeatable(op)]
    if fleeting:
        raise ConfigError(
            f"rows of {', '.join(map(repr, fleeting))} cannot be read again, and each run needs the same.",
            cure="Give the program files or a list of rows in their place.",
        )


def _is_safe(sink: Sink) -> bool:
    return type(sink) in REDIRECTED


def _is_repeatable(op: Operator) -> bool:
    return not isinstance(op.spec, SourceSpec) or op.spec.source.replayable


def redirected(graph: Graph, clock: Clock) -> tuple[Graph, dict[OperatorName, Recorder]]:
    """The graph with a recorder in the place of each sink."""
    recorders: dict[OperatorName, Recorder] = {}
    operators = dict(graph.operators)
    for name, sink in sinks_of(graph).items():
        recorders[name] = Recorder(clock) if sink.guarantee == "exactly-once" else RepeatingRecorder(clock)
        spec = operators[name].spec
        assert isinstance(spec, SinkSpec)
        operators[name] = replace(operators[name], spec=replace(spec, sink=recorders[name]))
    for name, op in operators.items():
        if isinstance(
            op.spec, PersistSpec
        ):  # its log is in the store of the trial, not where the program has it
            operators[name] = replace(op, spec=replace(op.spec, path=None))
    return replace(graph, operators=operators), recorders
