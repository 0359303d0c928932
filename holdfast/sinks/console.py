"""`ConsoleSink`: the first rows of every step, for people to look at."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

import pyarrow as pa

from holdfast.failpoints import fp
from holdfast.language.connectors import POSITION_COLUMNS, Sink, SinkContext, StepId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WIDTH = 30


@dataclass(frozen=True, slots=True)
class FirstRows:
    """`mapInArrow` function: passes the first rows of a partition on but runs through all of them.

    A plain `limit` would leave partitions unread or run them by several jobs; a step must run once, to its end.
    """

    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = self.count
        for batch in batches:
            if left > 0:
                yield batch.slice(0, left)
                left -= batch.num_rows


class ConsoleSink(Sink):
    """Prints up to `rows` rows of every step that has any.

    Example::

        counts.sink(hf.ConsoleSink(rows=5), name="screen")
    """

    reason: ClassVar[str] = "a printed row cannot be taken back"

    def __init__(self, rows: int = 20, *, out: TextIO | None = None) -> None:
        self._rows = rows
        self._out = out
        self._name = "console"

    def open(self, context: SinkContext) -> None:
        self._name = context.sink

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        self._print(frame.mapInArrow(FirstRows(self._rows), frame.schema).toArrow(), step)
        return None

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        self._print(table, step)
        return int(table.num_rows)

    def _print(self, table: pa.Table, step: StepId) -> None:
        fp("sink.write")
        if table.num_rows:
            keep = [name for name in table.column_names if name not in POSITION_COLUMNS]
            text = f"{self._name} · step {step.step}\n{grid(table.select(keep).slice(0, self._rows))}\n"
            print(text, file=self._out or sys.stdout, flush=True)

    def describe(self) -> str:
        return f"console, up to {self._rows} rows per step"


def grid(table: pa.Table) -> str:
    """The table as aligned text."""
    rows: list[list[Any]] = [list(table.column_names)]
    rows += [list(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    texts = [[_short(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
