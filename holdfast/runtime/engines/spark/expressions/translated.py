"""Stateless operators before keyed ones, done by the tasks that read the rows: no plan, and no row crosses to Python.

What an operator does is asked of Catalyst once per run, with the session's settings of that moment. What tasks cannot do
exactly alike stays a DataFrame; so does an operator from the first step on in which a task came upon rows for Catalyst.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast.ids import OperatorName
from holdfast.language.connectors import Declined, TaskReader
from holdfast.language.graph import Operator
from holdfast.operators.expressions.change import Change, ChangedReader
from holdfast.operators.kinds import stateless_kind
from holdfast.runtime.engines.spark.expressions.catalyst import change_of
from holdfast.runtime.engines.spark.readable import ReadableRows
from holdfast.runtime.engines.spark.stateless import FRAMES, spark_schema
from holdfast.sources.schemas import arrow_of

logger = logging.getLogger("holdfast")

_DONE = frozenset({"filter", "select", "with_columns", "drop", "rename", "split"})
"""Kinds of operators that are asked about."""


class Translations:
    """What the stateless operators of one run do to rows. Element threads share it; an operator belongs to one of them."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._known: dict[OperatorName, list[Change] | None] = {}

    def changed(self, operator: Operator, rows: ReadableRows, stamped: bool) -> list[ReadableRows] | None:
        """The operator's outputs, to be read by tasks; None: they are for Catalyst."""
        if operator.name not in self._known:
            self._known[operator.name] = self._asked(operator, rows.columns, stamped)
        changes = self._known[operator.name]
        if changes is None:
            return None
        return [self._output(operator, rows, stamped, *each) for each in enumerate(changes)]

    def give_up(self, operator: str, why: str) -> None:
        """A task came upon rows that are for Catalyst: from now on all of them are."""
        logger.info("operator %r is done by Catalyst from now on: %s", operator, why)
        self._known[OperatorName(operator)] = None

    def _asked(self, operator: Operator, columns: pa.Schema | None, stamped: bool) -> list[Change] | None:
        if columns is None or operator.kind not in _DONE:
            return None
        conf = self._session.conf
        ansi = conf.get("spark.sql.ansi.enabled") == "true"
        utc = conf.get("spark.sql.session.timeZone") == "UTC"
        empty = self._session.createDataFrame([], spark_schema(columns))
        try:
            frames = stateless_kind(operator).frames(operator, empty, stamped, FRAMES)
            return [change_of(_plan(frame), columns, _schema(frame), ansi, utc) for frame in frames]
        except (Declined, PySparkException, Py4JError, KeyError) as why:
            logger.debug("operator %r is done by Catalyst: %s", operator.name, why)
            return None

    def _output(
        self, operator: Operator, rows: ReadableRows, stamped: bool, port: int, change: Change
    ) -> ReadableRows:
        def make_reader() -> TaskReader | None:
            return None if rows.reader is None else ChangedReader(rows.reader, change, operator.name)

        def make_frame() -> DataFrame:
            made: DataFrame = stateless_kind(operator).frames(operator, rows, stamped, FRAMES)[port]
            return made

        return ReadableRows(make_reader, rows.bytes, make_frame, columns=change.schema)


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().analyzed().toJSON())


def _schema(frame: DataFrame) -> pa.Schema:
    return arrow_of(frame.schema)
