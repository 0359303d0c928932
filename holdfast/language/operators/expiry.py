"""How long a keyed operator remembers a key: `hf.ttl(3600, on="at")`, `hf.ttl(3600)`; and `dedup`, which asks for it most.

By event time (`on`) a key is forgotten when the watermark has passed its time by the given length. The watermark is
taken at each row's own position, so results do not depend on how rows were cut into steps. A row without an event time
counts as of the largest one before it.

By processing time (no `on`) the driver's clock is read once per step. A run is consistent in itself, and a restored one
goes on with the times that were stored; another run over the same rows may forget at other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.annotations import Duration
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import event_time, key_fields, key_names, time_type
from holdfast.language.operators.values import Ttl
from holdfast.language.operators.windows import micros


@dataclass(frozen=True, slots=True)
class DedupSpec(Spec):
    """The first row of each key passes; with `ttl` the first since the key was forgotten."""

    by: tuple[str, ...]
    ttl: Ttl | None = None


def ttl(length: Duration, *, on: str | None = None, delay: Duration = 0) -> Ttl:
    """Forget a key `length` after its time: `orders.dedup("id", ttl=holdfast.ttl(3600, on="at", delay=60))`.

    The time of a key is that of its last row for `aggregate`, of the row that passed for `dedup`. `on`: the timestamp
    column with the event time; without it, time is when a step runs. `delay`: how far the watermark is behind the
    largest event time.
    """
    if on is not None:
        event_time(on)
    late_by = micros(delay, "delay", zero=True)
    if on is None and late_by:
        raise TopologyError(
            "delay= needs event time: rows do not come late by the driver's clock.",
            cure="Give on='…' as well, or leave delay= out.",
        )
    return Ttl(micros(length, "length"), on, late_by)


def dedup_spec(by: str | Sequence[str], given: Any) -> DedupSpec:
    """The spec of a dedup; refuses what can be refused without knowing the columns."""
    keys = key_names(by, "dedup()", "Give one or more column names: dedup('id').")
    return DedupSpec(keys, checked_ttl(given))


def checked_ttl(given: Any) -> Ttl | None:
    if given is not None and not isinstance(given, Ttl):
        raise TopologyError(f"ttl={given!r} is no lifetime.", cure="Write ttl=holdfast.ttl(3600, on='at').")
    return given


def dedup_schema(schema: pa.Schema, spec: DedupSpec) -> pa.Schema:
    """Rows leave as they came; refuses columns that are not there or do not fit."""
    key_fields(schema, spec.by)
    check_ttl_column(schema, spec.ttl)
    return schema


def check_ttl_column(schema: pa.Schema, given: Ttl | None) -> None:
    """Event time is in a timestamp column."""
    if given is not None and given.on is not None:
        time_type(schema, given.on, "The lifetime is by")
