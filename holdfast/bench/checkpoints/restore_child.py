"""One driver of the restore benchmarks, in a process of its own so that it can be killed: `python -m … CONFIG`.

It says what it does in lines of JSON on its standard output: {"ready"}, {"filled", "step_s"}, {"first_s", …}.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from holdfast.bench.measure import side_spark
from holdfast.bench.measure.inputs import KEYED_SCHEMA
from holdfast.bench.measure.place import SETTINGS
from holdfast.bench.measure.side_holdfast import watch_steps
from holdfast.bench.subjects.keyed import keyed_topology
from holdfast.bench.subjects.state_growth import establish_epochs
from holdfast.runtime.engines.spark.session import make_session
from holdfast.runtime.job import job_of

MEMORY = "10g"
"""Structured Streaming's default store keeps its state as objects in the JVM: ten million keys need several GB."""
BACK = 0.9
LOOK_AT = 5


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(config: dict[str, Any]) -> None:
    session = make_session("holdfast bench", settings={**SETTINGS, "spark.driver.memory": MEMORY})
    session.range(1).count()
    begun = time.monotonic()
    say(ready=True)
    act = _ours if config["side"] == "holdfast" else _spark
    act(session, config, begun)
    time.sleep(3600)  # until killed


def _ours(session: SparkSession, config: dict[str, Any], begun: float) -> None:
    region = {"period": config["period"], "restore_within": config.get("restore_within")}
    topology = keyed_topology(Path(config["files"]), Path(config["out"]), region)
    job = job_of(topology.submit(spark=session, store=config["store"]))
    times = watch_steps(job)
    steps = config["steps"]
    if config.get("first"):
        times.wait_for(1, job)
        (status,) = job.status()["regions"].values()
        restored = {k: v for k, v in status.items() if k.startswith("restore")}
        say(first_s=time.monotonic() - begun, **restored)
    times.wait_for(steps, job)
    establish_epochs(job, 2)
    say(filled=True, step_s=median(s for _, s in times.done[-20:]), back_s=_back(times.done, begun, config))
    (status,) = job.status()["regions"].values()
    say(status={k: v for k, v in status.items() if k.startswith("restore")})


def _back(done: list[tuple[float, float]], begun: float, config: dict[str, Any]) -> float | None:
    """Seconds until the rate was back: some steps in a row that took no longer than they used to, nearly."""
    usual = config.get("usual_step_s")
    if usual is None:
        return None
    ends = [begun, *(end for end, _ in done)]
    for last in range(LOOK_AT, len(ends)):
        if (ends[last] - ends[last - LOOK_AT]) / LOOK_AT <= usual / BACK:
            return ends[last] - begun
    return None


def _spark(session: SparkSession, config: dict[str, Any], begun: float) -> None:
    for key, value in {**side_spark.COMMON, **side_spark.PROVIDERS[config["side"]]}.items():
        session.conf.set(key, value)
    reader = session.readStream.schema(from_arrow_schema(KEYED_SCHEMA)).option("maxFilesPerTrigger", 1)
    ends: list[float] = []

    def append(frame: DataFrame, batch: int) -> None:
        frame.write.mode("append").parquet(config["out"])
        ends.append(time.monotonic())
        if len(ends) == 1 and config.get("first"):
            say(first_s=ends[0] - begun)

    query = (
        side_spark.aggregated(reader.parquet(config["files"]))
        .writeStream.outputMode("update")
        .option("checkpointLocation", config["store"])
        .foreachBatch(append)
        .start()
    )
    while len(ends) < config["steps"]:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(0.05)
    gaps = [after - before for before, after in pairwise(ends)][-20:]
    done = [(end, 0.0) for end in ends]
    say(filled=True, step_s=median(gaps) if gaps else 0.0, back_s=_back(done, begun, config))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
