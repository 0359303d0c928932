"""Verbs that remember rows to choose among them, order them or put them side by side: `dedup`, `top_n`, `sort`, `zip`;
and how long a keyed operator remembers a key: `hf.ttl(3600, on="at")`, `hf.ttl(3600)`.

By event time (`on`) a key is forgotten when the watermark has passed its time by the given length. The watermark is
taken at each row's own position, so results do not depend on how rows were cut into steps. A row without an event time
counts as of the largest one before it.

By processing time (no `on`) the driver's clock is read once per step. A run is consistent in itself, and a restored one
goes on with the times that were stored; another run over the same rows may forget at other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.durations import Duration
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import Spec
from holdfast.language.hints import renamed
from holdfast.language.operators.columns import column_type, key_fields, key_names, time_type
from holdfast.language.operators.event_time import (
    Delay,
    UsesTime,
    column_of,
    delays_us,
    idle_us,
    micros,
    times_of_ttl,
    ttl_with_times,
)
from holdfast.language.operators.values import Delays, TimeWindow, Ttl
from holdfast.language.operators.windows import window_fields
from holdfast.state.aggregates.extremes import has_order
from holdfast.state.columns.hashing import plain

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


@dataclass(frozen=True, slots=True)
class DedupSpec(Spec, UsesTime):
    """The first row of each key passes; with `ttl` the first since the key was forgotten."""

    by: tuple[str, ...]
    ttl: Ttl | None = None

    def times(self) -> tuple[str, ...]:
        return times_of_ttl(self.ttl)

    def follows(self) -> bool:
        return self.ttl is not None and self.ttl.on is not None and self.ttl.delay_us is None

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> DedupSpec:
        return self if self.ttl is None else replace(self, ttl=ttl_with_times(self.ttl, columns, delays))


def ttl(length: Duration, *, on: str | None = None, delay: Duration | None = None) -> Ttl:
    """Forget a key `length` after its time: `orders.dedup("id", ttl=holdfast.ttl(3600, on="at", delay=60))`.

    The time of a key is that of its last row for `aggregate`, of the row that passed for `dedup`. `on`: the timestamp
    column with the event time; without it, time is when a step runs. `delay`: how far the watermark is behind the
    largest event time, unless the stream has declared it (`event_time`).
    """
    if on is not None:
        column_of(on)
    late_by = None if delay is None else micros(delay, "delay", zero=True)
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


RANK = "rank"


@dataclass(frozen=True, slots=True)
class TopNSpec(Spec, UsesTime):
    """The first `n` rows of each key in the order of some columns (True: descending), of each window if there is one."""

    n: int
    by: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    window: TimeWindow | None = None

    def times(self) -> tuple[str, ...]:
        return () if self.window is None else (self.window.on,)

    def follows(self) -> bool:
        return self.window is not None and not self.window.delays_us

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> TopNSpec:
        return (
            self
            if self.window is None
            else replace(self, window=self.window.with_times(columns[0], delays, idle_us))
        )


def top_n_spec(n: Any, by: str | Sequence[str], order: str | Sequence[str], window: Any) -> TopNSpec:
    """The spec; refuses what can be refused without knowing the columns."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise TopologyError(f"top_n() takes a number of rows, not {n!r}.", cure="Give 1 or more.")
    if window is not None and not isinstance(window, TimeWindow):
        raise TopologyError(
            f"window={window!r} does not go with top_n().",
            cure="Use a window over event time: window=holdfast.tumbling(60, on='at'), or leave it out.",
        )
    keys = key_names(by, "top_n()", "Name the key columns: by='symbol'; by=[]: all rows.", needed=False)
    return TopNSpec(n, keys, _order(order), window)


def _order(order: Any) -> tuple[tuple[str, bool], ...]:
    columns = (order,) if isinstance(order, str) else tuple(order)
    if not columns or not all(isinstance(column, str) and column.lstrip("-") for column in columns):
        raise TopologyError(
            f"order={order!r} names no columns.",
            cure="Write order='-score' for the largest score first, order=['-score', 'at'] for several columns.",
        )
    chosen = tuple((column.removeprefix("-"), column.startswith("-")) for column in columns)
    names = [name for name, _ in chosen]
    if len(set(names)) < len(names):
        raise TopologyError(f"order={order!r} names a column twice.", cure="Name each column once.")
    return chosen


def top_n_schema(schema: pa.Schema, spec: TopNSpec) -> pa.Schema:
    """Columns that come out: begin and end of the window if there is one, rank, then the row's own."""
    key_fields(schema, spec.by)
    for name, _ in spec.order:
        kind = column_type(schema, name, " to order by")
        if pa.types.is_nested(kind) or not has_order(plain(pa.array([], kind)).type):
            raise TopologyError(
                f"Rows cannot be ordered by {name!r} of type {kind}.",
                cure="Use a string, number, boolean, date or timestamp: make one with with_columns(…) before.",
            )
    made = [pa.field(RANK, pa.int32())]
    if spec.window is not None:
        made = [*window_fields(schema, spec.window), *made]
    taken = [field.name for field in made if field.name in schema.names]
    if taken:
        raise TopologyError(
            f"top_n() would make two columns called {', '.join(taken)}.",
            cure="Rename them before, with select(…).",
        )
    return pa.schema([*made, *schema])


