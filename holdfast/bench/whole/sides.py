"""What each side does in a process of its own: a running aggregate by key over files, until all that is there is processed.

Imports stand where they are needed: start-up is measured, and neither side pays for what the other one loads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.bench.whole import flink
from holdfast.bench.whole.flink import FLINK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.language.topology import Topology

OURS, THEIRS = "holdfast", "spark"
SCHEMA = "key long, value long"
CONDITION, VALUE = "value % 7 <> 3", "value * 2 + 1"
PERIOD_S = 2.0

MEMORY = {"spark.driver.memory": "4g"}
"""Of both sides: Spark's default of 1 GB is little for a million keys in the other side's default store."""


@dataclass(frozen=True)
class Task:
    """What a side is to do, as plain data."""

    format: str
    expressions: bool
    files_per_step: int
    """Of theirs: per trigger."""
    files: str
    out: str
    store: str


def work(side: str, session: Any, task: Task) -> dict[str, int]:
    """Do it; how many steps and epochs it took."""
    doing = {OURS: _ours, THEIRS: _theirs, FLINK: flink.run}
    return doing[side](session, task)


def session_of(side: str) -> Any:
    """As who runs the side would start it."""
    if side == FLINK:
        return flink.session()
    if side == OURS:
        from holdfast.runtime.engines.spark.session import make_session

        return make_session("holdfast bench", settings=MEMORY)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("bench").master("local[*]")
    for key, value in their_settings().items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def their_settings() -> Mapping[str, str]:
    """What Spark's documentation recommends for a state of this size; all else is Spark's default, the state's store too."""
    return {**MEMORY, "spark.sql.shuffle.partitions": str(os.cpu_count() or 2)}


# --- ours -----------------------------------------------------------------------------------------------------------


def topology_of(task: Task) -> Topology:
    import holdfast as hf

    topology = hf.Topology("whole")
    source = hf.Files(
        task.files,
        format=task.format,  # type: ignore[arg-type]
        schema=SCHEMA,
        max_files_per_step=task.files_per_step,
    )
    rows = topology.source(source, name="in").consistent(name="whole", period=PERIOD_S)
    if task.expressions:
        rows = rows.filter(CONDITION).with_columns(value=VALUE)
    sums = rows.aggregate(
        "key", emit="changes", name="by_key", total=hf.sum("value"), n=hf.count(), top=hf.max("value")
    )
    sums.sink(hf.FileSink(task.out, format="parquet"), name="out")
    return topology


def _ours(session: SparkSession, task: Task) -> dict[str, int]:
    from holdfast.runtime.job import job_of

    job = job_of(topology_of(task).submit(spark=session, store=task.store, until="available"))
    job.await_termination()
    return {
        "steps": max(loop.metrics.steps for loop in job.loops.values()),
        "epochs": sum(region.metrics.epochs_published for region in job.regions.values()),
    }


# --- theirs ---------------------------------------------------------------------------------------------------------

QUERY = "readStream(maxFilesPerTrigger).groupBy(key).agg(sum, count, max), update, availableNow, foreachBatch(append parquet)"


def _theirs(session: SparkSession, task: Task) -> dict[str, int]:
    from pyspark.sql import functions as F

    reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", task.files_per_step)
    if task.format == "csv":
        reader = reader.option("header", True)
    rows = reader.format(task.format).load(task.files)
    if task.expressions:
        rows = rows.filter(CONDITION).withColumn("value", F.expr(VALUE))
    sums = rows.groupBy("key").agg(
        F.sum("value").alias("total"), F.count("*").alias("n"), F.max("value").alias("top")
    )

    def append(frame: DataFrame, batch: int) -> None:
        frame.write.mode("append").parquet(task.out)

    query = (
        sums.writeStream.outputMode("update")
        .option("checkpointLocation", task.store)
        .trigger(availableNow=True)
        .foreachBatch(append)
        .start()
    )
    query.awaitTermination()
    return {"steps": sum(1 for batch in query.recentProgress if batch["numInputRows"]), "epochs": 0}


def forget_states(session: SparkSession) -> None:
    """The state of a query that ended stays in memory for up to a minute: what comes next should not suffer from it."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
