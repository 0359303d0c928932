"""What Spark's data sources have grown since 4.0, and what stands in its place where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource

from holdfast.errors import ConfigError

HAS_PUSHDOWN = hasattr(datasource.DataSourceReader, "pushFilters")
"""Since 4.1 readers may hear of conditions, where a session allows it."""
HAS_ARROW_STREAMS = hasattr(datasource, "DataSourceStreamArrowWriter")

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow

    HAS_LIMITS = False
else:
    # Before 4.1 nobody makes one: `need_arrow_streams` refuses.
    DataSourceStreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:  # before 4.2 nobody asks for these
        HAS_LIMITS = False

        class ReadAllAvailable: ...

        class ReadMaxRows: ...

        class SupportsTriggerAvailableNow: ...


def need_arrow_streams() -> None:
    """ConfigError before Spark 4.1, whose streams can be written row by row only."""
    if not HAS_ARROW_STREAMS:
        raise ConfigError(
            f"a stream of Spark into a log needs Spark 4.1 or newer; this is {pyspark.__version__}.",
            cure="Use Spark 4.1 or newer, or write the log from a topology, with hf.LogSink.",
        )
