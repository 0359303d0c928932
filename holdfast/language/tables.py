"""Data as Arrow tables: what users have at hand (an Arrow table, a pandas DataFrame or a Spark DataFrame), with columns that
streams can have; what readers of tasks read. Neither pandas nor Spark is imported: whoever has such an object has done so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from holdfast.errors import TopologyError
from holdfast.language.connectors import TaskReader
from holdfast.language.schema import check_columns


def is_tabular(data: Any) -> bool:
    """Whether it is a table of one of these sorts."""
    return isinstance(data, pa.Table | pa.RecordBatch) or _is_spark(data) or _is_pandas(data)


def as_table(data: Any, what: str) -> pa.Table:
    """The data as an Arrow table. The index of a pandas DataFrame is left out."""
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif _is_spark(data):
        table = data.toArrow()
    elif _is_pandas(data):
        table = pa.Table.from_pandas(data, preserve_index=False)
    else:
        raise TopologyError(
            f"{what} cannot be made of a {type(data).__name__}.",
            cure="Give a pyarrow Table, a pandas DataFrame or a Spark DataFrame.",
        )
    check_columns(table.schema, what)
    return table.cast(pa.schema([pa.field(each.name, _type(each.type)) for each in table.schema]))


def _is_spark(data: Any) -> bool:
    return callable(getattr(data, "toArrow", None))


def _is_pandas(data: Any) -> bool:
    return type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns")


def _type(type_: pa.DataType) -> pa.DataType:
    """What streams have instead: times to the microsecond, plain strings, no dictionaries."""
    if pt.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC" if type_.tz else None)
    if pt.is_dictionary(type_):
        return _type(type_.value_type)
    if pt.is_large_string(type_):
        return pa.string()
    return pa.binary() if pt.is_large_binary(type_) else type_


def tables_of(reader: TaskReader, columns: Sequence[str]) -> Iterator[pa.Table]:
    """What a reader reads, in several tables if it can; at least one, in the order of the rows."""
    several: Callable[[Sequence[str]], Iterator[pa.Table]] | None = getattr(reader, "tables", None)
    return iter([reader(columns)]) if several is None else several(columns)


def parts_of(reader: TaskReader) -> list[TaskReader]:
    """Readers for several tasks, which together read what this one does; itself alone, if it cannot be divided."""
    divide: Callable[[], list[TaskReader]] | None = getattr(reader, "parts", None)
    return [reader] if divide is None else divide()
