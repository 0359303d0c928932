"""`from_spark`: any stream of Spark's own (`spark.readStream…`) as a replayable source, by way of a log.

A query of Spark writes the rows into the log, each once; the topology reads them there. Spark's checkpoint of that query lies beside
the rows, so both belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError, InputError
from holdfast.language.connectors import Slice
from holdfast.log.log import Log
from holdfast.sources.logs.log_source import ROWS_PER_STEP, LogSource
from holdfast.sources.logs.spark_format import NAME, register_log_format
from holdfast.sources.logs.spark_versions import need_arrow_streams
from holdfast.sources.schemas import arrow_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITER = "from-spark"


class SparkStream(LogSource):
    """See `from_spark`."""

    def __init__(self, frame: DataFrame, path: Path, trigger: dict[str, Any], rows_per_step: int) -> None:
        need_arrow_streams()
        self._frame, self._path, self._trigger = frame, path, trigger
        self._query: Any = None
        self._to_the_end = False
        schema = arrow_of(frame.schema)
        super().__init__(path / "rows", rows_per_step=rows_per_step, schema=schema)

    def bound(self) -> None:
        """What is available now is what the query finds in one go, and what lies in the log."""
        self._to_the_end = True

    def unbound(self) -> None:
        self._to_the_end = False

    def open(self, wake: Callable[[], None]) -> None:
        register_log_format(self._frame.sparkSession)
        stream = self._frame.writeStream.format(NAME).option("writer", WRITER)
        stream = stream.option("checkpointLocation", str(self._path / "query"))
        stream = stream.trigger(**({"availableNow": True} if self._to_the_end else self._trigger))
        self._query = stream.start(str(self._path / "rows"))

    def next_slice(self) -> Slice | None:
        is_over = self._query is not None and not self._query.isActive
        if is_over and (failure := self._query.exception()) is not None:
            raise InputError(
                f"the query of {self.describe()} failed: {failure}", cure="Mend what it reads, and run again."
            )
        while (piece := super().next_slice()) is None and self._to_the_end and not is_over:
            self._query.awaitTermination(1)
            is_over = not self._query.isActive
        return piece

    def finish(self) -> bool:
        """Its query ends; what it has written is read by the next run."""
        self._stop()
        return False

    def close(self) -> None:
        self._stop()
        super().close()

    def _stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None

    def describe(self) -> str:
        return f"a stream of Spark, preserved in the log {self._path / 'rows'}"


def from_spark(
    frame: DataFrame, path: str | Path, *, every: str = "1 second", rows_per_step: int = ROWS_PER_STEP
) -> LogSource:
    """A streaming DataFrame as a source that can replay, whatever it reads (`rate`, `socket`, Kafka, …).

    Example::

        rate = spark.readStream.format("rate").load()
        ticks = topology.source(hf.from_spark(rate, "logs/ticks"), name="ticks").consistent("r")

    Rows are preserved in a log at `path`, each once, before a step gets them; `every` is how often Spark looks for new ones.
    """
    if not frame.isStreaming:
        raise ConfigError(
            "from_spark takes a streaming DataFrame, and this one is not.",
            cure="Use spark.readStream, or hf.Rows(frame) for rows that do not grow.",
        )
    place = Path(path).absolute()
    Log(place / "rows")  # refuses what is no log
    return SparkStream(frame, place, {"processingTime": every}, rows_per_step)
