"""How aggregates are asked for: `stream.aggregate("user", n=hf.count())`, or, as in PySpark,
`stream.group_by("user").agg(n=hf.count())`. Both make the same operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast.errors import TopologyError
from holdfast.language import hints
from holdfast.language.builder import Verbs
from holdfast.language.operators.aggregates import Aggregate, aggregate_spec, window_spec
from holdfast.language.operators.rows import checked_ttl
from holdfast.language.operators.values import EventWindow, RowWindow, Ttl

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

Emit = Literal["changes", "each"]


class AggregateVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def aggregate(
        self,
        by: str | Sequence[str],
        emit: Emit = "changes",
        *,
        window: EventWindow | RowWindow | None = None,
        late: bool = False,
        ttl: Ttl | None = None,
        name: str | None = None,
        aggregates: Mapping[str, Aggregate] | None = None,
        **more: Aggregate,
    ) -> Stream:
        """Aggregates per key: `aggregate("user", n=holdfast.count(), total=holdfast.sum("amount"))`. Columns that are
        called like an argument go into a mapping: `aggregate("user", aggregates={"name": holdfast.last("name")})`.

        Without a window they run on for ever: `emit="changes"` gives one row per changed key and step, to be merged by
        key; `emit="each"` one per input row. With `window=holdfast.tumbling(60, on="at")` (or `sliding`) each window
        gives one row per key when it is complete, with window_start and window_end; `by=[]` is one key for all rows. So does
        each session of a key with `window=holdfast.session("30 minutes")`. With `late=True` the rows that came too late
        for it are a stream of their own: `.late` of what is returned.
        With `window=holdfast.tumbling(rows=100)` (or `sliding`) a window is
        rows of one key in the order of their positions, and window_rows tells how many the key had so far; so are those of
        `holdfast.tumbling(delta=10, of="mileage")` and `holdfast.tumbling(until="is_end")`.

        Without a window `ttl=holdfast.ttl(3600, on="at")` forgets keys that had no row for an hour: the next row of
        such a key starts afresh."""
        chosen = together(aggregates, more)
        if window is None:
            if late:
                raise TopologyError("late=True needs a window.", cure="Give window=holdfast.tumbling(…).")
            return self._then(aggregate_spec(by, emit, chosen, checked_ttl(ttl)), name)
        if ttl is not None:
            raise TopologyError(
                "ttl= does not go with a window, which is forgotten when it is complete.",
                cure="Leave it out.",
            )
        return self._then(window_spec(by, emit, window, late, chosen), name, outputs=1 + bool(late))

    def group_by(self, *columns: str | Sequence[str]) -> Grouped:
        """The keys of an aggregate: `orders.group_by("customer").agg(n=holdfast.count())`. No columns: all rows are
        one group, which needs a window."""
        names: list[Any] = []
        for given in columns:
            names.extend([given] if isinstance(given, str) or not isinstance(given, Sequence) else given)
        return Grouped(self, tuple(names))


@dataclass(frozen=True, slots=True)
class Grouped:
    """A stream and the keys its rows are grouped by; `agg` makes the operator."""

    _stream: AggregateVerbs
    by: tuple[str, ...]

    def agg(
        self,
        aggregates: Mapping[str, Aggregate] | None = None,
        /,
        *,
        emit: Emit = "changes",
        window: EventWindow | RowWindow | None = None,
        late: bool = False,
        ttl: Ttl | None = None,
        name: str | None = None,
        **more: Aggregate,
    ) -> Stream:
        """`agg(n=holdfast.count())`, or `agg({"name": holdfast.last("name")})` for columns that are called like an argument.
        The arguments are those of `Stream.aggregate`."""
        chosen = together(aggregates, more)
        return self._stream.aggregate(
            self.by, emit, window=window, late=late, ttl=ttl, name=name, aggregates=chosen
        )

    if not TYPE_CHECKING:  # a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> Any:
            raise hints.no_such_name("What group_by() returns", name, hints.GROUPED, ["agg", "by"])


def together(mapping: Any, named: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Aggregates given as a mapping and by name; refuses a column that is given twice."""
    if mapping is not None and not isinstance(mapping, Mapping):
        raise TopologyError(
            f"{mapping!r} is no mapping of columns to aggregates.",
            cure='Write {"name": holdfast.count()}, or name the columns: n=holdfast.count().',
        )
    twice = [name for name in mapping or () if name in named]
    if twice:
        raise TopologyError(
            f"The aggregate {twice[0]!r} is given twice.", cure="Give it in the mapping or by name."
        )
    return {**(mapping or {}), **named}
