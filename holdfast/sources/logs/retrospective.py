"""Rows of a log's past as DataFrames: what `log.between` and `log.from_position` give, and `holdfast logs query`.

Parquet segments all of whose positions are wanted are read by Spark itself, by a condition on the time that Spark gives to its Parquet reader.
Tails, segments of which only some positions are wanted, and types that Spark reads otherwise than we do are read by tasks.
Both give the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.errors import ConfigError, StoreError
from holdfast.log.log import Log
from holdfast.log.place import LogFacts
from holdfast.log.query import choose as choosing
from holdfast.log.query.choose import Chosen, Selection
from holdfast.log.query.wanted import Wanted
from holdfast.log.rows import TIME_COLUMN, TIME_TYPE
from holdfast.sources.logs import held_files
from holdfast.sources.logs.log_source import DRIVER_ROWS, ReadParts
from holdfast.sources.logs.positions import PART_ROWS, readers_of, schema_of
from holdfast.sources.logs.pushed import narrower
from holdfast.sources.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Whatever the session says: damage is told, nothing is left out in silence, old dates are what was written."""
VIEW = "log"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000


def frame_of(log: Log, wanted: Wanted, spark: SparkSession | None) -> DataFrame:
    """The wanted rows that count now, when Spark reads them."""
    session = _session(spark)
    for _ in range(choosing.TRIES):
        selection = log.choose(wanted)
        try:
            return _frame(selection, session)
        except FileNotFoundError:
            continue  # merged meanwhile
    raise StoreError(f"segments of the log {log.path} vanish whenever they are looked at.")


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise ConfigError(
            "there is no Spark session.",
            cure="Pass one as spark=…; log.table(…) gives the rows without Spark.",
        )
    return found


def _frame(selection: Selection, session: SparkSession) -> DataFrame:
    by_spark = [each for each in selection.chosen if each.is_whole and _reads_alike(selection.facts, each)]
    by_tasks = [each for each in selection.chosen if each not in by_spark]
    frames = []
    if by_spark:
        frames.append(_by_spark(session, selection, [each.where.path for each in by_spark]))
    if by_tasks or not frames:
        frames.append(_by_tasks(session, selection, by_tasks))
    return reduce(lambda a, b: a.union(b), frames)


# --- Parquet, by Spark ---


def _by_spark(session: SparkSession, selection: Selection, paths: Sequence[str]) -> DataFrame:
    facts = selection.facts
    schema = schema_of(facts.schema)
    stored = schema if facts.time is not None else schema.append(pa.field(TIME_COLUMN, TIME_TYPE))
    held = held_files.hold(facts.root, paths)
    reader = session.read.schema(spark_schema(stored)).options(**OPTIONS)
    rows = reader.parquet(*(f"file://{path}" for path in held))
    condition = condition_of(facts, selection.wanted)
    chosen = rows.filter(condition) if condition else rows
    return chosen if facts.time is not None else chosen.drop(TIME_COLUMN)


def condition_of(facts: LogFacts, wanted: Wanted) -> str:
    """The wanted times, as a condition on the column that has them; "": all are."""
    column = "`" + (facts.time or TIME_COLUMN).replace("`", "``") + "`"
    kind = TIME_TYPE if facts.time is None else facts.schema.field(facts.time).type
    bounds = ((">=", wanted.since), ("<", wanted.until))
    return " and ".join(f"{column} {sign} {_literal(kind, at)}" for sign, at in bounds if at is not None)


def _literal(kind: pa.DataType, time: int) -> str:
    """A moment in SQL, as a value of the column's type."""
    if pa.types.is_date(kind):  # a day is its first moment: the first one that is not before
        return f"date_from_unix_date({-(-time // _DAY)})"
    if kind.tz is not None:
        return f"timestamp_micros({time})"
    moment = (_EPOCH + timedelta(microseconds=time)).replace(tzinfo=None)
    return f"timestamp_ntz'{moment.isoformat(sep=' ')}'"


def _reads_alike(facts: LogFacts, chosen: Chosen) -> bool:
    """Whether Spark's own reader gives what ours gives: paths without wildcards, names that differ in more than case, and
    types without any difference of meaning."""
    names = [name.lower() for name in facts.schema.names]
    is_plain = not set("*?[]{}\\,%") & set(chosen.where.path)
    return is_plain and len(set(names)) == len(names) and all(_is_alike(field.type) for field in facts.schema)


def _is_alike(kind: pa.DataType) -> bool:
    same: tuple[Any, ...] = (
        pa.types.is_boolean,
        pa.types.is_signed_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_date32,
        pa.types.is_decimal128,
    )
    if any(is_it(kind) for is_it in same):
        return True
    if pa.types.is_timestamp(kind):
        return bool(kind.unit != "ns")
    if pa.types.is_list(kind):
        return _is_alike(kind.value_type)
    if pa.types.is_struct(kind):
        return bool(kind.num_fields) and all(_is_alike(field.type) for field in kind)
    return False


# --- all else, by tasks ---


def _by_tasks(session: SparkSession, selection: Selection, chosen: Sequence[Chosen]) -> DataFrame:
    schema = schema_of(selection.facts.schema)
    readers = readers_of(selection, chosen)
    rows = sum(each.rows for each in chosen)
    if rows <= DRIVER_ROWS:
        empty = schema.empty_table()
        table = pa.concat_tables([empty, *(reader(schema.names) for reader in readers)])
        # In one chunk: behind two empty ones Spark takes the rest for empty, too.
        return session.createDataFrame(table.combine_chunks(), spark_schema(schema))
    tasks = min(len(readers), -(-rows // PART_ROWS))
    numbers = session.range(0, len(readers), 1, tasks)
    return numbers.mapInArrow(ReadParts(tuple(readers), tuple(schema.names)), spark_schema(schema))


# --- SQL ---


def query(log: Log, sql: str, wanted: Wanted, spark: SparkSession, limit: int) -> tuple[pa.Table, bool]:
    """What a query over the view `log` answers: at most `limit` rows, and whether there are more. Segments are left out by its own conditions on
    the time column, too."""
    from pyspark.errors import PySparkException

    from holdfast.sources.logs.asked_times import asked_times

    try:
        asked = narrower(wanted, asked_times(log, sql, VIEW, spark))
        frame_of(log, asked, spark).createOrReplaceTempView(VIEW)
        found = spark.sql(sql).limit(limit + 1).toArrow()
    except PySparkException as error:
        said = (error.getMessage() or str(error)).strip().splitlines()[0]
        raise ConfigError(
            f"the query cannot be answered: {said}",
            cure=f"The columns of the view {VIEW} are: {', '.join(log.schema.names)}.",
        ) from error
    return found.slice(0, limit), found.num_rows > limit
