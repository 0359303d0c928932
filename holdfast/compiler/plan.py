"""What the compiler hands to the runtime: plain data about elements, connections and regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.ids import ConnectionId, ElementName, OperatorName, RegionName
from holdfast.language.graph import Graph, Operator, RegionSettings, StreamRef
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kind import Timing
from holdfast.protocol.shape import RegionShape


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """A bounded FIFO from one element's stream to ports of operators in another element."""

    id: ConnectionId
    stream: StreamRef
    source: ElementName
    target: ElementName
    ports: tuple[tuple[OperatorName, int], ...]
    control: bool
    region: RegionName | None
    """The region both ends belong to; None: the connection crosses a border or lies outside of regions."""
    preserved: bool = False
    """It leads to an element of a region in mode `independent`, from another one of it or from outside of regions: what went
    along it is kept until the receiver's epochs cover it, and given again if the receiver fails."""


@dataclass(frozen=True, slots=True)
class ElementPlan:
    """Operators fused into one loop, in topological order."""

    name: ElementName
    operators: tuple[Operator, ...]
    region: RegionName | None
    inputs: tuple[ConnectionPlan, ...] = ()
    outputs: tuple[ConnectionPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A region: its settings (defaults filled in), members in graph order, and its shape for the protocol."""

    name: RegionName
    settings: RegionSettings
    members: tuple[OperatorName, ...]
    starts: tuple[OperatorName, ...]
    shape: RegionShape
    group: RegionName | None = None
    """The region as the user wrote it, if this is one element of it that has epochs of its own: mode `independent`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled topology."""

    graph: Graph
    elements: tuple[ElementPlan, ...]
    connections: tuple[ConnectionPlan, ...]
    regions: tuple[RegionPlan, ...]
    stamped: frozenset[StreamRef]
    """Streams that carry position columns, because somebody downstream orders by them."""
    schemas: Mapping[StreamRef, pa.Schema]
    """Columns of each stream without positions, as the analyser found them."""
    source_index: Mapping[OperatorName, int]
    """Number of each stamping operator (sources and hosted operators), by sorted name: fills `__hf_source`."""
    fingerprint: Mapping[OperatorName, Fingerprint]
    """What must not change between runs on one store, per stateful operator, source and sink."""
    taking: frozenset[tuple[OperatorName, int]] = frozenset()
    """Input ports beside whose rows event time travels."""
    aside: frozenset[tuple[OperatorName, int]] = frozenset()
    """Those of them whose rows do not move time on themselves."""
    offsets_us: Mapping[tuple[OperatorName, int], int] = field(default_factory=dict)
    """Input ports at which event time is not quite what the column says."""
    timed: Mapping[StreamRef, frozenset[OperatorName]] = field(default_factory=dict)
    """Streams beside whose rows event time travels, with the operators that read it."""
    adopted: frozenset[OperatorName] = frozenset()
    """Operators that were outside of regions until more was lost than may be: without an epoch they begin with their own checkpoints."""
    clocked: Mapping[OperatorName, Mapping[int, Timing]] = field(default_factory=dict)
    """Operators in the driver that hand event time on, with that of each data port."""
