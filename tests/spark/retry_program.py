"""Child of test_spark_retries: a run in which the first attempt of a task fails, once in a map and once in a keyed stage.

Everything here is shipped to the workers by value: they cannot import this file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.runtime.spark import keyed
from holdfast.runtime.spark.session import make_session
from holdfast.runtime.spark.stage import KeyedStage


def first_time(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def main(here: str) -> None:
    class FailingStage(KeyedStage):
        """Does all of its work, leaves its files, and is gone before it can tell."""

        def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            done = list(super().__call__(batches))
            if done and "-s3" in f"-{self.prefix}" and first_time(f"{here}/keyed-failed"):
                raise RuntimeError("the first attempt of a keyed task fails after its work")
            yield from done

    def fail_once(table: pa.Table) -> pa.Table:
        if table["id"][0].as_py() >= 60 and first_time(f"{here}/map-failed"):
            raise RuntimeError("the first attempt of a map task fails")
        return table

    keyed.KeyedStage = FailingStage  # type: ignore[misc]
    session = make_session("retries", "local[2,4]", {"spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("retries")
    rows = [(n, n % 9) for n in range(200)]
    source: Any = hf.Rows(rows, "id long, k int", rows_per_step=40)
    stream = topology.source(source, name="rows").consistent(period=0.3)
    counts = stream.map_arrow(fail_once, "id long, k int").aggregate(
        "k", n=hf.count(), s=hf.sum("id"), name="counts"
    )
    counts.sink(hf.FileSink(f"{here}/out", "json"), name="out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    print(json.dumps(status["regions"]))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
