"""What must not change between two runs on one store: names, kinds, keys, state types, ports. Not expressions."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from holdfast.ids import OperatorName
from holdfast.language.graph import (
    KEY_GROUPS,
    STATEFUL,
    AggregateSpec,
    BarrierSpec,
    CountWindow,
    DedupSpec,
    DeltaWindow,
    Graph,
    HostedSpec,
    JoinSpec,
    KeyedSpec,
    MarkedWindow,
    Operator,
    RowWindow,
    SinkSpec,
    SortSpec,
    SourceSpec,
    StreamRef,
    TimeWindow,
    TopNSpec,
    WindowSpec,
)


def fingerprints(graph: Graph, schemas: Mapping[StreamRef, pa.Schema]) -> Mapping[OperatorName, str]:
    """A short, stable text per source, sink and stateful operator."""
    return {
        name: fingerprint(operator, schemas)
        for name, operator in graph.operators.items()
        if isinstance(operator.spec, (*STATEFUL, SourceSpec, SinkSpec))
    }


def fingerprint(operator: Operator, schemas: Mapping[StreamRef, pa.Schema]) -> str:
    """For example `aggregate by=(word:string) agg=(n:count:int64) groups=128`."""
    match operator.spec:
        case SourceSpec(source=source):
            return f"source {type(source).__name__}"
        case SinkSpec(sink=sink):
            return f"sink {type(sink).__name__}"
        case HostedSpec():
            return f"hosted inputs={_ports(operator)} outputs={operator.outputs}"
        case AggregateSpec() as spec:
            made = schemas[StreamRef(operator.name)]
            keys = ",".join(f"{key}:{_type(made, key)}" for key in spec.by)
            lives = "" if spec.ttl is None else f" ttl={spec.ttl.on or 'clock'}"
            return f"aggregate by=({keys}) agg=({_computed(spec, made)}){lives} groups={KEY_GROUPS}"
        case DedupSpec(by=by, ttl=ttl):
            made = schemas[StreamRef(operator.name)]
            keys = ",".join(f"{key}:{_type(made, key)}" for key in by)
            lives = "" if ttl is None else f" ttl={ttl.on or 'clock'}"
            return f"dedup by=({keys}){lives} groups={KEY_GROUPS}"
        case TopNSpec() as spec:
            types = schemas[operator.inputs[0].streams[0]]
            keys = ",".join(f"{key}:{_type(types, key)}" for key in spec.by)
            order = ",".join(f"{'-' if descending else ''}{column}" for column, descending in spec.order)
            rows = ",".join(f"{column}:{_type(types, column)}" for column in types.names)
            panes = (
                f" size={spec.window.size_us} slide={spec.window.slide_us} on={spec.window.on}"
                if spec.window
                else ""
            )
            return f"top n={spec.n} order=({order}){panes} by=({keys}) rows=({rows}) groups={KEY_GROUPS}"
        case BarrierSpec(by=by):
            inputs = " ".join(
                f"({','.join(f'{name}:{_type(types, name)}' for name in types.names)})"
                for types in (schemas[port.streams[0]] for port in operator.inputs)
            )
            return f"barrier by=({','.join(by)}) rows={inputs} groups={KEY_GROUPS}"
        case SortSpec(on=on):
            types = schemas[operator.inputs[0].streams[0]]
            return f"sort on={on} rows=({','.join(f'{name}:{_type(types, name)}' for name in types.names)})"
        case WindowSpec(window=window) as spec:
            made = schemas[StreamRef(operator.name)]
            keys = ",".join(f"{key}:{_type(made, key)}" for key in spec.by)
            return f"window {_panes(window)} by=({keys}) agg=({_computed(spec, made)}) groups={KEY_GROUPS}"
        case KeyedSpec() as spec:
            types = schemas[operator.inputs[0].streams[0]]
            keys = ",".join(f"{key}:{_type(types, key)}" for key in spec.by)
            state = ",".join(f"{name}:{described}" for name, described in spec.variables)
            return f"keyed by=({keys}) state=({state}) on={spec.on} groups={KEY_GROUPS}"
        case JoinSpec() as spec:
            sides = zip((spec.left_by, spec.right_by), operator.inputs, strict=True)
            keys = " ".join(
                f"({','.join(f'{key}:{_type(schemas[port.streams[0]], key)}' for key in by)})"
                for by, port in sides
            )
            return f"join {type(spec.match).__name__} on={spec.on} by={keys} groups={KEY_GROUPS}"
    return operator.kind


def _panes(window: TimeWindow | RowWindow) -> str:
    match window:
        case CountWindow(size=size, every=every):
            return f"rows={size} every={every}"
        case DeltaWindow(delta=delta, of=of, every=every):
            return f"delta={delta} of={of}" + ("" if every is None else f" every={every}")
        case MarkedWindow(until=until):
            return f"until={until}"
    return f"size={window.size_us} slide={window.slide_us} on={window.on}"


def _computed(spec: AggregateSpec | WindowSpec, made: pa.Schema) -> str:
    return ",".join(
        f"{name}:{function}{f'({column})' if column else ''}:{_type(made, name)}"
        for name, function, column in spec.aggregates
    )


def _type(schema: pa.Schema, column: str) -> str:
    return str(schema.field(column).type).replace(" ", "")


def _ports(operator: Operator) -> str:
    return "+".join("control" if port.control else "data" for port in operator.inputs)
