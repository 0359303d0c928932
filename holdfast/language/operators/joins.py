"""Joins: `a.join(b, by="k", within=10, on="at")`, `a.join(b, by="k", keep=hf.latest(rows=1000))`,
`a.asof_join(b, by="k", on="at")`.

Output rows have all columns of the left stream, then those of the right without its keys; names that both have get a
suffix on the right. Null keys are equal to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.durations import Duration
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import Spec
from holdfast.language.hints import renamed
from holdfast.language.operators.columns import column_type
from holdfast.language.operators.event_time import DECLARED, Delay, UsesTime, delays_us, idle_us, micros
from holdfast.language.operators.values import Delays, Latest

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

By = str | Sequence[str] | Mapping[str, str]
"""Key columns; a mapping where they have other names on the right: {"user": "customer"}."""

On = str | tuple[str, str]
"""The column of the event time; two names where they differ: (left, right)."""

How = Literal["inner", "left"]

Within = Duration | tuple[Duration, Duration]


@dataclass(frozen=True, slots=True)
class IntervalMatch:
    """The right row's time is at least the left's minus `before_us`, and at most the left's plus `after_us`."""

    before_us: int
    after_us: int

    def __str__(self) -> str:
        return f"from {self.before_us / 1e6:g} s before to {self.after_us / 1e6:g} s after"


@dataclass(frozen=True, slots=True)
class WindowMatch:
    """A row meets what the other stream keeps at that moment."""

    left: Latest
    right: Latest

    def __str__(self) -> str:
        return f"left keeps {self.left}, right keeps {self.right}"


@dataclass(frozen=True, slots=True)
class AsofMatch:
    """A left row meets the latest right row that is not later; `exact`: one of the same time will do."""

    tolerance_us: int | None
    exact: bool

    def __str__(self) -> str:
        reach = "" if self.tolerance_us is None else f", at most {self.tolerance_us / 1e6:g} s older"
        return f"latest not later{reach}"


@dataclass(frozen=True, slots=True)
class JoinSpec(Spec, UsesTime):
    """Rows of two streams with equal keys. `on`: the event times of left and right; None: in the order of arrival.
    `where`: a function of output rows, or an expression of Arrow. `how="left"`: left rows without a match come out."""

    left_by: tuple[str, ...]
    right_by: tuple[str, ...]
    match: IntervalMatch | WindowMatch | AsofMatch
    on: tuple[str, str] | None
    delays_us: Delays = (("", 0),)
    how: Literal["inner", "left"] = "inner"
    where: Any = None
    suffix: str = "_right"
    idle_us: int | None = None
    """As in windows."""

    def times(self) -> tuple[str, ...]:
        return () if self.on is None else self.on

    def follows(self) -> bool:
        return self.on is not None and not self.delays_us

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> JoinSpec:
        if self.on is None:
            return self
        named = replace(self, on=(columns[0], columns[1]))
        return named if delays is None else replace(named, delays_us=delays, idle_us=self.idle_us or idle_us)


def latest(size: Duration | None = None, *, rows: int | None = None, per_key: bool = False) -> Latest:
    """What a stream keeps in a join: its last `rows` rows, or those of the last `size` seconds of event time.

    `rows=0` keeps nothing: the stream's rows meet what the other keeps and are gone. `per_key`: the last rows of each key."""
    if (size is None) == (rows is None):
        raise TopologyError(
            "latest() takes a time or a number of rows.", cure="Write latest(10) or latest(rows=1000)."
        )
    if size is not None:
        if per_key:
            raise TopologyError("per_key goes with rows=: time passes for all keys.", cure="Leave it out.")
        return Latest(None, micros(size, "size"))
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
        raise TopologyError(f"rows={rows!r} is no number of rows.", cure="Give 0 or more.")
    return Latest(rows, None, per_key)


def interval_match(within: Within) -> IntervalMatch:
    """Rows at most `within` apart."""
    ends = within if isinstance(within, tuple) else (within, within)
    if len(ends) != 2:
        raise TopologyError(f"within={within!r} has not two ends.", cure="Write within=(before, after).")
    before, after = (micros(end, "within", zero=True) for end in ends)
    return IntervalMatch(before, after)


