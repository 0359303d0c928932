"""Rows of a log: what fits its schema, their times, and how they are handed to readers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import ConfigError, InputError
from holdfast.log.format.frame import NO_TIME
from holdfast.state.columns.from_python import Unfit, column_of, near

TIME_COLUMN = "__hf_time"
"""In Parquet segments of logs whose rows have no time of their own: when they were appended."""
TIME_TYPE = pa.timestamp("us", "UTC")

Rows = Any
# A table, a record batch, or a list of dicts: pyarrow has no types to say it with.
"""What can be appended."""


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Rows as a reader gets them. Plain data."""

    partition: int
    position: int
    """Of the first row; the others follow without gaps."""
    rows: pa.RecordBatch
    times: pa.Array
    """When each row happened, or was appended; UTC."""

    @property
    def next(self) -> int:
        """The position behind the last row."""
        return self.position + int(self.rows.num_rows)

    def select(self, columns: list[str]) -> LogBatch:
        return LogBatch(self.partition, self.position, self.rows.select(columns), self.times)

    def cut(self, start: int, end: int) -> LogBatch:
        """The rows of [start, end)."""
        begin, behind = max(start, self.position), min(end, self.next)
        if (begin, behind) == (self.position, self.next):
            return self
        at, length = begin - self.position, max(0, behind - begin)
        return LogBatch(self.partition, begin, self.rows.slice(at, length), self.times.slice(at, length))


def microseconds(time: datetime | float | int) -> int:
    """A moment as µs since 1970. Numbers are seconds; a datetime without a zone is UTC."""
    if isinstance(time, datetime):
        moment = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return round(time * 1_000_000)


def shown_time(time: int) -> str | None:
    """For people. None: no time."""
    if time == NO_TIME:
        return None
    try:
        return datetime.fromtimestamp(time / 1e6, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return f"{time} µs"


# --- schema ---


def plain_schema(schema: pa.Schema, time: str | None) -> pa.Schema:
    """The schema a log carries: no dictionaries, no metadata. ConfigError for what cannot be kept, by name of the column."""
    fields = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, kind, field.nullable))
        _refuse_unfit(field.name, kind)
    names = [field.name for field in fields]
    if not names:
        raise ConfigError("a log needs at least one column.", cure="Give its rows one.")
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ConfigError(f"a log cannot have two columns named {double!r}.", cure="Rename one of them.")
    if time is not None:
        if time not in names:
            raise ConfigError(
                f"there is no column {time!r} to take the time from.", cure=f"There are: {', '.join(names)}."
            )
        kind = fields[names.index(time)].type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise ConfigError(f"column {time!r} has type {kind}, and a time is a timestamp or a date.")
    return pa.schema(fields)


