"""From the steps of a window join to the notes of its log, and back. No files, no clock: results and notes go to whoever keeps the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.operators.joins.eventual import rows_of
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.shared.recorder import Recorder
from holdfast.state.columns.hashing import HASH_COLUMN, I64
from holdfast.state.eventual import records
from holdfast.state.eventual.books import OpenWindows, Pace
from holdfast.state.eventual.joins import FoundJoin, JoinScan, JoinWindowPlaces, Place
from holdfast.state.eventual.records import BEFORE_ALL, KIND, NEW, NUMBER, JoinWindow, Kind, Note, Standing

NOTHING = pa.table({})


class JoinRecorder(Recorder[FoundJoin]):
    """Of one join. Sources are a list: of the left stream, of the right one. Used by one thread."""

    def __init__(self, logic: WindowJoin, pace: Pace, made: str) -> None:
        super().__init__(made)
        self._sizes = {side: window.rows for side, window in enumerate(logic.windows) if window.rows}
        self._books = OpenWindows(pace)
        self._due: list[int] = []
        self._stands: list[Any] = [None, None]
        """The sources' snapshots behind the newest note."""
        self._forget()

    def _forget(self) -> None:
        self._books.forget()
        self.windows = {side: JoinWindowPlaces(size) for side, size in self._sizes.items()}

    # --- a step ---

    def asking(self, meta: Any, wall_us: int) -> Any:
        self._due = self._books.due(wall_us).tolist()
        return meta

    def noted(
        self, told: Sequence[pa.Table], has_results: bool, stands: tuple[Standing, Standing],
        counts: Mapping[str, int], wall_us: int,
    ) -> list[bytes]:  # fmt: skip
        before, after = stands
        had, has = rows_of(before.meta), rows_of(after.meta)
        found: list[JoinWindow] = []
        for side, window in self.windows.items():
            window.passed(Place(had[side], before.source[side]), has[side])
            if side in self._due or (window.told is None and has[side]):
                found.append(window.tell(side, has[side]))
        if not (found or has_results):
            return []
        opened = [each.side for each in found if each.kind == Kind.OPENED]
        checked = [each.side for each in found if each.kind == Kind.CHECKED]
        self._books.note(_opened(opened), np.array(checked, dtype=np.int64), wall_us, self.number + 1)
        self.number += 1
        self._stands = after.source
        return self._encoded(before, after, counts, wall_us, tuple(found))

    def first(self, stands: Standing) -> list[bytes]:
        self.number += 1
        self._stands = stands.source
        return self._encoded(stands, stands, {}, 0, ())

    def _encoded(
        self, before: Standing, after: Standing, counts: Mapping[str, int], now_us: int, found: tuple[JoinWindow, ...]
    ) -> list[bytes]:  # fmt: skip
        n_open = self._books.n_open
        note = Note(
            self.number, self.made, n_open, before, after, BEFORE_ALL, counts, now_us, NOTHING, NOTHING, found
        )  # fmt: skip
        return records.encode(note)

    @property
    def oldest_needed(self) -> int:
        return min(self.number, self._books.oldest_noted)

    @property
    def held(self) -> list[Any]:
        """From where on each source is needed: a replay would begin there, or a run go on."""
        told = [None if side not in self.windows else self.windows[side].told for side in (0, 1)]
        return [
            stands if place is None else place.source
            for place, stands in zip(told, self._stands, strict=True)
        ]

    # --- a restore ---

    def scan(self, notes: Iterable[bytes]) -> FoundJoin | None:
        scan = JoinScan()
        for part in self.parts(notes):
            if scan.feed(part):
                break
        return scan.result()

    def resume(self, found: FoundJoin | None) -> None:
        self._forget()
        self.number = 0 if found is None else found.newest.number
        if found is None:
            return
        self._stands = found.newest.after.source
        for side, (window, _, _) in found.windows.items():
            self.windows[side].resume(Place(window.rows, window.source))
        columns = [(side, number, now_us) for side, (_, number, now_us) in sorted(found.windows.items())]
        sides, noted, since = (_longs([column[n] for column in columns]) for n in range(3))
        self._books.resume(sides, sides * 0 + Kind.OPENED, sides * 0, sides * 0, since, noted)


def _opened(sides: Sequence[int]) -> pa.Table:
    """As the books want it; a window is known by its side."""
    hashes = _longs(sides)
    return pa.table(
        {HASH_COLUMN: hashes, KIND: hashes * 0 + Kind.OPENED, NUMBER: hashes * 0, NEW: hashes >= 0}
    )


def _longs(values: Sequence[int]) -> I64:
    return np.array(values, dtype=np.int64)
