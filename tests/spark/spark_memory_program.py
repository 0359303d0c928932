"""Child of test_spark_state_beyond_memory: running sums over long keys on Spark, with a limit on the memory that each
Python worker may take, and on that of the driver.

`python spark_memory_program.py DIRECTORY MASTER DRIVER_MB`; LIMIT_MB is in its environment, where workers find it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from limited_daemon import limit_memory, refuses

import holdfast as hf
from holdfast.runtime.engines.spark.session import make_session

HERE = Path(__file__).parent
INHERITED = ("LIMIT_MB", "ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_")


def main(here: str, master: str, driver_mb: int) -> None:
    limit_mb = int(os.environ["LIMIT_MB"])
    os.environ["PYTHONPATH"] = f"{HERE}:{HERE.parents[1]}"
    settings = {
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.python.daemon.module": "limited_daemon",
        "spark.sql.shuffle.partitions": "2",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        **{f"spark.executorEnv.{name}": os.environ[name] for name in INHERITED},
    }
    session = make_session("large", master, settings)
    session.sparkContext.setLogLevel("OFF")
    limit_memory(driver_mb)
    workers = session.sparkContext.parallelize(range(2), 2).map(lambda _: refuses(limit_mb)).collect()
    topology = hf.Topology("large")
    source = hf.Files(f"{here}/in", "parquet", "k string, v long", max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(name="region", period=1.0, max_consecutive_resets=1)
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
    sums.sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    status = topology.run(session, store=f"file:{here}/store", until="available")
    told = {"refused": [*workers, refuses(driver_mb)], "resets": status["regions"]["region"]["resets"]}
    print(json.dumps(told), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
