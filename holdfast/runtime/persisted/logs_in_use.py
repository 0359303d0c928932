"""The logs that the sources of a run read and its sinks write, and how they stand. Those of persisted streams: streams.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.compiler.plan import Plan
from holdfast.language.graph import SinkSpec, SourceSpec
from holdfast.log.look.standing import Standing
from holdfast.runtime.persisted.connectors import PersistedSource, PersistSink
from holdfast.sinks.log_sink import LogSink
from holdfast.sources.logs.log_source import LogSource
from holdfast.sources.logs.preserved import Preserved


@dataclass
class _InUse:
    """One log, and who uses it."""

    standing: Standing
    written_by: list[str] = field(default_factory=list)
    readers: dict[str, LogSource] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return (self.written_by or list(self.readers))[0]

    def status(self) -> dict[str, Any]:
        reached = [at for source in self.readers.values() if (at := source.stands_at) is not None]
        return {**self.standing.now(reached), "written_by": self.written_by, "read_by": list(self.readers)}


class LogsInUse:
    """Of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._found: dict[Path, _InUse] = {}
        for name, connector in _connectors(plan):
            path = connector.log_path
            use = self._found.setdefault(path, _InUse(Standing(path)))
            if isinstance(connector, LogSink):
                use.written_by.append(name)
            else:
                use.readers[name] = connector

    def status(self) -> dict[str, Any]:
        """By the name of who writes the log, or else of its first reader."""
        return {use.name: use.status() for use in self._found.values()}


def _connectors(plan: Plan) -> Iterator[tuple[str, LogSink | LogSource]]:
    for name, op in plan.graph.operators.items():
        if isinstance(op.spec, SinkSpec) and isinstance(op.spec.sink, LogSink):
            if not isinstance(op.spec.sink, PersistSink):
                yield str(name), op.spec.sink
        elif isinstance(op.spec, SourceSpec):
            source = op.spec.source.reads if isinstance(op.spec.source, Preserved) else op.spec.source
            if isinstance(source, LogSource) and not isinstance(source, PersistedSource):
                yield str(name), source
