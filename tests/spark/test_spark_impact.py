"""`holdfast impact` on Spark: the same kills, through Spark's own jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.chaos.impact.one_run import Setting
from holdfast.chaos.impact.study import study
from holdfast.runtime.engines.spark.engine import SparkEngine

ROWS = [(n, f"k{n % 3}", float(n)) for n in range(200)]


def program(out: Path) -> hf.Topology:
    made = hf.Topology("impact")
    rows = made.source(hf.Rows(ROWS, "id long, k string, v double", rows_per_step=10), name="rows")
    sums = rows.filter("id >= 0").aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
    sums.sink(hf.FileSink(str(out), "parquet"), name="out")
    return made


def test_an_operator_that_loses_its_sums_on_spark_is_recommended(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    setting = Setting(
        lambda: program(out).graph(),
        lambda: SparkEngine(spark, owned=False, partitions=2),
        tmp_path / "stores",
        1.0,
    )
    found = study(setting, chosen=["sums"]).as_dict()
    (sums,) = found["operators"]
    assert found["sinks"]["out"]["key"] == ["k"]
    assert found["recommended"] == ["sums"]
    # The step of the kill is missing, and every later row of the three keys is off.
    assert sums["sinks"]["out"]["missing"] == 3
    assert sums["sinks"]["out"]["wrong"] == 3 * 9
    assert sums["effect_the_other_way"] < sums["effect"]
    assert not out.exists()
