"""Variance, first, last, lists, sets and quantiles on Spark give what Spark's own functions give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.runtime.engines.spark.stateless import spark_schema
from holdfast.sources import Rows

pytestmark = pytest.mark.spark

SCHEMA = "id long, name string, v double, d decimal(12,3)"
SPECIAL = [0.0, -0.0, float("nan"), None]
ROWS = [
    (
        n,
        None if n % 7 == 3 else f"n{n * n % 11}",
        SPECIAL[n % 4] if n % 5 == 0 and n > 60 else n * 31 % 17 / 4,
        None if n % 9 == 1 else n,
    )
    for n in range(121)
]


def ours() -> dict[str, Any]:
    return {
        "n": hf.count(),
        "named": hf.count("name"),
        "var_d": hf.variance("d"),
        "std_v": hf.stddev("v"),
        "first_name": hf.first("name"),
        "last_v": hf.last("v"),
        "list_name": hf.collect("name"),
        "set_v": hf.collect_set("v"),
        "different_v": hf.count_distinct("v"),
        "median_v": hf.quantile("v", 0.5),
    }


def sparks() -> list[Any]:
    """Without count_distinct: beside it Spark groups twice, and first and last lose their order."""
    return [
        F.count("*").alias("n"),
        F.count("name").alias("named"),
        F.variance("d").alias("var_d"),
        F.stddev("v").alias("std_v"),
        F.first("name").alias("first_name"),
        F.last("v").alias("last_v"),
        F.collect_list("name").alias("list_name"),
        F.sort_array(F.collect_set("v")).alias("set_v"),
        F.percentile_approx("v", 0.5, 10_000).alias("median_v"),
    ]


def test_results_and_types_are_sparks(on_spark: Any, spark: Any) -> None:
    schema = Rows([], SCHEMA).schema()
    columns = list(zip(*ROWS, strict=True))
    table = pa.table([pa.array(c, f.type, from_pandas=False) for c, f in zip(columns, schema, strict=True)], schema=schema)  # fmt: skip
    frame = spark.createDataFrame(table, spark_schema(schema)).coalesce(1).sortWithinPartitions("id")
    groups = frame.withColumn("k", F.expr("id % 4")).groupBy("k")
    wanted = groups.agg(*sparks()).toArrow()
    different = {row["k"]: row["n"] for row in groups.agg(F.count_distinct("v").alias("n")).collect()}
    found = on_spark(
        lambda topology: (
            topology.source(Rows(ROWS, SCHEMA, rows_per_step=50), name="rows")
            .consistent(period=0.05)
            .with_columns(k="id % 4")
            .aggregate("k", name="totals", **ours())
        )
    )
    types = {
        f.name: (str(f.type), str(wanted.schema.field(f.name).type))
        for f in found.schema
        if f.name != "different_v"
    }
    assert {n: p for n, p in types.items() if p[0] != p[1].replace(" not null", "")} == {}
    newest = {row["k"]: row for row in sorted(found.to_pylist(), key=lambda row: row["n"])}
    for row in wanted.to_pylist():
        row["different_v"] = different[row["k"]]
        for name, value in newest.pop(row["k"]).items():
            numbers = isinstance(row[name], float | list) and "list" not in name
            expected = pytest.approx(row[name], rel=1e-12, nan_ok=True) if numbers else row[name]
            assert value == expected, (row["k"], name)
    assert not newest
