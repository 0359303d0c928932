"""The programs of `bench cold`, as people would write them: the same small sums in our words and in Structured Streaming's."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.bench.whole.sides import CONDITION, SCHEMA

OURS = """\
import holdfast as hf

cold = hf.Topology("cold")
source = hf.Files("in", format="{format}", schema="{schema}")
rows = cold.source(source, name="in").consistent(name="cold", period=2)
kept = rows.filter("{condition}")
sums = kept.aggregate("key", total=hf.sum("value"), n=hf.count(), top=hf.max("value"), name="by_key")
sums.sink(hf.FileSink("out", format="json"), name="out")
"""

THEIRS = """\
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.appName("cold").config("spark.sql.shuffle.partitions", {cores}).getOrCreate()
rows = spark.readStream.schema("{schema}").option("header", True).format("{format}").load("in")
kept = rows.filter("{condition}")
sums = kept.groupBy("key").agg(F.sum("value").alias("total"), F.count("*").alias("n"), F.max("value").alias("top"))


def append(frame, batch):
    frame.write.mode("append").json("out")


stream = sums.writeStream.outputMode("update").option("checkpointLocation", "checkpoint")
stream.trigger(availableNow=True).foreachBatch(append).start().awaitTermination()
spark.stop()
"""

NAME = "program.py"


def write_ours(directory: Path, format: str) -> None:
    (directory / NAME).write_text(OURS.format(format=format, schema=SCHEMA, condition=CONDITION))


def write_theirs(directory: Path, format: str) -> None:
    cores = os.cpu_count() or 2
    text = THEIRS.format(format=format, schema=SCHEMA, condition=CONDITION, cores=cores)
    (directory / NAME).write_text(text)
