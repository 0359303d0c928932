"""A question about 1 % of a log, against reading all of it, and against `spark.read.parquet` of those rows alone.

    query     log.between(t1, t2), and sums over all columns
    all       the same sums over all rows of the log
    parquet   the same sums over a Parquet file that has nothing but those rows

All have the same sums over the stretch, or nothing is measured. Time runs from the question, so that to choose segments counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from holdfast.bench.logs.filled import WIDTH, fill, moment
from holdfast.bench.logs.taking_turns import seconds_of, shares, take_turns
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.ratios import Ratio, speedup_of
from holdfast.log.log import Log
from holdfast.log.query.wanted import between

SHARE = 0.01
BYTES = 1 << 30


def measure_query(
    place: Place, scale: float, pairs: int, seconds: float
) -> tuple[dict[str, Ratio], dict[str, Any]]:
    with place.directory("query") as here:
        rows = max(1000, round(scale * BYTES) // WIDTH)
        fill(here / "log", rows, merge=True)
        log = Log(here / "log")
        first, count = rows // 2, max(1, round(rows * SHARE))
        stretch = moment(first), moment(first + count)
        pq.write_table(log.table(*stretch), here / "same.parquet", compression="zstd")
        rounds = take_turns(place, _sides(place, log, stretch, here / "same.parquet"), pairs, seconds)
        chosen = log.choose(between(*stretch))
        report = {
            "query_seconds": seconds_of(rounds),
            "query_rows": count,
            "query_log_rows": rows,
            "query_log_bytes_on_disk": sum(
                each.stat().st_size for each in (here / "log" / "p00000").iterdir()
            ),
            "query_segments": [len(chosen.chosen), chosen.segments],
        }
    ratios = {
        "query_over_all": speedup_of(shares(rounds, "query", "all")),
        "query_over_parquet": speedup_of(shares(rounds, "query", "parquet")),
    }
    return ratios, report


def _sides(place: Place, log: Log, stretch: Any, same: Path) -> dict[str, Callable[[], Any]]:
    t1, t2 = stretch
    session = place.session
    return {
        "query": lambda: _sums(log.between(t1, t2, spark=session)),
        "all": lambda: _sums_within(log.between(None, None, spark=session), t1, t2),
        "parquet": lambda: _sums(session.read.parquet(str(same))),
    }


SUMS = ("count(1) as rows", "sum(id) as ids", "sum(length(text)) as letters", "round(sum(value), 3) as value")


def _sums(frame: DataFrame) -> tuple[Any, ...]:
    """Reads every column."""
    return tuple(frame.selectExpr(*SUMS, "max(at) as last").drop("last").first() or ())


def _sums_within(frame: DataFrame, t1: Any, t2: Any) -> tuple[Any, ...]:
    """The same sums, by a condition that Spark cannot use to leave something out."""
    inside = f"unix_micros(at) >= {round(t1.timestamp() * 1e6)} and unix_micros(at) < {round(t2.timestamp() * 1e6)}"
    return _sums(frame.filter(inside))
