"""What `barrier` is told, and the columns that come out of it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.graph import AggregateSpec, BarrierSpec
from holdfast.language.operators.aggregates import aggregate_schema

Names = tuple[tuple[str, str], ...]
"""Columns of an input that come out, and what they are called there."""


def barrier_spec(by: str | Sequence[str] | None) -> BarrierSpec:
    """The spec of a barrier; without keys the k-th rows of all inputs belong together."""
    keys = (by,) if isinstance(by, str) else tuple(by or ())
    if not all(isinstance(key, str) and key for key in keys):
        raise TopologyError(
            f"by={by!r} are no column names.", cure="Name the key columns, which all inputs have: by='order'."
        )
    return BarrierSpec(keys)


def barrier_names(schemas: Sequence[pa.Schema], by: Sequence[str]) -> tuple[Names, ...]:
    """All columns of the first input, then those of the others without the keys. A name that is taken gets the number
    of its input: price, price_2, price_3."""
    taken: set[str] = set()
    names = []
    for number, schema in enumerate(schemas, 1):
        chosen = []
        for name in schema.names if number == 1 else [name for name in schema.names if name not in by]:
            called = name if name not in taken else f"{name}_{number}"
            if called in taken:
                raise TopologyError(
                    f"There would be two columns called {called!r}.",
                    cure="Rename one before, with select(…).",
                )
            taken.add(called)
            chosen.append((name, called))
        names.append(tuple(chosen))
    return tuple(names)


def barrier_schema(schemas: Sequence[pa.Schema], spec: BarrierSpec) -> pa.Schema:
    """Columns that come out; refuses keys that are not there, or not of one type."""
    kinds = [aggregate_schema(schema, AggregateSpec(spec.by, ())) for schema in schemas]
    for number, kind in enumerate(kinds, 1):
        for key in spec.by:
            if kind.field(key).type != kinds[0].field(key).type:
                raise TopologyError(
                    f"The key {key!r} is of type {kinds[0].field(key).type} in the first input and"
                    f" {kind.field(key).type} in number {number}.",
                    cure=f"Cast one of them before: with_columns({key}='cast({key} as bigint)').",
                )
    pairs = zip(schemas, barrier_names(schemas, spec.by), strict=True)
    return pa.schema(
        [schema.field(name).with_name(called) for schema, names in pairs for name, called in names]
    )