def window_match(window: Latest | None, other: Latest | None) -> WindowMatch:
    """Rows that the other stream keeps."""
    windows = (window or Latest(0, None), other or Latest(0, None))
    for given in windows:
        if not isinstance(given, Latest):
            raise TopologyError(f"{given!r} does not say what a join keeps.", cure="Use holdfast.latest(…).")
    if all(given.rows == 0 for given in windows):
        raise TopologyError("Nothing is kept on either side: nothing would meet.", cure="Give keep=.")
    return WindowMatch(*windows)


def asof_match(tolerance: Duration | None, exact: bool) -> AsofMatch:
    """The latest row that is not later."""
    reach = None if tolerance is None else micros(tolerance, "tolerance", zero=True)
    return AsofMatch(reach, bool(exact))


def join_spec(
    match: IntervalMatch | AsofMatch | WindowMatch,
    by: By,
    on: On | None,
    delay: Delay | None = None,
    how: str = "inner",
    where: Any = None,
    suffix: str = "_right",
    idle: Duration | None = None,
) -> JoinSpec:
    """The spec of a join; refuses what can be refused without knowing the columns."""
    left, right = _keys(by)
    in_order_of_arrival = isinstance(match, WindowMatch) and on is None
    if isinstance(match, WindowMatch):
        _check_windows((match.left, match.right), left, on, how, idle)
    elif how not in ("inner", "left"):
        cure = "Use 'inner' or 'left'."
        if isinstance(how, str) and how.lower().startswith("right"):
            cure = "Let the other stream begin: b.join(a, …, how='left') keeps what a.join(b, …, how='right') would."
        raise TopologyError(f"how={how!r} is not known.", cure=cure)
    names = (on, on) if isinstance(on, str) else on
    named = isinstance(names, tuple) and len(names) == 2 and all(isinstance(n, str) and n for n in names)
    if on is None and not in_order_of_arrival:
        names = (DECLARED, DECLARED)
    elif not named and not in_order_of_arrival:
        raise TopologyError(
            f"on={on!r} does not name the event time.",
            cure="Write on='at', or on=('at', 'time') if they differ.",
        )
    outer: Literal["inner", "left"] = "left" if how == "left" else "inner"
    delays = (("", 0),) if in_order_of_arrival else delays_us(delay)
    return JoinSpec(left, right, match, names, delays, outer, _where(where), _suffix(suffix), idle_us(idle))


def _check_windows(
    windows: tuple[Latest, Latest], keys: Sequence[str], on: On | None, how: str, idle: Duration | None
) -> None:
    """What goes with rows that are kept."""
    if on is None and any(window.size_us is not None for window in windows):
        raise TopologyError(
            "What keeps rows for a time needs on=.", cure="Name the column of the event time."
        )
    if how != "inner":
        raise TopologyError(f"how={how!r} does not go with keep=.", cure="Use within=, or how='inner'.")
    if any(window.per_key for window in windows) and not keys:
        raise TopologyError("per_key needs keys.", cure="Name them in by=.")
    if on is None and idle is not None:
        raise TopologyError(
            "idle= needs on=: in the order of arrival nobody waits.", cure="Leave it out, or give on='at'."
        )


def _keys(by: By) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(by, Mapping):
        left, right = tuple(by), tuple(by.values())
    else:
        left = right = (by,) if isinstance(by, str) else tuple(by)
    for names in (left, right):
        if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
            raise TopologyError(
                f"by={by!r} does not name key columns.", cure="Write by='user', or by={'user': 'customer'}."
            )
    return left, right


def _where(where: Any) -> Any:
    if where is None or callable(where) or isinstance(where, pc.Expression):
        return where
    raise TopologyError(
        f"where={where!r} cannot choose rows.",
        cure="Give a function of an Arrow table that returns booleans, or an expression such as"
        " pyarrow.compute.field('price') < pyarrow.compute.field('limit'); SQL goes into a filter() behind.",
    )


def _suffix(suffix: str) -> str:
    if not isinstance(suffix, str) or not suffix:
        raise TopologyError(f"suffix={suffix!r} is no suffix.", cure="Write suffix='_right'.")
    return suffix


# --- columns ----------------------------------------------------------------------------------------------------------


