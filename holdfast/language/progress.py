"""`Progress`: how far a run has come, in the shape of Spark's `StreamingQueryProgress`.

    run.progress.sources[0].numInputRows
    print(run.progress.prettyJson)

Names that Spark has are written as Spark writes them, so that what reads the one can read the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class SourceProgress:
    """One source, and the rows that were taken from it in this run; those that were read again after a reset count again."""

    description: str
    numInputRows: int
    inputRowsPerSecond: float
    processedRowsPerSecond: float
    startOffset: str | None = None
    endOffset: str | None = None
    latestOffset: str | None = None
    """Offsets are Spark's; positions are in epochs here."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """lag_rows, lag_bytes, lag_s, as far as they are known."""


@dataclass(frozen=True)
class StateOperatorProgress:
    """One operator with state. -1: what nobody counts here."""

    operatorName: str
    numRowsTotal: int
    memoryUsedBytes: int
    numRowsDroppedByWatermark: int
    customMetrics: Mapping[str, Any] = field(default_factory=dict)
    numRowsUpdated: int = -1
    numRowsRemoved: int = -1
    allUpdatesTimeMs: int = -1
    allRemovalsTimeMs: int = -1
    commitTimeMs: int = -1
    numShufflePartitions: int = -1
    numStateStoreInstances: int = -1


@dataclass(frozen=True)
class SinkProgress:
    """One sink."""

    description: str
    numOutputRows: int
    """In this run; -1: it does not know."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come. What has no end (rows, epochs) is counted since the run began."""

    id: str
    """Of the store's job; "none" without a store."""
    runId: str
    name: str
    timestamp: str
    """When it was asked, UTC."""
    batchId: int
    """The newest epoch of all regions; the number of steps if there are none."""
    batchDuration: int
    """How long the slowest region's newest epoch took, in milliseconds."""
    durationMs: Mapping[str, int]
    """How long the newest epoch of each region took."""
    eventTime: Mapping[str, str]
    """"watermark": the least one of all operators; "max": the latest event time."""
    stateOperators: tuple[StateOperatorProgress, ...]
    sources: tuple[SourceProgress, ...]
    sinks: tuple[SinkProgress, ...]
    epochs: Mapping[str, int]
    """By region."""
    rows: Mapping[str, int]
    """Taken in, by element."""
    rows_per_s: Mapping[str, float]
    """By element."""
    sink_rows: Mapping[str, int]
    """Written in this run, by sink; where the sink knows."""
    late_rows: Mapping[str, int]
    """Behind the watermark, by operator."""
    lost_rows: Mapping[str, int]
    """In all runs, by sink."""
    state: str = "running"
    observedMetrics: Mapping[str, Any] = field(default_factory=dict)
    """Always empty: Spark's queries have them."""

    @property
    def epoch(self) -> int:
        """`batchId` under the name that it has here."""
        return self.batchId

    @property
    def numInputRows(self) -> int:
        return sum(source.numInputRows for source in self.sources)

    @property
    def inputRowsPerSecond(self) -> float:
        return sum(source.inputRowsPerSecond for source in self.sources)

    @property
    def processedRowsPerSecond(self) -> float:
        return sum(source.processedRowsPerSecond for source in self.sources)

    @property
    def sink(self) -> SinkProgress | None:
        """The first sink: Spark's queries have one."""
        return self.sinks[0] if self.sinks else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        rates = ("epoch", "numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")
        sink = None if self.sink is None else asdict(self.sink)
        return {**asdict(self), **{name: getattr(self, name) for name in rates}, "sink": sink}

    @property
    def json(self) -> str:
        return json.dumps(self.as_dict())

    @property
    def prettyJson(self) -> str:
        return json.dumps(self.as_dict(), indent=2)


def progress_of(status: Mapping[str, Any]) -> Progress:
    """From a status as plain data, of this run or as a store keeps it. Pure."""
    elements: Mapping[str, Mapping[str, Any]] = status["elements"]
    regions: Mapping[str, Mapping[str, Any]] = status["regions"]
    counts = {op: of for element in elements.values() for op, of in element["counts"].items()}
    took = {name: round(region["last_epoch_ms"] or 0) for name, region in regions.items()}
    steps = sum(element["steps"] for element in elements.values())
    return Progress(
        id=str(status.get("id", "none")),
        runId=str(status.get("run", 0)),
        name=status["topology"],
        timestamp=utc(status.get("at", 0.0)),
        batchId=max((region["epoch"] for region in regions.values()), default=steps),
        batchDuration=max(took.values(), default=0),
        durationMs=took,
        eventTime=_event_time(elements),
        stateOperators=tuple(
            _state(name, of, counts.get(name, {}))
            for element in elements.values()
            for name, of in element.get("state", {}).items()
        ),
        sources=tuple(
            _source(name, element, lag)
            for element in elements.values()
            for name, lag in element.get("sources", {}).items()
        ),
        sinks=tuple(
            SinkProgress(sink, rows)
            for element in elements.values()
            for sink, rows in element["sink_rows"].items()
        ),
        epochs={name: region["epoch"] for name, region in regions.items()},
        rows={name: element["rows"] for name, element in elements.items()},
        rows_per_s={name: element["rows_per_s"] for name, element in elements.items()},
        sink_rows={
            sink: rows for element in elements.values() for sink, rows in element["sink_rows"].items()
        },
        late_rows={operator: of["late"] for operator, of in counts.items() if "late" in of},
        lost_rows=dict(status["lost_rows"]),
        state=status["state"],
    )


def _state(name: str, of: Mapping[str, Any], counts: Mapping[str, int]) -> StateOperatorProgress:
    time = {what: of[what] for what in ("watermark", "closed") if what in of}
    return StateOperatorProgress(name, of.get("rows", 0), of["bytes"], counts.get("late", 0), time)


def _source(name: str, element: Mapping[str, Any], lag: Mapping[str, Any]) -> SourceProgress:
    known = {what: value for what, value in lag.items() if what.startswith("lag") and value is not None}
    rate = float(lag.get("rows_per_s", element["rows_per_s"]))
    return SourceProgress(name, lag.get("rows", element["rows"]), rate, rate, metrics=known)


def _event_time(elements: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    states = [of for element in elements.values() for of in element.get("state", {}).values()]
    marks = [of["watermark"] for of in states if "watermark" in of]
    latest = [time for of in states for time in of.get("event_times", {}).values()]
    found = {"watermark": min(marks, default=None), "max": max(latest, default=None)}
    return {name: utc(time) for name, time in found.items() if time is not None}


def utc(seconds: float) -> str:
    """As Spark writes times: 2020-01-01T00:00:00.000Z. A time that no calendar has stays a number."""
    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return str(seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
