"""How many rows a sink got whose writing is a job of Spark's, or a function of the user's that reads them as it likes.

What the driver knows of the rows is enough if it knows their number. Else the first action of Spark SQL that reads all of
them counts them on their way.
"""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame, Observation

from holdfast.language.connectors import Sink, StepId
from holdfast.runtime.engines.spark.readable import ReadableRows, as_frame
from holdfast.sources.file_spark import counted, observed

TRIES = 3
"""A function that reads its rows otherwise, by `df.rdd` for example, is asked no more often: each time costs a wait."""


class RowCounts:
    """Of one engine. A sink is used by one thread."""

    def __init__(self) -> None:
        self._missed: Counter[Sink] = Counter()

    def write(self, sink: Sink, frame: DataFrame | ReadableRows, step: StepId) -> int | None:
        """Let the sink write; how many rows it got, None if nobody can tell."""
        known = frame.rows if isinstance(frame, ReadableRows) else None
        if known is not None or self._missed[sink] >= TRIES:
            sink.write_spark(as_frame(frame), step)
            return known
        counters: list[Observation] = []
        sink.write_spark(counted(as_frame(frame), counters), step)
        rows = observed(counters)
        self._missed[sink] = 0 if rows is not None else self._missed[sink] + 1
        return rows