def join_schema(left: pa.Schema, right: pa.Schema, spec: JoinSpec) -> pa.Schema:
    """Columns that come out; refuses keys and event times that are not there or do not fit."""
    for mine, other in zip(spec.left_by, spec.right_by, strict=True):
        kinds = (column_type(left, mine, " on the left"), column_type(right, other, " on the right"))
        if kinds[0] != kinds[1]:
            raise TopologyError(
                f"The key is of type {kinds[0]} on the left ({mine!r}) and {kinds[1]} on the right ({other!r}).",
                cure="Cast one of them before: with_columns(k='cast(k as bigint)').",
            )
    if spec.on is not None:
        for schema, name, side in ((left, spec.on[0], "left"), (right, spec.on[1], "right")):
            kind = column_type(schema, name, f" on the {side}")
            if not pa.types.is_timestamp(kind):
                raise TopologyError(
                    f"The event time {name!r} on the {side} is of type {kind}.",
                    cure='Name a timestamp column in on=; make one with with_columns(at="cast(… as timestamp)").',
                )
    taken = set(left.names)
    fields = list(left)
    for name in right_names(right, spec):
        field = right.field(name).with_nullable(right.field(name).nullable or spec.how == "left")
        chosen = name if name not in taken else f"{name}{spec.suffix}"
        if chosen in taken:
            raise TopologyError(
                f"There would be two columns called {chosen!r}.", cure="Rename one before, or give suffix=."
            )
        taken.add(chosen)
        fields.append(field.with_name(chosen))
    return pa.schema(fields)


def right_names(right: pa.Schema, spec: JoinSpec) -> tuple[str, ...]:
    """The columns of the right stream that come out: the left ones tell the keys."""
    return tuple(name for name in right.names if name not in spec.right_by)


class JoinVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def join(
        self,
        other: Stream,
        by: By,
        *,
        within: Within | None = None,
        keep: Latest | None = None,
        other_keep: Latest | None = None,
        on: On | None = None,
        delay: Delay | None = None,
        how: How = "inner",
        where: Any = None,
        suffix: str = "_right",
        idle: Duration | None = None,
        name: str | None = None,
        window: Latest | None = None,
        other_window: Latest | None = None,
    ) -> Stream:
        """Rows of this stream and of another with equal keys, side by side. One of two kinds:

        `join(other, by="user", within=10, on="at")`: event times at most 10 s apart; `within=(5, 60)`: the other from
        5 s before to 60 s after. `how="left"` also gives rows that met nobody, once nobody can come any more.

        `join(other, by="user", keep=holdfast.latest(rows=1000), other_keep=holdfast.latest(rows=0))`: each row
        meets the rows that the other stream keeps at that moment. With `on=` the two streams run in the order of event
        time; without, as they arrive. `where` (a function of an Arrow table giving booleans, or an Arrow expression)
        chooses among the pairs. `keep=` is what this stream keeps, `other_keep=` what the other does; nothing if left out.

        `idle=30`: nobody waits for a source that had no row for 30 s; see `holdfast.tumbling`."""
        if window is not None:
            renamed("window= of a join", "keep=")
            keep = keep or window
        if other_window is not None:
            renamed("other_window= of a join", "other_keep=")
            other_keep = other_keep or other_window
        if within is not None:
            if keep is not None or other_keep is not None:
                raise TopologyError(
                    "within= does not go with what a join keeps.", cure="Give within=, or keep=."
                )
            spec = join_spec(interval_match(within), by, on, delay, how, where, suffix, idle)
            return self._then(spec, name, beside=(other,))
        if keep is None and other_keep is None:
            raise TopologyError(
                "A join needs to know how long rows wait for each other.",
                cure="Give within=10, on='at'; or keep=holdfast.latest(rows=1000).",
            )
        spec = join_spec(window_match(keep, other_keep), by, on, delay, how, where, suffix, idle)
        return self._then(spec, name, beside=(other,))

    def asof_join(
        self,
        other: Stream,
        by: By,
        *,
        on: On | None = None,
        tolerance: Duration | None = None,
        exact: bool = True,
        delay: Delay | None = None,
        how: How = "left",
        where: Any = None,
        suffix: str = "_right",
        idle: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """Each row with the other stream's latest row of its key that is not later: `trades.asof_join(quotes,
        by="ticker", on="at")`. `tolerance`: how much older at most; `exact=False`: really earlier. Rows that find
        nothing come out with nulls, or not at all with `how="inner"`. A row waits until the other stream's watermark
        has passed it; with `idle=30` not for a source that had no row for 30 s (see `holdfast.tumbling`)."""
        spec = join_spec(asof_match(tolerance, exact), by, on, delay, how, where, suffix, idle)
        return self._then(spec, name, beside=(other,))
