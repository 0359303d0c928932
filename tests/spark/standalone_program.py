"""Child of test_spark_standalone: running sums and windows over Parquet on the cluster whose master it is given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

ROOT = Path(__file__).parents[2]


def main(master: str, here: str) -> None:
    settings = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.cores.max": "2",
    }
    session = make_session("standalone", master, settings)
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("standalone")
    source = hf.Files(f"{here}/in", "parquet", "at timestamp, k string, v long", max_rows_per_step=40)
    rows = topology.source(source, name="in").consistent(name="region", period=0.5)
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
    seconds = rows.filter("v > -1000").aggregate(
        "k", window=hf.tumbling(1, on="at", delay=0), n=hf.count(), total=hf.sum("v"), name="seconds"
    )
    for name, stream in (("sums", sums), ("seconds", seconds)):
        stream.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    hosts = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # type: ignore[union-attr]
    print(json.dumps({**status["regions"]["region"], "executors": hosts}))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
