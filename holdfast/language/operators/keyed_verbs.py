"""The verbs of keyed Python operators: `stream.keyed` and `stream.map_state`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from holdfast.durations import Duration
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.hosted import Missing, OnError, Poison, PoisonThen
from holdfast.language.operators.event_time import DECLARED
from holdfast.language.operators.hosted_python import Schemas, Streams
from holdfast.language.operators.keyed_python import keyed_spec, mapped_operator
from holdfast.language.operators.rows import sort_spec
from holdfast.state.variables.declarations import Variable

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

Order = Literal["arrival", "event_time"]


class KeyedVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    @overload
    def keyed(
        self,
        by: str | Sequence[str],
        operator: Any,
        schema: Any,
        *,
        name: str | None = ...,
        on: str | None = ...,
        delay: Duration | None = ...,
        order: Order = ...,
        missing: Missing = ...,
        on_error: OnError = ...,
        poison: PoisonThen | Poison | None = ...,
    ) -> Stream: ...
    @overload
    def keyed(
        self,
        by: str | Sequence[str],
        operator: Any,
        *,
        schemas: Schemas,
        name: str | None = ...,
        on: str | None = ...,
        delay: Duration | None = ...,
        order: Order = ...,
        missing: Missing = ...,
        on_error: OnError = ...,
        poison: PoisonThen | Poison | None = ...,
    ) -> Streams: ...
    def keyed(
        self,
        by: str | Sequence[str],
        operator: Any,
        schema: Any = None,
        *,
        schemas: Schemas = (),
        name: str | None = None,
        on: str | None = None,
        delay: Duration | None = None,
        order: Order = "arrival",
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Stream | Streams:
        """Send the rows of each key through a Python operator on the executors, in the order of their positions:
        `clicks.keyed("user", Sessions, "user string, n long", name="sessions", on="at", delay=5)`.

        `operator`: a class derived from `holdfast.KeyedOperator`, or an instance. `schema`: what it makes. `on`: the
        timestamp column with the event time, for timers and lifetimes; `delay`: how far rows may lag behind the latest
        one; without them, the event time that the stream declared (`event_time`). A row that comes out has the place of the
        row it was made of; one that a timer made, just before that at which the watermark reached the timer.

        `schemas={"main": "…", "late": "…"}` instead of `schema`: it has several outputs; `main, late = rows.keyed(…)`, or
        `made["late"]`. What it returns leaves by the first, what it submits by the one it names: `self.submit(row, port="late")`.

        `order="event_time"`: the operator sees the rows of a key in the order of event time; each waits until the watermark
        has reached it, and late ones are left out and counted (as `sort(by=…)` before it would).

        A row must have the columns of `schema`; with `missing="null"` those that it does not name are null. With
        `on_error="stream"` a row or timer at which it raised is in `.errors` of the stream, and its key goes on without it.
        With `poison="quarantine"` so is a row that ends its worker process (`hf.Poison`).
        """
        if order not in ("arrival", "event_time"):
            raise TopologyError(f"order={order!r} is not known.", cure="Use 'arrival' or 'event_time'.")
        spec = keyed_spec(by, operator, schema, on, delay, missing, on_error, schemas, poison)
        if order == "arrival":
            made = self._then(spec, name, outputs=len(spec.ports))
        else:
            before = sort_spec(on, delay, None, by)
            ordered = self._then(before, None if name is None else f"{name}.order")
            declared = replace(spec, on=DECLARED, delay_us=None)
            made = ordered._then(declared, name, outputs=len(spec.ports))
        return made if schema is not None else Streams.made_by(made, spec.schemas, spec.names)

    def map_state(
        self,
        by: str | Sequence[str],
        fn: Callable[[Any, Any], Any],
        schema: Any,
        variables: Mapping[str, Variable],
        *,
        name: str | None = None,
        on: str | None = None,
        delay: Duration | None = None,
        order: Order = "arrival",
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Stream:
        """Apply `fn(row, state)` to each row, in the order of positions within its key; it gives a row, several, or None.

        `state` has the declared variables of the row's key as attributes:
        `prices.map_state("sym", rise, "sym string, rise double", {"last": holdfast.Value(float)}, name="rises")`."""
        return self.keyed(
            by,
            mapped_operator(fn, variables),
            schema,
            name=name,
            on=on,
            delay=delay,
            order=order,
            missing=missing,
            on_error=on_error,
            poison=poison,
        )
