"""Rows that a sink cannot write (`sink(…, on_error="stream")`): told as rows of a stream of errors, in the driver or in a task.

A sink tells them in two ways. What can be seen in a row its `row_check` answers before anything is written; what only writing
can tell it refuses row by row while it writes. Either way the rows of `errors` belong to the step, and so to its epoch.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.errors import ConfigError, OperatorFailed, TopologyError
from holdfast.language.connectors import RowCheck
from holdfast.language.hosted import ERRORS, OnError
from holdfast.operators.python.dead_letters import as_json, is_outage, letter
from holdfast.operators.python.user_errors import naming

REASON = "__hf_reason"
"""Column of a marked table: why a row cannot be written, null if it can."""

MARK = pa.field(REASON, pa.string())


class Checked(NamedTuple):
    """Rows that can be written, and letters about the others."""

    good: pa.Table
    letters: pa.Table


def marked(table: pa.Table, check: RowCheck, sink: str) -> pa.Table:
    """The table with a column of reasons."""
    with naming(f"sink {sink!r}, row_check"):
        reasons = check(table)
    try:
        column = pa.array(
            reasons.to_pylist() if isinstance(reasons, pa.ChunkedArray) else reasons, pa.string()
        )
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TopologyError(
            f"the check of sink {sink!r} gave something else than reasons: {error}.", cure=_CURE
        ) from error
    if len(column) != table.num_rows:
        raise TopologyError(
            f"the check of sink {sink!r} gave {len(column)} answers for {table.num_rows} rows.", cure=_CURE
        )
    return table.append_column(MARK, column)


_CURE = "Give for each row, in their order, a text that says why it cannot be written, or None."


def checked(table: pa.Table, check: RowCheck, sink: str) -> Checked:
    """The rows of a table dealt out by what the check says."""
    whole = marked(table, check, sink)
    is_good = np.asarray(whole.column(REASON).is_null())
    return Checked(table.filter(pa.array(is_good)), letters_of(whole.filter(pa.array(~is_good)), sink))


def letters_of(bad: pa.Table, sink: str) -> pa.Table:
    """Rows of the stream of errors, of marked rows that cannot be written: few, one by one."""
    reasons, now = bad.column(REASON).to_pylist(), dt.datetime.now(dt.UTC)
    rows = [as_json(row) for row in bad.drop_columns([REASON]).to_pylist(maps_as_pydicts="strict")]
    count = len(rows)
    return pa.table([[sink] * count, rows, reasons, [None] * count, [now] * count], schema=ERRORS)


class Refusals:
    """Rows that one sink refused while it wrote a step. `refuse` may be called by any thread, as long as the write lasts."""

    def __init__(self, sink: str, on_error: OnError) -> None:
        self._sink, self._on_error = sink, on_error
        self._letters: list[tuple[Any, ...]] = []
        self._is_open = False

    def begin(self) -> None:
        """A write begins; what an earlier one told that failed is void."""
        self._letters, self._is_open = [], True

    def take(self) -> pa.Table:
        """The write is over: rows of the stream of errors."""
        letters, self._letters, self._is_open = self._letters, [], False
        columns = list(zip(*letters, strict=True)) or [()] * len(ERRORS)
        return pa.table([list(column) for column in columns], schema=ERRORS)

    def refuse(self, row: Any, error: Exception | str) -> None:
        """What sinks call: `SinkContext.refuse`."""
        if not self._is_open:
            raise ConfigError(
                f"sink {self._sink!r} refused a row of an epoch that is published already: it is too late for that.",
                cure="Let its row_check (check= of ForeachBatch) find such rows: that is asked before they are stored.",
            )
        why = error if isinstance(error, Exception) else OperatorFailed(error)
        if is_outage(why):
            raise why
        if self._on_error == "fail":
            raise why if why is error else OperatorFailed(f"sink {self._sink!r} refused a row: {error}")
        self._letters.append(letter(self._sink, _fields(row), why))


def _fields(row: Any) -> Any:
    """A row as PySpark, holdfast or plain Python gives it, by names if it has some."""
    if isinstance(row, Mapping):
        return dict(row)
    return row.asDict() if hasattr(row, "asDict") else row
