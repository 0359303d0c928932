"""Fifth pass: the columns of every stream, found through a seam.

The compiler does not know Spark. An `Analyser` says what comes out of one operator; Spark's asks Catalyst over empty
DataFrames, `ArrowAnalyser` knows the operators that need no Catalyst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from holdfast.compiler.traverse import topological
from holdfast.errors import HoldfastError, TopologyError
from holdfast.language.graph import Graph, Operator, StreamRef
from holdfast.language.schema import check_columns
from holdfast.operators.kinds import kind_of


class Analyser(Protocol):
    """Says what comes out of an operator, one schema per output port, without positions.

    `input_schemas` has one schema per data port (streams that meet at a port have the same). Any exception it raises
    becomes a TopologyError that names the operator."""

    def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]: ...


class ArrowAnalyser:
    """Knows everything but Column expressions, SQL and DataFrame functions: those need Spark."""

    def output_schemas(self, operator: Operator, input_schemas: list[pa.Schema]) -> list[pa.Schema]:
        return kind_of(operator).schemas(operator, input_schemas)


def analyse(graph: Graph, analyser: Analyser) -> Mapping[StreamRef, pa.Schema]:
    """Columns of all streams, in topological order; mistakes are reported with the operator's name."""
    schemas: dict[StreamRef, pa.Schema] = {}
    for name in topological(graph):
        operator = graph.operators[name]
        inputs = [
            _at_port(operator, index, schemas) for index, p in enumerate(operator.inputs) if not p.control
        ]
        for port, schema in enumerate(_outputs(operator, inputs, analyser)):
            schemas[StreamRef(name, port)] = schema
    check_control_ports(graph, schemas)
    check_feedback_schemas(graph, schemas)
    return schemas


def _outputs(operator: Operator, inputs: list[pa.Schema], analyser: Analyser) -> list[pa.Schema]:
    where = f"Operator {operator.name!r} ({operator.kind})"
    try:
        found = analyser.output_schemas(operator, inputs)
        for schema in found:
            check_columns(schema, "what it makes")
    except TopologyError as error:
        raise TopologyError(f"{where}: {error.message}", cure=error.cure) from error
    except HoldfastError:
        raise
    except Exception as error:
        raise TopologyError(f"{where}: {_first_line(error)}", cure=_available(inputs)) from error
    if len(found) != operator.outputs:
        raise TopologyError(
            f"{where} makes {operator.outputs} streams, but {len(found)} schemas were found.",
            cure="Report this: the analyser does not fit the operator.",
        )
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip("; ") if lines else type(error).__name__  # Spark shows its plan behind a semicolon
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _available(inputs: list[pa.Schema]) -> str:
    columns = [f"{field.name} {field.type}" for schema in inputs for field in schema]
    return f"Available columns: {', '.join(columns)}." if columns else "Check what the source was given."


def _at_port(operator: Operator, index: int, schemas: Mapping[StreamRef, pa.Schema]) -> pa.Schema:
    """The columns of a port; all its streams must have the same."""
    first, *others = operator.inputs[index].streams
    for other in others:
        if not same_columns(schemas[first], schemas[other]):
            raise TopologyError(
                f"Operator {operator.name!r} ({operator.kind}), port {index}: the streams do not have the same columns."
                f" {first}: {describe(schemas[first])}; {other}: {describe(schemas[other])}.",
                cure="Bring them into one form with select(…): same names, same types, same order.",
            )
    return schemas[first]


def check_control_ports(graph: Graph, schemas: Mapping[StreamRef, pa.Schema]) -> None:
    """Streams that meet at a control port have the same columns."""
    for operator in graph.operators.values():
        for index, port in enumerate(operator.inputs):
            if port.control:
                _at_port(operator, index, schemas)


def check_feedback_schemas(graph: Graph, schemas: Mapping[StreamRef, pa.Schema]) -> None:
    """A feedback stream has the columns that were announced."""
    for mark in graph.feedback:
        if mark.stream is not None and not same_columns(mark.schema, schemas[mark.stream]):
            raise TopologyError(
                f"The feedback {mark.name!r} was declared as {describe(mark.schema)},"
                f" but {str(mark.stream)!r} has {describe(schemas[mark.stream])}.",
                cure="Declare topology.feedback(schema) with the columns of the stream that completes it.",
            )


def same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Same names and types in the same order; whether a column may be null does not matter here."""
    return bool(one.names == other.names and one.types == other.types)


def describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