def _refuse_unfit(name: str, kind: pa.DataType) -> None:
    try:
        empty = pa.schema([pa.field(name, kind)]).empty_table()
        pq.write_table(empty, io.BytesIO())
        fits = name != TIME_COLUMN and "dictionary<" not in str(kind) and "extension<" not in str(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        fits = False
    if not fits:
        raise ConfigError(
            f"column {name!r} of type {kind} cannot be kept in a log.", cure="Cast it, or leave it out."
        )


class _Misfit(Exception):
    """What about rows does not go with a log: the end of a sentence that begins with it."""


def fitted(rows: Rows, schema: pa.Schema, required: Sequence[int], log: object) -> pa.RecordBatch:
    """The rows as one batch of exactly this schema. InputError names the log and the column that does not fit. `required`:
    as `required_columns` says."""
    try:
        return _fitted(rows, schema, required)
    except _Misfit as misfit:
        told = str(misfit)
        raise InputError(
            f"the log {log} {told}{'' if told.endswith('?') else '.'}",
            cure="Append rows of the log's schema, or begin another log.",
        ) from misfit.__cause__


def _fitted(rows: Rows, schema: pa.Schema, required: Sequence[int]) -> pa.RecordBatch:
    if isinstance(rows, pa.Table):
        table = rows
    elif isinstance(rows, pa.RecordBatch):
        if rows.schema.equals(schema):
            return _without_nulls(rows, required)
        table = pa.Table.from_batches([rows])
    else:
        table = _from_python(rows, schema)
    given = set(table.column_names)
    for name in table.column_names:
        if name not in schema.names:
            raise _Misfit(f"has no column {name!r}, and rows to be appended do.{near(name, schema.names)}")
    columns = []
    for field in schema:
        if field.name not in given:
            raise _Misfit(f"has a column {field.name!r}, and rows to be appended do not")
        column = table.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not column.type.equals(field.type):
            raise _Misfit(
                f"has column {field.name!r} as {field.type}, and rows to be appended as {column.type}"
            )
        whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(whole, pa.ChunkedArray):
            if whole.num_chunks > 1:
                raise InputError(
                    f"column {field.name!r} is too large for one append.", cure="Append fewer rows at once."
                )
            whole = whole.chunk(0) if whole.num_chunks else pa.array([], field.type)
        columns.append(whole)
    return _without_nulls(pa.RecordBatch.from_arrays(columns, schema=schema), required)


def _from_python(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    for row in rows:
        if not isinstance(row, Mapping):
            raise _Misfit(f"takes dicts, and a row to be appended is a {type(row).__name__}")
        unknown = next((name for name in row if name not in schema.names), None)
        if unknown is not None:
            known = schema.names
            raise _Misfit(f"has no column {unknown!r}, and rows to be appended do.{near(unknown, known)}")
    try:
        columns = [column_of([row.get(field.name) for row in rows], field) for field in schema]
    except Unfit as error:
        raise _Misfit(f"cannot take row {error.row + 1} of the append: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def inferred(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """The columns of the first rows of a log that nobody gave a schema: all name those of the first row, and no others, for they
    are the log's for good."""
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("rows that a log has no schema for must be dicts.", cure="Give Log a schema.")
    names = list(rows[0])
    for number, row in enumerate(rows):
        unknown = next((name for name in row if name not in names), None)
        if unknown is not None:
            raise InputError(
                f"row {number + 1} of a log's first append has a column {unknown!r}, which the first row does not "
                f"have.{near(unknown, names)}",
                cure="Correct the name, name all columns in the first row, or give Log a schema.",
            )
    fields = []
    for name in names:
        try:
            fields.append(pa.field(name, pa.array([row.get(name) for row in rows]).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"the values of column {name!r} in a log's first append have no type in common: {error}.",
                cure="Give them one, or give Log a schema.",
            ) from error
    return pa.schema(fields)


def required_columns(schema: pa.Schema) -> tuple[int, ...]:
    """Those that may not have nulls."""
    return tuple(number for number, field in enumerate(schema) if not field.nullable)


def _without_nulls(batch: pa.RecordBatch, required: Sequence[int]) -> pa.RecordBatch:
    for number in required:
        if batch.column(number).null_count:
            name = batch.schema.names[number]
            raise _Misfit(f"has column {name!r} without nulls, and rows to be appended have some")
    return batch


# --- times ---


def times_of(batch: pa.RecordBatch, time: str | None, appended: int) -> pa.Array:
    """When each row happened: the time column in µs, or the moment of appending."""
    if time is None:
        return pa.repeat(pa.scalar(appended, TIME_TYPE), batch.num_rows)
    column = batch.column(batch.schema.get_field_index(time))
    return as_utc(column)


def as_utc(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        if column.type.tz is None and column.type.unit == "us":
            return column.cast(pa.int64()).cast(TIME_TYPE)
        if column.type.tz is not None:
            return column.cast(TIME_TYPE, safe=False)
    return column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(TIME_TYPE)


def bounds_of(times: pa.Array) -> tuple[int, int]:
    """The least and the greatest time; NO_TIME without any."""
    if not len(times) or times.null_count == len(times):
        return NO_TIME, NO_TIME
    found = pc.min_max(times.cast(pa.int64()))
    return found["min"].as_py(), found["max"].as_py()


def first_not_before(times: pa.Array, time: int) -> int | None:
    """The first row that is not before `time`. None: all are."""
    at = pc.index(pc.fill_null(pc.greater_equal(times.cast(pa.int64()), time), False), True).as_py()
    return None if at < 0 else int(at)
