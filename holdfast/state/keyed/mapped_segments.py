"""The segments this process has mapped, kept from step to step.

A worker process serves many steps. Mapped anew each time, a segment would be parsed again and every page that a look-up
touches would fault again. What must hold:
- A segment is known by path and checksum, so that other bytes under the same path are never taken for it.
- At most `MOST` segments are kept; the one unused for longest goes first.
- A removed file's blocks are freed when the last map goes: segments that a step drops are forgotten at once, those that
  vanish otherwise (another process took over the partition) within a few steps of this one.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.sorted_rows import SortedRows
from holdfast.state.keyed.segment import Segment, open_segment

MOST = 1024
_LOOKED_AT = 64
"""So many entries are looked at per step: does their file still exist?"""

_Key = tuple[str, int]


class _Rows(Protocol):
    @property
    def table(self) -> pa.Table: ...


Rows = TypeVar("Rows", bound=_Rows)


class _Entry(NamedTuple):
    rows: Any
    schema: pa.Schema
    """The schema object that was last found equal: comparing again would cost more than the rest."""


class OpenedSegments:
    """A cache of mapped segments. Any thread may call it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._unchecked: list[_Key] = []
        self._asked: tuple[pa.Schema, pa.Schema] = (None, None)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, segment: Segment, schema: pa.Schema) -> SortedRows:
        """The rows of a segment of a keyed map."""
        return self.get_as(segment, schema, SortedRows)

    def get_as(self, segment: Segment, schema: pa.Schema, make: Callable[[pa.Table], Rows]) -> Rows:
        """What `make` makes of the segment's rows, mapped now unless they are already. The segment is not empty; it is
        always asked for with the same `make`."""
        key = (segment.path, segment.crc)
        schema = self._known(schema)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                if entry.schema is schema:
                    known: Rows = entry.rows
                    return known
        table = open_segment(segment.path) if entry is None else entry.rows.table
        if not table.schema.equals(schema):
            raise _other_columns(segment, table.schema, schema)
        rows: Rows = make(table) if entry is None else entry.rows
        with self._lock:
            self._entries[key] = _Entry(rows, schema)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return rows

    def _known(self, schema: pa.Schema) -> pa.Schema:
        """An equal schema that was asked for before: a task brings its own object, but the same one for all segments."""
        asked, known = self._asked
        if asked is schema:
            return known
        if known is None or not known.equals(schema):
            known = schema
        self._asked = (schema, known)
        return known

    def forget(self, segments: Iterable[Segment]) -> None:
        """These are no longer needed."""
        with self._lock:
            for segment in segments:
                self._entries.pop((segment.path, segment.crc), None)

    def forget_vanished(self) -> None:
        """Look at the next few entries, in turn, and drop those whose file has gone."""
        with self._lock:
            if not self._unchecked:
                self._unchecked = list(self._entries)
            looked_at, self._unchecked = self._unchecked[:_LOOKED_AT], self._unchecked[_LOOKED_AT:]
        gone = [key for key in looked_at if not os.path.exists(key[0])]
        with self._lock:
            for key in gone:
                self._entries.pop(key, None)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


OPENED = OpenedSegments()
"""The segments of this process. A forked child starts with its parent's maps, which are as good as its own."""


def opened(segment: Segment, aggregation: Aggregation) -> SortedRows:
    """The rows of a segment. StateError if it was made with other aggregates or types."""
    return OPENED.get(segment, aggregation.state_schema)


def _other_columns(segment: Segment, found: pa.Schema, wanted: pa.Schema) -> StateError:
    return StateError(
        f"the segment {segment.name} has columns {found.names}, the operator wants {wanted.names}.",
        cure="Restore with the aggregates and types it was made with, or start from an empty store.",
    )
