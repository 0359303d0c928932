"""From what tasks tell of windows to the notes of a log, and back: what the driver of an operator with eventual checkpoints decides.

No files, no clock: results and notes go to whoever keeps the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.operators.aggregates.eventual import DUE, MARKS, TellingLogic, windows_schema
from holdfast.operators.shared.logic import longs
from holdfast.operators.shared.recorder import Recorder
from holdfast.state.columns.hashing import HASH_COLUMN, owned
from holdfast.state.eventual import records
from holdfast.state.eventual.books import OpenWindows, Pace
from holdfast.state.eventual.records import BEFORE_ALL, KIND, NUMBER, Kind, Note, Position, Standing
from holdfast.state.eventual.scan import AFTER, BackwardScan, Restored, last_of


class WindowRecorder(Recorder[Restored]):
    """Of one aggregate. Used by one thread."""

    def __init__(self, logic: TellingLogic, pace: Pace, made: str) -> None:
        super().__init__(made)
        self.logic = logic
        self.windows = OpenWindows(pace)
        self._upto: Position = BEFORE_ALL

    # --- a step ---

    def asking(self, meta: Any, wall_us: int) -> Any:
        due = self.windows.due(self.logic.now(meta, wall_us))
        return {**(meta or {}), DUE: due.tolist()} if len(due) else meta

    def noted(
        self, told: Sequence[pa.Table], has_results: bool, stands: tuple[Standing, Standing],
        counts: Mapping[str, int], wall_us: int,
    ) -> list[bytes]:  # fmt: skip
        records_of_step, checks = told
        before, after = stands
        kinds = longs(records_of_step, KIND)
        reached = kinds == Kind.REACHED
        last = last_of(*(longs(records_of_step, name)[reached] for name in AFTER))
        self._upto = max(self._upto, last)
        marks = records_of_step.filter(pa.array(~reached))
        now_us = self.logic.now(after.meta, wall_us)
        heads = np.unique(self.logic.units.heads(checks))
        hashes = longs(checks, HASH_COLUMN)[heads]
        self.windows.note(marks, hashes, now_us, self.number + 1, self.logic.groups(marks))
        self.windows.close(self.logic.lowest(after.meta))
        if not (marks.num_rows or checks.num_rows or has_results):
            return []
        self.number += 1
        after = replace(after, meta=self.logic.to_store(after.meta))
        note = Note(
            self.number, self.made, self.windows.n_open, before, after, self._upto, counts, now_us, marks, checks
        )  # fmt: skip
        return records.encode(note)

    def first(self, stands: Standing) -> list[bytes]:
        marks, checks = (schema.empty_table() for schema in self.logic.outputs[MARKS:])
        self.number += 1
        return records.encode(
            Note(self.number, self.made, 0, stands, stands, self._upto, marks=marks, checks=checks)
        )

    @property
    def oldest_needed(self) -> int:
        return min(self.number, self.windows.oldest_noted)

    @property
    def oldest_replayed(self) -> int:
        """The number of the oldest note before whose step a replay could begin."""
        return min(self.number, self.windows.oldest_replayed)

    # --- a restore ---

    def scan(self, notes: Iterable[bytes]) -> Restored | None:
        scan = BackwardScan(self.logic.units)
        for part in self.parts(notes):
            if scan.feed(part):
                break
        return scan.result()

    def to_store(self, meta: Any) -> Any:
        return self.logic.to_store(meta)

    def resume(self, found: Restored | None) -> None:
        if found is None:
            self.number, self._upto = 0, BEFORE_ALL
            self.windows.forget()
            return
        self.number, self._upto = found.newest.number, found.newest.upto
        marks = found.windows
        kinds = np.where(longs(marks, KIND) == Kind.CLOSED, Kind.CLOSED, Kind.OPENED)
        groups = self.logic.groups(marks)
        groups = np.zeros(marks.num_rows, dtype=np.int64) if groups is None else groups
        numbers = longs(marks, NUMBER)
        self.windows.resume(longs(marks, HASH_COLUMN), kinds, numbers, groups, found.since_us, found.noted)

    def dealt_out(self, found: Restored, partition: int, partitions: int) -> tuple[pa.Table, pa.Table]:
        """(state rows, which window takes which rows) of one partition."""
        state = found.state.filter(pa.array(self._owned(found.state, partition, partitions)))
        names = windows_schema(self.logic.units).names
        windows = found.windows.filter(pa.array(self._owned(found.windows, partition, partitions)))
        return state, windows.select(names)

    def _owned(self, table: pa.Table, partition: int, partitions: int) -> Any:
        return owned(self.logic.key_hashes_of(table), partition, partitions)
