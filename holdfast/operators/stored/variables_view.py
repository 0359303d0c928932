"""The states of keyed Python operators as columns: one per declared variable, and the timers of the key.

A variable that is as declared is not stored: it is null, or its default where the topology is known. Numbers, strings,
bytes and booleans keep their types, everything else is shown as JSON text. Reading is data only: a class that somebody
registered must be registered here too, or one sentence says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from holdfast.errors import StateError
from holdfast.operators.stored.views import SimpleView, unique
from holdfast.state.aggregates.aggregation import single
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.opaque_values import STATE
from holdfast.state.values import codec, user_classes
from holdfast.state.variables.declarations import VariableShape

_TIMERS = ""
TIMERS = "timers"
_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
}


@dataclass(frozen=True)
class Variables(SimpleView):
    """The view of a keyed Python operator's state."""

    stored: pa.Schema
    declared: tuple[tuple[str, VariableShape], ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[tuple[str, str, type], ...] = ()
    """Registered classes that states hold: (kind, name, class). Tasks register them again."""

    @property
    def rows_at_once(self) -> int:
        return 1 << 16

    @property
    def _keys(self) -> list[str]:
        return [name for name in self.stored.names if name not in (HASH_COLUMN, STATE)]

    @cached_property
    def schema(self) -> pa.Schema:
        types = [self.stored.field(name).type for name in self._keys]
        types += [_own_type(shape) or pa.string() for _, shape in self.declared]
        types.append(pa.list_(pa.field("element", pa.timestamp("us", tz="UTC"))))
        names = unique([*self._keys, *(name for name, _ in self.declared), TIMERS])
        return pa.schema(list(zip(names, types, strict=True)))

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        for registered in self.classes:
            user_classes.register_again(*registered)
        states = [codec.decode(data) for data in single(rows.column(STATE)).to_pylist()]
        columns = [single(rows.column(name)) for name in self._keys]
        columns += [
            self._column(name, shape, states, kind)
            for (name, shape), kind in zip(
                self.declared, self.schema.types[len(self._keys) : -1], strict=True
            )
        ]
        timers = [state.get(_TIMERS, [None, []])[1] for state in states]
        columns.append(pa.array(timers, pa.list_(pa.int64())).cast(self.schema.types[-1]))
        return pa.Table.from_arrays(columns, schema=self.schema), None

    def _column(
        self, name: str, shape: VariableShape, states: list[dict[str, Any]], kind: pa.DataType
    ) -> pa.Array:
        default = self.defaults.get(name)
        values = [_without_times(state[name], shape) if name in state else default for state in states]
        if _own_type(shape) is None:
            return pa.array([None if value is None else as_text(value) for value in values], kind)
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError) as error:
            raise StateError(
                f"variable {name!r} has values that do not fit into {kind} ({error}).",
                cure="Read the state in Python instead.",
            ) from error


def as_text(value: Any) -> str:
    """JSON where the value has one."""
    try:
        return json.dumps(value, default=str)
    except (TypeError, ValueError):
        return repr(value)


def _own_type(shape: VariableShape) -> pa.DataType | None:
    """The type of column in which its values are shown as they are; None: there is none."""
    return _TYPES.get(shape.type[0]) if shape.form == "value" else None


def _without_times(payload: Any, shape: VariableShape) -> Any:
    """A payload without the event times that stand beside values that end by themselves."""
    if shape.ttl_us is not None:
        if shape.form == "value":
            return payload[1]
        return {key: value for key, (_, value) in payload.items()}
    return payload if shape.us is None else [value for _, value in payload]
