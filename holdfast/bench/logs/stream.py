"""`readStream` of a log against `readStream` of the same Parquet files: all rows, into Spark's sink that drops them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from holdfast.bench.logs.filled import WIDTH, fill
from holdfast.bench.logs.taking_turns import seconds_of, shares, take_turns
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.ratios import Ratio, speedup_of
from holdfast.sources.logs.spark_format import NAME, register_log_format

BYTES = 256 << 20


def measure_stream(
    place: Place, scale: float, pairs: int, seconds: float
) -> tuple[dict[str, Ratio], dict[str, Any]]:
    register_log_format(place.session)
    with place.directory("stream") as here:
        rows = max(1000, round(scale * BYTES) // WIDTH)
        fill(here / "log", rows, merge=True)
        (here / "files").mkdir()
        for path in (here / "log" / "p00000").glob("*.parquet"):
            os.link(path, here / "files" / path.name)
        read = place.session.readStream
        schema = place.session.read.parquet(str(here / "files")).schema
        sides = {
            "log": lambda: _drained(place, read.format(NAME).load(str(here / "log"))),
            "parquet": lambda: _drained(place, read.schema(schema).parquet(str(here / "files"))),
        }
        rounds = take_turns(place, sides, pairs, seconds)
    told = {"stream_seconds": seconds_of(rounds), "stream_rows": rows}
    return {"stream_ratio": speedup_of(shares(rounds, "parquet", "log"))}, told


def _drained(place: Place, stream: DataFrame) -> int:
    with place.directory("checkpoint") as checkpoint:
        query = _started(stream, checkpoint)
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


def _started(stream: DataFrame, checkpoint: Path) -> Any:
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()
