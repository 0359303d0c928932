"""All kinds of operators: the one place where a new kind is listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import TopologyError
from holdfast.language.graph import Operator, Spec
from holdfast.operators import stateless
from holdfast.operators.aggregates.kinds import AggregateKind, WindowKind
from holdfast.operators.ends import SinkKind, SourceKind
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.joins.kind import JoinKind
from holdfast.operators.kind import KeyedKind, Kind
from holdfast.operators.python.hosted import HostedKind
from holdfast.operators.python.keyed_python import KeyedPythonKind
from holdfast.operators.rows.barrier import BarrierKind
from holdfast.operators.rows.dedup import DedupKind
from holdfast.operators.rows.ranked import TopNKind
from holdfast.operators.rows.sorting import SortKind
from holdfast.operators.stateless import StatelessKind
from holdfast.operators.stored.rows import StoredRows

_KINDS: dict[type[Spec], Kind[Any]] = {}


def register(kind: Kind[Any]) -> None:
    """From now on operators with its class of spec are of this kind."""
    _KINDS[kind.spec] = kind


for _kind in (
    SourceKind(),
    stateless.FilterKind(),
    stateless.SelectKind(),
    stateless.WithColumnsKind(),
    stateless.TransformKind(),
    stateless.SqlKind(),
    stateless.MapArrowKind(),
    stateless.UnionKind(),
    stateless.SplitKind(),
    AggregateKind(),
    WindowKind(),
    DedupKind(),
    TopNKind(),
    SortKind(),
    BarrierKind(),
    JoinKind(),
    KeyedPythonKind(),
    HostedKind(),
    SinkKind(),
):
    register(_kind)


def kind_of(op: Operator) -> Kind[Any]:
    """The kind of an operator."""
    found = _KINDS.get(type(op.spec))
    if found is None:
        raise TopologyError(
            f"Operator {op.name!r} is of a kind that nobody knows: {op.kind}.",
            cure="Import what registers it: holdfast.operators.kinds.register(…).",
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


def stored_rows(fingerprint: Fingerprint, meta: Mapping[str, Any]) -> StoredRows:
    """The stored rows of an operator, also of a kind that nobody here knows."""
    kind = next((kind for kind in _KINDS.values() if kind.name == fingerprint.kind), None)
    return (kind.stored if isinstance(kind, KeyedKind) else StoredRows)(fingerprint, meta)
