"""`readStream` of a log against `readStream` of the same Parquet files: all rows, into Spark's sink that drops them.

Each query starts anew. What that takes is measured by queries over a log, and a file, of one row that take turns with the others: `stream_ratio` has it
in it, `stream_rows_ratio` is that of the time that the rows take.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from holdfast.bench.logs.filled import WIDTH, fill
from holdfast.bench.logs.taking_turns import Seconds, Side, seconds_of, shares, take_turns
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.ratios import Ratio, speedup_of
from holdfast.errors import HoldfastError
from holdfast.sources.logs.spark_format import NAME, register_log_format

BYTES = 256 << 20


def measure_stream(
    place: Place, scale: float, pairs: int, seconds: float
) -> tuple[dict[str, Ratio], dict[str, Any]]:
    register_log_format(place.session)
    with place.directory("stream") as here:
        rows = max(1000, round(scale * BYTES) // WIDTH)
        sides = _sides(place, here / "all", rows, "") | _sides(place, here / "one", 1, "_start")
        rounds = take_turns(place, sides, pairs, seconds)
    of_rows = [_without_start(each) for each in rounds]
    report = {"stream_seconds": seconds_of(rounds), "stream_rows": rows}
    ratios = {
        "stream_ratio": speedup_of(shares(rounds, "parquet", "log")),
        "stream_rows_ratio": speedup_of(shares(of_rows, "parquet", "log")),
    }
    return ratios, report


def _sides(place: Place, here: Path, rows: int, kind: str) -> dict[str, Side]:
    here.mkdir()
    fill(here / "log", rows, merge=True)
    (here / "files").mkdir()
    for path in (here / "log" / "p00000").glob("*.parquet"):
        os.link(path, here / "files" / path.name)
    read = place.session.readStream
    schema = place.session.read.parquet(str(here / "files")).schema
    return {
        "log" + kind: lambda: _finds(rows, _drained(place, read.format(NAME).load(str(here / "log")))),
        "parquet" + kind: lambda: _finds(
            rows, _drained(place, read.schema(schema).parquet(str(here / "files")))
        ),
    }


def _finds(wanted: int, found: int) -> bool:
    if found != wanted:
        raise HoldfastError(f"a stream found {found} rows of {wanted}: nothing is measured.")
    return True


def _without_start(each: Seconds) -> Seconds:
    return {side: max(1e-3, each[side] - each[f"{side}_start"]) for side in ("log", "parquet")}


def _drained(place: Place, stream: DataFrame) -> int:
    with place.directory("checkpoint") as checkpoint:
        query = _started(stream, checkpoint)
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)


def _started(stream: DataFrame, checkpoint: Path) -> Any:
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()
