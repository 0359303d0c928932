"""The user's code at work: one instance takes the keys of a step in turn, each with its state, timers and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import OperatorFailed
from holdfast.language.operators.keyed_python import KeyedSpec
from holdfast.operators.python.dead_letters import Guard
from holdfast.operators.python.keeping import row_keeper
from holdfast.operators.python.places import Places, Where, with_places
from holdfast.operators.python.rows import Outbox, Row, rows_of
from holdfast.operators.python.user_errors import naming, short, told
from holdfast.state.columns.hashing import I64
from holdfast.state.variables.declarations import declared, use
from holdfast.state.variables.key_state import KeyState
from holdfast.state.windows.watermarks import is_closed


@dataclass(frozen=True, slots=True)
class Turn:
    """A key, its rows in the order of positions, and its stored state."""

    key: Any
    rows: list[int]
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A key's new state, None: none; and when it must be woken, if the index does not know that yet."""

    data: bytes | None
    wake: int | None


class Turns:
    """One step of one partition. `rows` and what `at` tells of them (event times, watermarks) are in the order of
    positions; `marks` are the watermarks before and after the step. `places`: where they are, if somebody orders by what
    comes out."""

    def __init__(
        self,
        operator: str,
        spec: KeyedSpec,
        rows: pa.Table,
        at: tuple[list[int], list[int]],
        marks: tuple[int | None, int],
        places: Places | None = None,
    ) -> None:
        self._operator = operator
        self._places = places
        self._last: int | None = None
        self._timed = spec.timers
        self._table = rows
        self._times, self._marks = at
        self._was, self._mark = marks
        self._outbox = _PlacedOutbox(operator, spec)
        with naming(f"operator {operator!r}, making it"):
            self._instance: Any = spec.make()
            self._instance._hf_submit = self._outbox.submit
            self._instance.open()
        self._variables = declared(type(self._instance))
        self._at_work: Row | None = None
        self._letters = spec.letters
        self._catches = spec.on_error == "stream"
        self._guarded: Guard[bytes] | None = None
        self._keep = row_keeper(rows.schema) if self._catches else None
        """Of rows that may have to be done again."""
        self._aside: list[list[_Placed]] = []
        self._batches = hasattr(self._instance, "process_batch")
        self._rows: list[Row] = [] if self._batches else list(rows_of(rows))
        if spec.on is not None:
            self._time_type = pa.timestamp("us", rows.schema.field(spec.on).type.tz)
            self._instance._hf_zoned = self._time_type.tz is not None

    def take(self, turns: Iterable[Turn]) -> Iterator[Answer]:
        """The answers of the keys, one by one."""
        for turn in turns:
            self._at_work = None
            try:
                answer = self._taken(turn)
            except Exception as error:
                known = told(f"operator {self._operator!r}, key {short(turn.key)}", error, self._at_work)
                if known is error:
                    raise
                raise known from error
            yield answer

    def put_aside(self, stamped: Sequence[bool]) -> None:
        """What left by each port so far becomes tables: as objects of Python's it takes many times the memory. `stamped`: with
        positions. Between two keys."""
        outputs = self._outbox.placed(stamped)
        if self._letters:
            places = list(self._outbox.failed_at)
            failed = self._outbox.take_failed()
            letters = with_places(failed, places) if stamped[-1] else failed
            outputs.append((letters, np.zeros(letters.num_rows, np.int64)))
        self._aside.append(outputs)

    def outputs(self) -> tuple[pa.Table, ...]:
        """What was put aside by each port, in the order of the rows that caused it; timers that no row caused come last. Behind it, if
        that was asked for, the rows that failed."""
        return tuple(map(_in_order, zip(*self._aside, strict=True)))

    def _taken(self, turn: Turn) -> Answer:
        state = KeyState(self._variables, turn.data, self._timed)
        self._instance._hf_key = state
        use(self._instance, state.lives)
        self._outbox.key, self._last = turn.key, None
        if self._batches and turn.rows:
            self._outbox.place = turn.rows[-1]
            table = self._table.take(pa.array(turn.rows))
            self._outbox.submit_all(self._instance.process_batch(table, turn.key))
        elif not self._batches:
            self._guard(state, turn)
            self._one_by_one(state, turn)
        self._fire(state, self._mark, turn.key, self._table.num_rows)
        dumped = state.dump(self._mark)
        return Answer(dumped.data, dumped.wake)

    def _one_by_one(self, state: KeyState, turn: Turn) -> None:
        clock, process = state.clock, self._instance.process

        def work(number: int) -> None:
            self._outbox.place = number
            if self._places is not None:
                self._outbox.where = self._places.rows[number]
            clock.time, clock.mark = self._times[number], self._marks[number]
            row = self._rows[number]
            self._outbox.submit_all(
                process(row if self._keep is None else type(row)(self._keep(row)), turn.key)
            )

        for number in turn.rows:
            if state.timers:
                self._fire(state, self._marks[number], turn.key, number)
            row = self._at_work = self._rows[number]
            if self._guarded is None:
                work(number)
            else:
                self._guarded.do(partial(work, number), row)
            self._at_work, self._last = None, number

    def _guard(self, state: KeyState, turn: Turn) -> None:
        """Rows and timers of a key may fail one by one, if that was asked for."""
        if self._catches:
            self._guarded = Guard(self._operator, self._outbox, state.saved, state.go_back)
            self._guarded.begin(turn.data or state.saved())

    def _fire(self, state: KeyState, mark: int, key: Any, place: int) -> None:
        """Call the timers that the watermark has reached, earliest first. At the end of time those that are set meanwhile
        are not called: one that sets the next would never come to an end."""
        last = state.timers[-1] if state.timers and is_closed(mark) else mark
        while state.timers and state.timers[0] <= last:
            at = state.timers[0]
            where = None if self._places is None else self._places.of_timer(at, self._last, self._was)
            if self._guarded is None:
                self._call(state, at, key, place, where)
            else:
                # Two pieces of work: a timer that fails is not called again.
                self._guarded.do(partial(state.clear_timer, at), None)
                self._guarded.do(partial(self._call, state, at, key, place, where), None)
        if is_closed(mark):
            state.timers.clear()

    def _call(self, state: KeyState, at: int, key: Any, place: int, where: Where | None) -> None:
        self._outbox.place, self._outbox.where = place, where
        state.clear_timer(at)
        # Not the watermark: it would tell at which row, or where in a step, the timer was found to be due.
        state.clock.time, state.clock.mark = at, max(at, state.clock.mark)
        state.firing = at
        moment = pa.scalar(at, self._time_type).as_py()
        self._outbox.submit_all(self._instance.on_timer(moment, key))
        state.firing = None


