"""Child of test_spark_standalone: running sums behind a map of which one task is slow, so that Spark starts it twice.

Everything here is shipped to the workers by value.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

ROOT = Path(__file__).parents[2]
SLOW_S = 25.0
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    "spark.cores.max": "2",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


def main(master: str, here: str) -> None:
    def slow_once(table: pa.Table) -> pa.Table:
        """The first attempt that meets row 300 sleeps; the second leaves a mark and is quick."""
        if 300 in table.column("id").to_pylist():
            try:
                os.close(os.open(f"{here}/first-attempt", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                Path(f"{here}/second-attempt").touch()
            else:
                time.sleep(SLOW_S)
        return table

    session = make_session("speculation", master, SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    topology = hf.Topology("speculation")
    source = hf.Files(f"{here}/in", "parquet", "id long, k string", max_files_per_step=2)
    rows = topology.source(source, name="in").consistent(name="region", period=0.5)
    sums = rows.map_arrow(slow_once, "id long, k string").aggregate(
        "k", n=hf.count(), total=hf.sum("id"), name="sums"
    )
    sums.sink(hf.FileSink(f"{here}/sums", "parquet"), name="sums_out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    print(json.dumps(status["regions"]["region"]))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
