"""Rows of one batch at a Python operator in the driver whose rows may fail one by one: `on_error="stream"`, `poison=`.

What a row raises `Guard` deals with, in the thread of the user's code. A row that hangs keeps that thread: the element's thread sees it,
leaves it behind with its instance, and another instance goes on from the state before the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import WorkerDied
from holdfast.operators.python.dead_letters import Guard
from holdfast.operators.python.keeping import row_keeper
from holdfast.operators.python.rows import Row, rows_of
from holdfast.operators.python.user_errors import told
from holdfast.runtime.links.connection import Interrupted

if TYPE_CHECKING:
    from holdfast.runtime.runs.hosted.hosted_work import HostedWork


class LeftBehind(BaseException):
    """Raised in a thread that hung and has come back: others have gone on without it."""


class GuardedRows:
    """`call` is used by the element's thread, `work` by that of the user's code. A large state is not remembered: it stays as a row that raised
    left it, and a row that hangs, or is to be tried again, fails the step."""

    def __init__(
        self, run: HostedWork, table: pa.Table, port: int, deadline: float | None, rises: Mapping[int, int]
    ) -> None:
        self._run = run
        self._rows, self._port = rows_of(table), port
        self._keep = row_keeper(table.schema)
        self._deadline, self._rises = deadline, rises
        self._limit_s = None if run.poison is None else run.poison.timeout_s
        self._guard: Guard[bytes] | None = None
        self._life = 0
        self._row: Row | None = None
        self._began: float | None = None
        self._done = 0

    def call(self, alone: Callable[[], int]) -> int:
        """Let the user's code work at the rows, by another instance if one hangs."""
        while True:
            try:
                return self._run.called("process()", alone, lambda: self._run.give_up() or self._hangs())
            except Interrupted:
                if self._run.give_up() or not self._hangs():
                    raise
                self._go_on_without()

    def _hangs(self) -> bool:
        began = self._began
        return None not in (self._limit_s, began) and time.monotonic() - (began or 0) > (self._limit_s or 0)

    def _go_on_without(self) -> None:
        assert self._guard is not None
        self._life += 1
        self._began = None
        late = WorkerDied.after(self._limit_s or 0.0)
        verdict = self._run.failures.note(self._row, late)
        if verdict == "park" or not self._guard.is_known():
            failures = self._run.failures
            error = failures.found(late) if verdict == "park" else failures.counted(self._row, late)
            raise told(f"operator {self._run.name!r}, process()", error, self._row) from late
        self._run.make_another(self._guard.left())

    def work(self) -> int:
        """Rows one by one, from where it stands; returns how many are done, in all."""
        guard, run, life = self._guard, self._run, self._life
        if guard is None:
            guard = self._guard = run.new_guard()
        elif life:
            guard.go_on()
        while (row := self._row or next(self._rows, None)) is not None:
            if self._row is None and self._done in self._rises:
                run.time_came(self._rises[self._done])  # whatever becomes of the row
            self._row, self._began = run.at_work(row), time.monotonic()
            guard.do(partial(self._one, row), row)
            self._row = self._began = None
            self._done += 1
            if self._deadline is not None and (time.monotonic() >= self._deadline or run.stops_here()):
                break
        return self._done

    def _one(self, row: Row) -> None:
        life = self._life
        # Not the row itself, if it can be changed: it may have to be done again.
        self._run.process_one(row if self._keep is None else type(row)(self._keep(row)), self._port)
        if life != self._life:
            raise LeftBehind
