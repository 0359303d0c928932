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
from holdfast.state.aggregates.aggregation import single
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.opaque_values import STATE
from holdfast.state.values import codec, user_classes

_TIMERS = ""
TIMERS = "timers"
_TYPES = {
    "value(int)": pa.int64(),
    "value(float)": pa.float64(),
    "value(str)": pa.string(),
    "value(bool)": pa.bool_(),
    "value(bytes)": pa.binary(),
}


@dataclass(frozen=True)
class Variables:
    """The view of a keyed Python operator's state."""

    stored: pa.Schema
    declared: tuple[tuple[str, str], ...]
    """Names and declarations, as in the fingerprint."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[tuple[str, str, type], ...] = ()
    """Registered classes that states hold: (kind, name, class). Tasks register them again."""
    rows_at_once: int = 1 << 16

    @staticmethod
    def of(stored: pa.Schema, declared: Mapping[str, str]) -> Variables:
        return Variables(stored, tuple(declared.items()))

    @property
    def _keys(self) -> list[str]:
        return [name for name in self.stored.names if name not in (HASH_COLUMN, STATE)]

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [self.stored.field(name) for name in self._keys]
        for name, declared in self.declared:
            fields.append(pa.field(_free(name, fields), _TYPES.get(_plain(declared), pa.string())))
        timers = pa.list_(pa.field("element", pa.timestamp("us", tz="UTC")))
        return pa.schema([*fields, pa.field(_free(TIMERS, fields), timers)])

    def prepare(self, rows: pa.Table) -> pa.Table:
        return rows

    def finish(self, rows: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        for registered in self.classes:
            user_classes.register_again(*registered)
        states = [codec.decode(data) for data in single(rows.column(STATE)).to_pylist()]
        columns = [single(rows.column(name)) for name in self._keys]
        columns += [
            self._column(name, declared, states, kind)
            for (name, declared), kind in zip(
                self.declared, self.schema.types[len(self._keys) : -1], strict=True
            )
        ]
        timers = [state.get(_TIMERS, [None, []])[1] for state in states]
        columns.append(pa.array(timers, pa.list_(pa.int64())).cast(self.schema.types[-1]))
        return pa.Table.from_arrays(columns, schema=self.schema), None

    def _column(self, name: str, declared: str, states: list[dict[str, Any]], kind: pa.DataType) -> pa.Array:
        default = self.defaults.get(name)
        values = [_without_times(state[name], declared) if name in state else default for state in states]
        if _plain(declared) not in _TYPES:
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


def _plain(declared: str) -> str:
    """A declaration without its lifetime."""
    return declared.partition(",ttl_us=")[0].rstrip(")") + ")"


def _without_times(payload: Any, declared: str) -> Any:
    """A payload without the event times that stand beside values that end by themselves."""
    if ",ttl_us=" in declared:
        if declared.startswith("value("):
            return payload[1]
        return {key: value for key, (_, value) in payload.items()}
    if declared.startswith("window(") and ",us=" in declared:
        return [value for _, value in payload]
    return payload


def _free(name: str, fields: list[pa.Field]) -> str:
    taken = {field.name for field in fields}
    while name in taken:
        name += "_"
    return name
