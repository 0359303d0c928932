"""Verbs of `Stream` that remember rows to choose among them, order them or put them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import TopologyError
from holdfast.language.annotations import Duration
from holdfast.language.operators.barriers import barrier_spec
from holdfast.language.operators.expiry import dedup_spec
from holdfast.language.operators.ranking import top_n_spec
from holdfast.language.operators.sorting import sort_spec
from holdfast.language.operators.values import TimeWindow, Ttl
from holdfast.language.operators.windows import Delay
from holdfast.language.verbs import Verbs

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


class RowVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def dedup(self, by: str | Sequence[str], *, ttl: Ttl | None = None, name: str | None = None) -> Stream:
        """The first row of each key, in the order of the source: `orders.dedup("id", ttl=holdfast.ttl(3600, on="at"))`.

        The others are dropped and counted. Without `ttl` keys are remembered for ever; with it, the first row that
        comes after its key was forgotten passes again. Rows keep their positions.
        """
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
        key's list leave whenever a step has changed it: merge by key and rank. `by=[]`: all rows together.
        """
        return self._then(top_n_spec(n, by, order, window), name)

    def sort(
        self, on: str, *, delay: Delay = 0, idle: Duration | None = None, name: str | None = None
    ) -> Stream:
        """Rows in the order of the timestamp column `on`: `clicks.union(orders).sort("at", delay=5, name="sorted")`.

        A row leaves when the watermark has passed it: the largest time so far minus `delay`, with several sources the
        smallest of theirs; with `idle=30` without those that had no row for 30 s (see `holdfast.tumbling`). Rows of the
        same time are ordered by the names of their sources, then by position. Rows that come after the watermark has
        passed them are dropped and counted as late; rows without a time are left out. Rows that leave have an order of
        their own, so that whatever depends on it may follow. One partition does the work.
        """
        return self._then(sort_spec(on, delay, idle), name)

    def barrier(
        self, *streams: Stream, by: str | Sequence[str] | None = None, name: str | None = None
    ) -> Stream:
        """The k-th rows of this stream and of the others, side by side: `bids.barrier(asks, by="symbol", name="both")`.

        With `by`, columns that all streams have, the k-th rows of each key. A row waits until every stream has its
        row. Columns are those of all streams, the keys once; names that are taken get the number of their stream:
        price, price_2, price_3. Each stream comes from one source. Without `by` one partition does the work, and the
        rows that leave have the positions of this stream's rows.
        """
        if not streams:
            raise TopologyError("barrier() needs another stream.", cure="Write a.barrier(b).")
        return self._then(barrier_spec(by), name, beside=streams)
