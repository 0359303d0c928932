"""The sides of `bench latency`: a keyed aggregate over files that keep coming, into files that appear when their rows are for good."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast as hf
from holdfast.bench.measure import side_spark
from holdfast.bench.measure.inputs import KEYED_SCHEMA
from holdfast.bench.measure.place import Place, jvm
from holdfast.bench.measure.side_holdfast import watch_steps
from holdfast.bench.waiting.budget import Budget
from holdfast.bench.waiting.observer import Pace, Seen
from holdfast.errors import HoldfastError
from holdfast.runtime.job import job_of

OURS, THEIRS = "holdfast", "spark_default"
PERIOD_S = 0.2
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Waited:
    """What one side did in one stretch."""

    seen: Seen
    steps_s: tuple[float, ...] = ()
    """Of its steps or micro-batches, as it reports them."""
    epochs: int = 0


def topology_of(pace: Pace, files: Path, out: Path) -> hf.Topology:
    """Exactly-once, an epoch every 0.2 s."""
    topology = hf.Topology("latency")
    source = hf.Files(files, format=pace.format, schema=KEYED_SCHEMA)  # type: ignore[arg-type]
    rows = topology.source(source, name="in").consistent(name="latency", period=PERIOD_S)
    changes = rows.aggregate(
        "key", emit="changes", name="by_key", total=hf.sum("value"), n=hf.count(), top=hf.max("value")
    )
    changes.sink(hf.FileSink(out, format="parquet"), name="out")
    return topology


def run_ours(place: Place, pace: Pace, files: Path, out: Path, budget: Budget) -> Waited:
    with place.directory("store") as store, observer(pace, files, out) as watcher, budget.measuring():
        job = job_of(topology_of(pace, files, out).submit(spark=place.session, store=str(store)))
        times = watch_steps(job)
        try:
            seen = watched(watcher)
        finally:
            job.stop()
        epochs = sum(region.metrics.epochs_published for region in job.regions.values())
        return Waited(seen, tuple(seconds for _, seconds in times.done), epochs)


def run_theirs(place: Place, pace: Pace, files: Path, out: Path) -> Waited:
    for key, value in {**side_spark.COMMON, **side_spark.PROVIDERS[THEIRS]}.items():
        place.session.conf.set(key, value)
    rows = (
        place.session.readStream.schema(from_arrow_schema(KEYED_SCHEMA)).format(pace.format).load(str(files))
    )

    def append(frame: DataFrame, batch: int) -> None:
        frame.write.mode("append").parquet(str(out))

    with place.directory("checkpoint") as checkpoint, observer(pace, files, out) as watcher:
        running = (
            side_spark.aggregated(rows)
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(append)
            .start()
        )
        try:
            seen = watched(watcher)
            batches = [progress for progress in running.recentProgress if progress["numInputRows"]]
        finally:
            running.stop()
            jvm(place.session).org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    return Waited(seen, tuple(batch["durationMs"]["triggerExecution"] / 1000 for batch in batches))


@contextmanager
def observer(pace: Pace, files: Path, out: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that will write and look; it is ready."""
    task = {"pace": asdict(pace), "input": str(files), "output": str(out), "timeout_s": TIMEOUT_S}
    command = [sys.executable, "-m", "holdfast.bench.waiting.observer", json.dumps(task)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        _line(process.stdout)
        yield process
    finally:
        process.kill()
        process.wait()


def watched(process: subprocess.Popen[str]) -> Seen:
    """Let it begin; what it saw."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    answer = json.loads(_line(process.stdout))
    return Seen(tuple(answer["latencies_s"]), answer["seconds"])


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline()
    if not line:
        raise HoldfastError("not all rows became visible in time.")
    return line
