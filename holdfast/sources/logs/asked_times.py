"""Which stretch of a log's time a query over it can have rows of: Spark plans it over a view that hears its conditions and reads nothing.

Spark 4.3 does not tell of a scan without conditions if another scan of the same query has some. So they are believed only where the query
names the log once and its plan has one scan; else nothing is known. Nothing is known either where Spark's words are not those expected.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.log.log import Log
from holdfast.log.query.wanted import Wanted
from holdfast.sources.logs.positions import schema_of
from holdfast.sources.logs.pushed import wanted_by
from holdfast.sources.logs.spark_versions import HAS_PUSHDOWN
from holdfast.sources.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

NAME = "holdfast-log-conditions"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PHYSICAL = "== Physical Plan =="


def asked_times(log: Log, sql: str, view: str, spark: SparkSession) -> Wanted:
    """The stretch; without bounds if nobody knows. Leaves a view of this name behind that has no rows."""
    if log.facts.time is None or not HAS_PUSHDOWN:
        return Wanted()
    with tempfile.TemporaryDirectory() as place, _hearing(spark):
        heard = Path(place) / "bounds"
        rows = spark.read.format(NAME).option("into", str(heard)).load(str(log.path))
        rows.createOrReplaceTempView(view)
        plans = io.StringIO()
        with redirect_stdout(plans):
            spark.sql(sql).explain(extended=True)
        return _hull(heard) if is_one_scan(plans.getvalue(), view) else Wanted()


def is_one_scan(plans: str, view: str) -> bool:
    """Whether a query, as `explain` tells it, names the view once, also by way of names for parts of it, and has one scan."""
    logical, _, physical = plans.partition(PHYSICAL)
    analyzed = logical.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[
        0
    ]
    names = analyzed.count(f"SubqueryAlias {view}\n")
    return (
        names == 1
        and analyzed.count("CTERelationRef") <= analyzed.count("CTERelationDef")
        and physical.count(f"BatchScan {NAME}") == 1
    )


@contextmanager
def _hearing(session: SparkSession) -> Iterator[None]:
    """Spark tells conditions to data sources written in Python, whatever the session says about that."""
    session.dataSource.register(Conditions)
    before = session.conf.get(PUSHDOWN, "false")
    session.conf.set(PUSHDOWN, "true")
    try:
        yield
    finally:
        session.conf.set(PUSHDOWN, before or "false")


def _hull(path: Path) -> Wanted:
    """What was told of the one scan, perhaps several times."""
    lines = [json.loads(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []
    since, until = [line[0] for line in lines], [line[1] for line in lines]
    return Wanted(
        None if not since or None in since else min(since), None if not until or None in until else max(until)
    )


class Conditions(DataSource):
    """A log without rows, whose reader writes the stretch of time that it was asked for into a file. It is never read: see above."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(schema_of(Log(self.options["path"]).schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        return Hearing(Log(self.options["path"]).facts.time, self.options["into"])


class Hearing(DataSourceReader):
    def __init__(self, time: str | None, into: str) -> None:
        self._time, self._into = time, into

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        wanted = wanted_by(filters, self._time)
        with Path(self._into).open("a", encoding="ascii") as file:
            file.write(json.dumps([wanted.since, wanted.until]) + "\n")
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(())
