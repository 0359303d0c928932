"""The verbs of `Stream` that bring two streams together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import TopologyError
from holdfast.language.annotations import Duration
from holdfast.language.operators.joins import (
    By,
    On,
    Within,
    asof_match,
    interval_match,
    join_spec,
    window_match,
)
from holdfast.language.operators.values import Latest
from holdfast.language.operators.windows import Delay
from holdfast.language.verbs import Verbs

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


class JoinVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def join(
        self,
        other: Stream,
        by: By,
        *,
        within: Within | None = None,
        window: Latest | None = None,
        other_window: Latest | None = None,
        on: On | None = None,
        delay: Delay = 0,
        how: str = "inner",
        where: Any = None,
        suffix: str = "_right",
        idle: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """Rows of this stream and of another with equal keys, side by side. One of two kinds:

        `join(other, by="user", within=10, on="at")`: event times at most 10 s apart; `within=(5, 60)`: the other from
        5 s before to 60 s after. `how="left"` also gives rows that met nobody, once nobody can come any more.

        `join(other, by="user", window=holdfast.latest(rows=1000), other_window=holdfast.latest(rows=0))`: each row
        meets the rows that the other stream keeps at that moment. With `on=` the two streams run in the order of event
        time; without, as they arrive. `where` (a function of an Arrow table giving booleans, or an Arrow expression)
        chooses among the pairs.

        `idle=30`: nobody waits for a source that had no row for 30 s; see `holdfast.tumbling`.
        """
        if within is not None:
            if window is not None or other_window is not None:
                raise TopologyError(
                    "within= does not go with windows of a join.", cure="Give within=, or window=."
                )
            spec = join_spec(interval_match(within), by, on, delay, how, where, suffix, idle)
            return self._then(spec, name, beside=(other,))
        if window is None and other_window is None:
            raise TopologyError(
                "A join needs to know how long rows wait for each other.",
                cure="Give within=10, on='at'; or window=holdfast.latest(rows=1000).",
            )
        spec = join_spec(window_match(window, other_window), by, on, delay, how, where, suffix, idle)
        return self._then(spec, name, beside=(other,))

    def asof_join(
        self,
        other: Stream,
        by: By,
        *,
        on: On,
        tolerance: Duration | None = None,
        exact: bool = True,
        delay: Delay = 0,
        how: str = "left",
        where: Any = None,
        suffix: str = "_right",
        idle: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """Each row with the other stream's latest row of its key that is not later: `trades.asof_join(quotes,
        by="ticker", on="at")`. `tolerance`: at most so much older; `exact=False`: really earlier. Rows that find
        nothing come out with nulls, or not at all with `how="inner"`. A row waits until the other stream's watermark
        has passed it; with `idle=30` not for a source that had no row for 30 s (see `holdfast.tumbling`).
        """
        spec = join_spec(asof_match(tolerance, exact), by, on, delay, how, where, suffix, idle)
        return self._then(spec, name, beside=(other,))