@dataclass(frozen=True, slots=True)
class SortSpec(Spec, UsesTime):
    """Rows leave in the order of the event time `on`, as far as the watermark has passed; those of each key `by`, or all.
    `delays_us`, `idle_us`: as in windows."""

    on: str
    delays_us: Delays = (("", 0),)
    idle_us: int | None = None
    by: tuple[str, ...] = ()

    def times(self) -> tuple[str, ...]:
        return (self.on,)

    def follows(self) -> bool:
        return not self.delays_us

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> SortSpec:
        if delays is None:
            return replace(self, on=columns[0])
        return replace(self, on=columns[0], delays_us=delays, idle_us=self.idle_us or idle_us)


def sort_spec(
    on: str | None, delay: Delay | None, idle: Duration | None, by: str | Sequence[str] = ()
) -> SortSpec:
    """The spec of a sort; refuses what can be refused without knowing the columns."""
    keys = key_names(
        by, "sort()", "Name the key columns: by='user'; without by= all rows are one.", needed=False
    )
    return SortSpec(column_of(on), delays_us(delay), idle_us(idle), keys)


Names = tuple[tuple[str, str], ...]
"""Columns of an input that come out, and what they are called there."""


@dataclass(frozen=True, slots=True)
class BarrierSpec(Spec):
    """The k-th rows of all inputs, of each key if there are keys, leave together as one row: the verb `zip`. Stores know
    it by the name of this class."""

    by: tuple[str, ...] = ()


def barrier_spec(by: str | Sequence[str] | None) -> BarrierSpec:
    """The spec of `zip`; without keys the k-th rows of all inputs belong together."""
    cure = "Name the key columns, which all inputs have: by='order'."
    return BarrierSpec(key_names(by or (), "zip()", cure, needed=False))


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


class RowVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def dedup(self, by: str | Sequence[str], *, ttl: Ttl | None = None, name: str | None = None) -> Stream:
        """The first row of each key, in the order of the source: `orders.dedup("id", ttl=holdfast.ttl(3600, on="at"))`.

        The others are dropped and counted. Without `ttl` keys are remembered for ever; with it, the first row that
        comes after its key was forgotten passes again. Rows keep their positions."""
        return self._then(dedup_spec(by, ttl), name)

    def top_n(
        self,
        n: int,
        *,
        by: str | Sequence[str],
        order: str | Sequence[str],
        window: TimeWindow | None = None,
        name: str | None = None,
    ) -> Stream:
        """The n best rows of each key: `trades.top_n(3, by="symbol", order=["-price", "at"], name="best")`.

        `order`: column names, descending with a minus; nulls come last; rows that are equal stand in the order of the
        source. With `window=holdfast.tumbling(60, on="at")` the best of each window leave when it is complete, and
        again if its `lateness=` lets a row change them: merge by window, key and rank. Without a window all rows of a
        key's list leave whenever a step has changed it: merge by key and rank. `by=[]`: all rows together."""
        return self._then(top_n_spec(n, by, order, window), name)

    def sort(
        self,
        on: str | None = None,
        *,
        delay: Delay | None = None,
        idle: Duration | None = None,
        by: str | Sequence[str] = (),
        name: str | None = None,
    ) -> Stream:
        """Rows in the order of event time: `clicks.union(orders).sort("at", delay=5, name="sorted")`; without `on` and
        `delay`, of the one that the stream declared (`event_time`). `by="user"`: only the rows of each key are in order, and
        all partitions do the work.

        A row leaves when the watermark has passed it: the largest time so far minus `delay`, with several sources the
        smallest of theirs; with `idle=30` without those that had no row for 30 s (see `holdfast.tumbling`). Rows of the
        same time are ordered by the names of their sources, then by position. Rows that come after the watermark has
        passed them are dropped and counted as late; rows without a time are left out. Rows that leave have an order of
        their own, so that whatever depends on it may follow. Without `by` one partition does the work."""
        return self._then(sort_spec(on, delay, idle, by), name)

    def zip(self, *streams: Stream, by: str | Sequence[str] | None = None, name: str | None = None) -> Stream:
        """The k-th rows of this stream and of the others, side by side: `bids.zip(asks, by="symbol", name="both")`.

        With `by`, columns that all streams have, the k-th rows of each key. A row waits until every stream has its
        row. Columns are those of all streams, the keys once; names that are taken get the number of their stream:
        price, price_2, price_3. Each stream comes from one source. Without `by` one partition does the work, and the
        rows that leave have the positions of this stream's rows."""
        if not streams:
            raise TopologyError("zip() needs another stream.", cure="Write a.zip(b).")
        return self._then(barrier_spec(by), name, beside=streams)

    def barrier(
        self, *streams: Stream, by: str | Sequence[str] | None = None, name: str | None = None
    ) -> Stream:
        """What `zip` was called."""
        renamed("barrier()", "zip()")
        return self.zip(*streams, by=by, name=name)
