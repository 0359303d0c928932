"""Events of rows that did not go the usual way: lost, repeated, left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.runtime.telling.run_event import RunEvent


@dataclass(frozen=True, slots=True)
class RowsLost(RunEvent):
    """Rows that each of `sinks` lacks from now on."""

    kind: ClassVar[str] = "rows.lost"
    element: str
    rows: int
    reason: str
    region: str | None = None
    sinks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowsRepeated(RunEvent):
    """Rows that an element of a region in mode `independent` had already, at most so many: after a death of the driver its sender
    stands behind it and sends them again."""

    kind: ClassVar[str] = "rows.repeated"
    element: str
    rows: int
    region: str | None = None
    sinks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RowsLeftOut(RunEvent):
    """Rows that are not where they belong. `rows` since the event before, `total` since the initial state."""

    kind: ClassVar[str] = "rows.left_out"
    element: str
    operator: str
    rows: int
    total: int


class RowsLate(RowsLeftOut):
    """They came too late for their windows."""

    kind: ClassVar[str] = "rows.late"


class RowsTimeless(RowsLeftOut):
    """They have no event time, belong to no window and have no place in an order."""

    kind: ClassVar[str] = "rows.without_time"


class RowsMalformed(RowsLeftOut):
    """A source could not read them."""

    kind: ClassVar[str] = "rows.malformed"


@dataclass(frozen=True, slots=True)
class RowsStale(RunEvent):
    """A restore removed rows from windows: others, which were missed, would have pushed them out."""

    kind: ClassVar[str] = "rows.stale"
    operator: str
    rows: int
    missed: tuple[int, ...]
    reason: str
