"""Child of test_spark_short_way_kills: Parquet → running aggregate and windows → Parquet, tasks read and write themselves.

`DEADLY=1`: the first task from step 5 on kills its own worker after all its work. `FULL=path`: while that file is there, tasks
that write for the sink find the disk full. Everything here is shipped to the workers by value.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.language.connectors import StepId, TaskWriter
from holdfast.runtime.engines.spark import keyed
from holdfast.runtime.engines.spark.session import make_session
from holdfast.runtime.engines.spark.stage import KeyedStage


def main(here: str) -> None:
    deadly, full = bool(os.environ.get("DEADLY")), os.environ.get("FULL", "")

    class DeadlyStage(KeyedStage):
        """Its worker dies when segments and the sink's files are written and nobody knows of them yet."""

        def apply(self, partition: int, attempt: int, arrived: Any) -> dict[str, Any] | None:
            done = super().apply(partition, attempt, arrived)
            marker = f"{here}/died-in-{self.task.operator}"
            step = int(self.prefix.rpartition("-s")[2])
            if done and step >= 5 and not os.path.exists(marker):
                os.close(os.open(marker, os.O_CREAT))
                os.kill(os.getpid(), signal.SIGKILL)
            return done

    class Full(hf.FileSink):
        def task_writer(self, step: StepId) -> TaskWriter | None:
            writer = super().task_writer(step)
            assert writer is not None

            def write(table: pa.Table, partition: int, attempt: int) -> Any:
                if full and os.path.exists(full):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return writer(table, partition, attempt)

            return write

        def accepts_writes(self) -> bool:
            return not (full and os.path.exists(full))

    if deadly:
        keyed.KeyedStage = DeadlyStage  # type: ignore[misc]
    session = make_session("short way", "local[2]", {"spark.driver.memory": "1g"})
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("short_way")
    source = hf.Files(f"{here}/in", "parquet", "at timestamp, k string, v long", max_rows_per_step=100)
    rows = topology.source(source, name="in").consistent(name="region", period=0.5)
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
    seconds = rows.aggregate(
        "k", window=hf.tumbling(1, on="at", delay=0), n=hf.count(), total=hf.sum("v"), name="seconds"
    )
    sinks: Sequence[tuple[str, Any]] = (("sums", sums), ("seconds", seconds))
    for name, stream in sinks:
        stream.sink(Full(f"{here}/{name}", "parquet"), name=f"{name}_out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    print(json.dumps(status["regions"]["region"]))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
