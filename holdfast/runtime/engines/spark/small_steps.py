"""Small steps in the driver: no job of Spark's, the code of tasks on the same live segments. Only where driver and tasks share a disk.

The user's code never runs here: what it does to its process, it does to a task's. Which steps are small enough is decided by
`step_ways.py` from measured costs; what is read by the driver, by `Source.read_small`.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import pyarrow as pa

from holdfast.errors import ConfigError
from holdfast.ids import OperatorName
from holdfast.language.connectors import POSITION_COLUMNS, TIMES, Declined, Sink, StepId, TaskReader
from holdfast.operators.expressions.change import ChangedReader
from holdfast.operators.python.keyed_python import KeyedPython
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.runtime.engines.engine import KeyedTask
from holdfast.runtime.engines.spark.readable import (
    BatchReader,
    ReadableRows,
    TableReader,
    TimesReader,
    UnionReader,
)
from holdfast.runtime.engines.step_ways import Ways
from holdfast.sources.small.sizes import SMALL_BYTES, SMALL_ROWS
from holdfast.state.aggregates.function_names import UserFunction

SETTING = "HOLDFAST_SMALL_STEPS"
"""In the environment: "cost" (or nothing) lets the cheaper way be taken, "jobs" makes every step a job, "driver" none that is small,
and "turns" every other one, for tests."""

ALIKE = (
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_boolean,
    pa.types.is_date32,
)
"""Columns that Spark and Arrow write into Parquet files in the same form. (Not so decimals.)"""

FIRST_ATTEMPT = 1 << 40
"""Attempts of the driver are numbered from here: no task has such a number, and file names carry them."""


class SmallSteps:
    """What an engine knows about steps in the driver. Called by element threads."""

    def __init__(self, possible: bool, micros: bool) -> None:
        """`possible`: driver and tasks share a disk. `micros`: Spark writes timestamps as such into Parquet files."""
        self._micros = micros
        self._said = os.environ.get(SETTING) or "cost"
        if self._said not in ("cost", "jobs", "driver", "turns"):
            raise ConfigError(f"{SETTING}={self._said} is unknown.", cure="Use cost, jobs or driver.")
        self.enabled = possible and self._said != "jobs"
        self._attempts = count(FIRST_ATTEMPT)
        self._ways: dict[OperatorName, Ways] = {}
        self._ours: dict[OperatorName, tuple[KeyedLogic, bool]] = {}
        self._lock = threading.Lock()
        self.done = 0
        """How many keyed steps the driver did."""

    def next_attempt(self) -> int:
        return next(self._attempts)

    def tables(self, task: KeyedTask, rows: Mapping[int, Any], step: int) -> dict[int, pa.Table] | None:
        """The rows of a step by input port, if the driver should do it."""
        if not self.enabled or task.may_die or not self._is_ours(task):
            return None
        if sum(frame.bytes for frame in rows.values() if isinstance(frame, ReadableRows)) > SMALL_BYTES:
            return None
        found = {port: small_table(frame) for port, frame in rows.items()}
        tables = {port: table for port, table in found.items() if table is not None}
        if len(tables) < len(rows):
            return None
        with self._lock:
            ways = self._ways.get(task.operator, Ways()).chosen(rows_in(tables.values()))
            self._ways[task.operator] = ways
        return tables if self._is_chosen(ways, step) else None

    def _is_chosen(self, ways: Ways, step: int) -> bool:
        match self._said:
            case "turns":
                return step % 2 == 0
            case "driver":
                return True
        return ways.now == "driver"

    def measured(self, operator: OperatorName, tables: Iterable[pa.Table] | None, begun: float) -> None:
        """A step is over that began at `begun`; None: it was a job."""
        seconds = time.perf_counter() - begun
        with self._lock:
            ways = self._ways.get(operator)
            if ways is not None and tables is None:
                self._ways[operator] = ways.measured("job", 0, seconds)
            elif tables is not None:
                self._ways[operator] = (ways or Ways()).measured("driver", rows_in(tables), seconds)
                self.done += 1

    def deliver(self, sink: Sink, rows: ReadableRows, step: StepId) -> int | None:
        """Write a few rows into a sink as a task would. How many; None: nothing was done."""
        table = small_table(rows) if self.enabled and sink.tasks_may_write() else None
        if table is None or not (sink.task_columns() or self._is_written_alike(table)):
            return None
        if (writer := sink.task_writer(step)) is None:
            return None
        columns = sink.task_columns() or _plain(table)
        sink.adopt(step, [writer(table.select(list(columns)), 0, self.next_attempt())])
        return int(table.num_rows)

    def _is_written_alike(self, table: pa.Table) -> bool:
        """Whether Spark's writer and ours give these columns the same form: files of both lie side by side."""
        types = [table.schema.field(name).type for name in _plain(table)]
        return all(
            any(is_alike(type_) for is_alike in ALIKE)
            or (self._micros and pa.types.is_timestamp(type_) and type_.unit == "us")
            for type_ in types
        )

    def _is_ours(self, task: KeyedTask) -> bool:
        logic, answer = self._ours.get(task.operator, (None, False))
        if logic is not task.logic:
            answer = not calls_users(task.logic)
            self._ours[task.operator] = (task.logic, answer)
        return answer


def _plain(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if name not in POSITION_COLUMNS]


def rows_in(tables: Iterable[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def small_table(rows: Any) -> pa.Table | None:
    """All columns of rows that are few and need no job to be read; None: others."""
    if not isinstance(rows, ReadableRows) or rows.bytes > SMALL_BYTES:
        return None
    table = _table(rows.reader)
    return table if table is not None and table.num_rows <= SMALL_ROWS else None


def _table(reader: TaskReader | None) -> pa.Table | None:
    match reader:
        case TableReader(table):
            return table
        case BatchReader(_, schema):
            return reader(schema.names)
        case TimesReader(rows, on):
            known = _table(rows)
            return None if known is None else TimesReader(TableReader(known), on)(TIMES.names)
        case ChangedReader(rows):
            known = _table(rows)
            try:
                return (
                    None
                    if known is None
                    else replace(reader, rows=TableReader(known))(reader.change.schema.names)
                )
            except Declined:
                return None  # the job that comes instead tells of it
        case UnionReader(parts):
            tables = [table for part in parts if (table := _table(part)) is not None]
            if len(tables) < len(parts):
                return None
            return pa.concat_tables([table.select(tables[0].column_names) for table in tables])
    return None


def calls_users(part: Any) -> bool:
    """Whether an operator's logic has the user's code in it. In doubt, yes."""
    if isinstance(part, KeyedPython | UserFunction | FunctionType | MethodType | BuiltinFunctionType | type):
        return True
    if dataclasses.is_dataclass(part):
        return any(calls_users(getattr(part, field.name)) for field in dataclasses.fields(part))
    if isinstance(part, Mapping):
        return any(calls_users(each) for each in part.values())
    if isinstance(part, tuple | list | set | frozenset):
        return any(calls_users(each) for each in part)
    return False
