"""Structured Streaming's side of a benchmark: a keyed aggregate over the same files, into the same kind of files.

Update mode, because that is what emit="changes" is; the file sink has no update mode, so `foreachBatch` appends. The
state's home is in memory with files per batch (the default) or RocksDB with changelog. Both are configured as Spark's
documentation recommends: shuffle partitions = cores.

Times are Spark's own: a batch takes its `triggerExecution`, a stretch runs from the beginning of the first batch to the
end of the last, so starting the query does not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.bench.measure.alternate import Stretch
from holdfast.bench.measure.inputs import KEYED_SCHEMA, rows_in, steps_in
from holdfast.bench.measure.place import jvm
from holdfast.errors import HoldfastError

_STATE = "org.apache.spark.sql.execution.streaming.state"

COMMON = {
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
PROVIDERS: Mapping[str, Mapping[str, str]] = {
    "spark_default": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider",
    },
    "spark_rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
QUERY = "readStream.parquet(maxFilesPerTrigger=1).groupBy(key).agg(sum, count, max), update, availableNow, foreachBatch(append parquet)"


def aggregated(rows: DataFrame) -> DataFrame:
    """The running aggregate of the keyed benchmarks, in Spark's words."""
    return rows.groupBy("key").agg(
        F.sum("value").alias("total"), F.count("*").alias("n"), F.max("value").alias("top")
    )


def run_query(
    session: SparkSession,
    provider: str,
    files: Path,
    out: Path,
    checkpoint: Path,
    *,
    query: Callable[..., DataFrame] = aggregated,
    streams: Sequence[str] = (".",),
    schema: pa.Schema = KEYED_SCHEMA,
    mode: str = "update",
) -> Stretch:
    """Run over all files of a directory, one per micro-batch, with one of PROVIDERS. `query` gets a frame for each of
    `streams`, which are directories below."""
    for key, value in {**COMMON, **PROVIDERS[provider]}.items():
        session.conf.set(key, value)
    reader = session.readStream.schema(from_arrow_schema(schema)).option("maxFilesPerTrigger", 1)

    def append(frame: DataFrame, batch: int) -> None:
        frame.write.mode("append").parquet(str(out))

    running = (
        query(*(reader.parquet(str(files / stream)) for stream in streams))
        .writeStream.outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .foreachBatch(append)
        .start()
    )
    try:
        running.awaitTermination()
        batches = [progress for progress in running.recentProgress if progress["numInputRows"]]
    finally:
        running.stop()
        # State of queries that ended stays in memory for up to a minute; the next stretch should not suffer from it.
        jvm(session).org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    count = steps_in(files)
    if len(batches) != count:
        raise HoldfastError(f"{count} files became {len(batches)} micro-batches: they may not be merged.")
    times = tuple(batch["durationMs"]["triggerExecution"] / 1000 for batch in batches)
    return Stretch(span_of(batches), rows_in(files), count, latencies_s=times, step_s=times)


def span_of(batches: Sequence[Any]) -> float:
    """Seconds from the beginning of the first micro-batch to the end of the last."""
    first, last = (datetime.fromisoformat(batch["timestamp"]) for batch in (batches[0], batches[-1]))
    return float((last - first).total_seconds() + batches[-1]["durationMs"]["triggerExecution"] / 1000)
