"""Child of test_spark_retries: a run in which the first attempt of a task fails, once in a map and once in a keyed stage.

Everything here is shipped to the workers by value: they cannot import this file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf
from holdfast.runtime.engines.spark import keyed
from holdfast.runtime.engines.spark.session import make_session
from holdfast.runtime.engines.spark.stage import KeyedStage


def first_time(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def main(here: str) -> None:
    class FailingStage(KeyedStage):
        """Does all of its work, leaves its files, and is gone before it can tell."""

        def apply(self, partition: int, attempt: int, pieces: Sequence[pa.Table]) -> dict[str, Any] | None:
            done = super().apply(partition, attempt, pieces)
            if done and "-s3" in f"-{self.prefix}" and first_time(f"{here}/{self.task.operator}-failed"):
                raise RuntimeError("the first attempt of a keyed task fails after its work")
            return done

    def fail_once(table: pa.Table) -> pa.Table:
        if table["id"][0].as_py() >= 60 and first_time(f"{here}/map-failed"):
            raise RuntimeError("the first attempt of a map task fails")
        return table

    keyed.KeyedStage = FailingStage  # type: ignore[misc]
    session = make_session("retries", "local[2,4]", {"spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("retries")
    rows = [(n, n % 9) for n in range(200)]
    os.makedirs(f"{here}/in")
    ids, keys = zip(*rows, strict=True)
    pq.write_table(pa.table({"id": ids, "k": pa.array(keys, pa.int32())}), f"{here}/in/part.parquet")
    source: Any = hf.Rows(rows, "id long, k int", rows_per_step=40)
    stream = topology.source(source, name="rows").consistent(period=0.3)
    counts = stream.map_arrow(fail_once, "id long, k int").aggregate(
        "k", n=hf.count(), s=hf.sum("id"), name="counts"
    )
    counts.sink(hf.FileSink(f"{here}/out", "json"), name="out")
    # The same without a shuffle, with tasks that write the sink's files themselves.
    files = hf.Files(f"{here}/in", "parquet", "id long, k int", max_rows_per_step=40)
    direct = topology.source(files, name="files").consistent(name="direct", period=0.3)
    direct_counts = direct.aggregate("k", n=hf.count(), s=hf.sum("id"), name="direct_counts")
    direct_counts.sink(hf.FileSink(f"{here}/direct", "parquet"), name="direct_out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    print(json.dumps(status["regions"]))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