_Placed = tuple[pa.Table, I64]
"""Rows that left by a port, and which row of the step caused each."""


def _in_order(pieces: Sequence[_Placed]) -> pa.Table:
    order = np.argsort(np.concatenate([places for _, places in pieces]), kind="stable")
    return pa.concat_tables([table for table, _ in pieces]).take(pa.array(order))


class _PlacedOutbox(Outbox):
    """Remembers for every row which input row and which key caused it, and where that was."""

    def __init__(self, operator: str, spec: KeyedSpec) -> None:
        super().__init__(operator, spec.schemas, spec.missing, spec.names)
        self._alone = partial(Outbox, operator, spec.schemas, spec.missing, spec.names)
        self._caused: list[tuple[Any, Any, int | str]] = []
        self._places: list[list[tuple[int, Any]]] = [[] for _ in spec.schemas]
        self.place = 0
        self.key: Any = None

    def submit(self, item: Any, port: int | str = 0) -> int:
        count = super().submit(item, port)
        self._places[self.number_of(port)].extend([(self.place, self.where)] * count)
        self._caused.append((self.key, item, port))
        return count

    def mark(self) -> Any:
        return super().mark(), tuple(map(len, self._places)), len(self._caused)

    def check(self, mark: Any) -> None:
        super().check(mark[0])

    def back_to(self, mark: Any) -> None:
        super().back_to(mark[0])
        for places, count in zip(self._places, mark[1], strict=True):
            del places[count:]
        del self._caused[mark[2] :]

    def placed(self, stamped: Sequence[bool]) -> list[_Placed]:
        """What was submitted by each port; with positions where it is stamped. Empties the outbox."""
        try:
            tables = self.take()
        except OperatorFailed as error:
            raise self._with_key(error) from error
        places, self._places = self._places, [[] for _ in self._places]
        self._caused.clear()
        return [
            (
                with_places(table, [where for _, where in found]) if stamped[port] else table,
                np.asarray([place for place, _ in found], dtype=np.int64),
            )
            for port, (table, found) in enumerate(zip(tables, places, strict=True))
        ]

    def _with_key(self, error: OperatorFailed) -> OperatorFailed:
        """The same error with the key whose row does not fit: each row is tried by itself."""
        for key, item, port in self._caused:
            alone = self._alone()
            try:
                alone.submit(item, port)
                alone.take()
            except OperatorFailed as found:
                return OperatorFailed(f"key {short(key)}: {found.message}", cure=found.cure)
        return error
