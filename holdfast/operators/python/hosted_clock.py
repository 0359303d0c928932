"""Event time in an operator hosted in the driver: the watermark at each row that it processes, and at the rows that it makes.

The watermark of what it makes is that of its input: the smallest of all sources of all its data ports, which never falls. Rows
that it makes are numbered in their order, so the time beside them is a watermark and the number of the first row behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, TIMES
from holdfast.operators.shared.logic import longs
from holdfast.operators.shared.timed import TimedPort, furthest, stairs_of
from holdfast.state.columns.hashing import I64
from holdfast.state.keyed.expiry import LONG_AGO
from holdfast.state.windows.watermarks import is_closed, join_stairs

Strand = tuple[int, int]
"""An input port, and a source of its rows."""


@dataclass(frozen=True)
class Ahead:
    """What the rows of a batch and the times beside them will do to the clock: how far each strand is at each row, how
    far they all are behind the last one, and the rows at which the watermark rises."""

    reached: Mapping[Strand, I64]
    behind: Mapping[Strand, int]
    rows: int
    rises: Mapping[int, int] = field(default_factory=dict)


class Clock:
    """Of one operator, in its element's thread. What `stored` gives is part of the operator's state."""

    def __init__(self, ports: Mapping[int, TimedPort]) -> None:
        self._ports = ports
        self._strands: list[Strand] = [(port, n) for port, timed in ports.items() for n in timed.sources]
        self._reached: dict[Strand, int] = {}
        self._silent: dict[Strand, int] = {}
        self._now: int | None = None
        self.watermark = LONG_AGO

    # --- between runs ---

    def stored(self) -> dict[str, Any]:
        """Sources by name: their numbers are those of this run."""
        return {"watermark": self.watermark, "reached": self._by_name(self._reached),
                "silent": self._by_name(self._silent)}  # fmt: skip

    def restore(self, stored: Mapping[str, Any] | None) -> None:
        """None: from the beginning. While nobody ran, nobody was silent."""
        found = stored or {}
        self._reached, self._silent = (self._by_number(found.get(what, ())) for what in ("reached", "silent"))
        self.watermark, self._now = found.get("watermark", LONG_AGO), None

    def _by_name(self, known: Mapping[Strand, int]) -> list[list[Any]]:
        return sorted([port, self._ports[port].sources[n], us] for (port, n), us in known.items())

    def _by_number(self, stored: Sequence[Sequence[Any]]) -> dict[Strand, int]:
        known = {(port, name): us for port, name, us in stored}
        named = {strand: (strand[0], self._ports[strand[0]].sources[strand[1]]) for strand in self._strands}
        return {strand: known[name] for strand, name in named.items() if name in known}

    # --- at work ---

    def begin(self, now_us: int) -> None:
        """A step begins. Who says nothing in it has been silent since the one before."""
        passed = 0 if self._now is None else max(now_us - self._now, 0)
        self._now = now_us
        self._silent = {strand: self._silent.get(strand, 0) + passed for strand in self._strands}

    def ahead(self, port: int, rows: pa.Table, times: Sequence[pa.Table]) -> Ahead | None:
        """What a batch will do: its rows in the order of their positions, and the times beside them. None: a control port."""
        timed = self._ports.get(port)
        if timed is None:
            return None
        steps = pa.concat_tables([timed.own_stairs(rows), *map(stairs_of, times)])
        behind = {(port, source): time for source, time in furthest(steps).items()}
        self._silent.update(dict.fromkeys(behind, 0))
        sources, ordinals, numbers = (longs(rows, name) for name in POSITION_COLUMNS)
        at = np.maximum(join_stairs([steps], sources, ordinals, numbers), LONG_AGO)
        reached = {
            (port, n): np.maximum(
                np.maximum.accumulate(np.where(sources == n, at, LONG_AGO)),
                self._reached.get((port, n), LONG_AGO),
            )
            for n in timed.sources
        }
        ahead = Ahead(reached, behind, rows.num_rows)
        marks = self._marks(ahead)
        before = np.concatenate(([self.watermark], marks[:-1]))
        return Ahead(
            reached, behind, rows.num_rows, {int(n): int(marks[n]) for n in np.flatnonzero(marks > before)}
        )

    def pass_by(self, ahead: Ahead, done: int) -> bool:
        """The first `done` rows were processed: all of them, or as many as there was time for. Whether there is something
        to tell about time behind the last row: `rises` do not. That time has come to its end is told again and again."""
        if done:
            self.watermark = int(self._marks(ahead)[done - 1])
            self._reached.update({strand: int(at[done - 1]) for strand, at in ahead.reached.items()})
        if done < ahead.rows:
            return False
        for strand, time in ahead.behind.items():
            self._reached[strand] = max(time, self._reached.get(strand, LONG_AGO))
        mark = int(self._marks(Ahead({}, {}, 1))[0])
        risen, self.watermark = mark > self.watermark, mark
        return risen or is_closed(mark)

    def _marks(self, ahead: Ahead) -> I64:
        """The watermark at each row: the smallest of all who are not idle."""
        waited_for = [strand for strand in self._strands if not self._is_idle(strand)]
        marks = np.full(ahead.rows, np.iinfo(np.int64).max if waited_for else LONG_AGO)
        for port, source in waited_for:
            reached = ahead.reached.get((port, source), self._reached.get((port, source), LONG_AGO))
            np.minimum(marks, reached - self._ports[port].delays[source], out=marks)
        return np.maximum.accumulate(np.maximum(marks, self.watermark))

    def _is_idle(self, strand: Strand) -> bool:
        idle_us = self._ports[strand[0]].idle_us
        return idle_us is not None and self._silent.get(strand, 0) >= idle_us


def times_beside(source: int, first: int, came: Sequence[tuple[int, int]]) -> pa.Table:
    """Times beside rows that are numbered from `first`. `came`: how many of them there were when a watermark was reached."""
    places = [(source, 0, first + rows, mark) for rows, mark in came]
    return pa.table([list(column) for column in zip(*places, strict=True)] or [[]] * 4, schema=TIMES)
