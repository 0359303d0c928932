"""All kinds of operators that come with holdfast, one module each or several that belong together. A new kind needs a line
here; what is not part of the package registers itself when it is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import TopologyError
from holdfast.language.graph import Graph, Operator
from holdfast.operators import ends as ends
from holdfast.operators import lookup as lookup
from holdfast.operators import persisted as persisted
from holdfast.operators import stateless as stateless
from holdfast.operators.aggregates import aggregate as aggregate
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.joins import join as join
from holdfast.operators.kind import KINDS, KeyedKind, Kind
from holdfast.operators.python import keyed_python as keyed_python
from holdfast.operators.rows import barrier as barrier
from holdfast.operators.rows import dedup as dedup
from holdfast.operators.rows import ranked as ranked
from holdfast.operators.rows import sorting as sorting
from holdfast.operators.stateless import StatelessKind
from holdfast.operators.stored.rows import StoredRows


def kind_of(op: Operator) -> Kind[Any]:
    """The kind of an operator."""
    found = KINDS.get(type(op.spec))
    if found is None:
        raise TopologyError(
            f"Operator {op.name!r} is of a kind that nobody knows: {op.kind}.",
            cure="Import what registers it: a class with @register before it.",
        )
    return found


def keyed_kind(op: Operator) -> KeyedKind[Any]:
    """The kind of an operator that keeps keyed state."""
    kind = kind_of(op)
    assert isinstance(kind, KeyedKind), f"{op.name!r} ({op.kind}) keeps no keyed state"
    return kind


def stateless_kind(op: Operator) -> StatelessKind[Any]:
    """The kind of an operator without state."""
    kind = kind_of(op)
    assert isinstance(kind, StatelessKind), f"{op.name!r} ({op.kind}) is not stateless"
    return kind


def only_spark_knows(op: Operator) -> bool:
    """Whether the operator is made of Spark expressions."""
    kind = kind_of(op)
    return isinstance(kind, StatelessKind) and kind.expressions


def needs_spark(graph: Graph) -> bool:
    """Whether nobody but Spark knows the columns of some stream, and runs need it."""
    return any(map(only_spark_knows, graph.operators.values()))


def stored_rows(fingerprint: Fingerprint, meta: Mapping[str, Any]) -> StoredRows:
    """The stored rows of an operator, also of a kind that nobody here knows."""
    kind = next((kind for kind in KINDS.values() if kind.name == fingerprint.kind), None)
    return (kind.stored if isinstance(kind, KeyedKind) else StoredRows)(fingerprint, meta)
