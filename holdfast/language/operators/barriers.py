"""What `barrier` is told, and the columns that come out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import key_fields, key_names

Names = tuple[tuple[str, str], ...]
"""Columns of an input that come out, and what they are called there."""


@dataclass(frozen=True, slots=True)
class BarrierSpec(Spec):
    """The k-th rows of all inputs, of each key if there are keys, leave together as one row."""

    by: tuple[str, ...] = ()


def barrier_spec(by: str | Sequence[str] | None) -> BarrierSpec:
    """The spec of a barrier; without keys the k-th rows of all inputs belong together."""
    cure = "Name the key columns, which all inputs have: by='order'."
    return BarrierSpec(key_names(by or (), "barrier()", cure, needed=False))


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
    keys = [key_fields(schema, spec.by) for schema in schemas]
    for number, fields in enumerate(keys, 1):
        for first, field in zip(keys[0], fields, strict=True):
            if field.type != first.type:
                raise TopologyError(
                    f"The key {field.name!r} is of type {first.type} in the first input and"
                    f" {field.type} in number {number}.",
                    cure=f"Cast one of them before: with_columns({field.name}='cast({field.name} as bigint)').",
                )
    pairs = zip(schemas, barrier_names(schemas, spec.by), strict=True)
    return pa.schema(
        [schema.field(name).with_name(called) for schema, names in pairs for name, called in names]
    )
