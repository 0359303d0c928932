"""Our side of a benchmark: a topology run to its end, with the time of every step and the bytes of every epoch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.bench.measure.alternate import Stretch
from holdfast.bench.measure.inputs import rows_in, steps_in
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, RegionName
from holdfast.language.topology import Topology
from holdfast.runtime.job import Job, job_of
from holdfast.runtime.metrics import ElementMetrics
from holdfast.store.base import LocalSegment, SegmentRef
from holdfast.store.files.file_store import FileStore

PERIOD_S = 2.0
POLL_S = 0.1


@dataclass
class StepTimes(ElementMetrics):
    """An element's counters that also keep (when it ended, how long it took) of every step."""

    done: list[tuple[float, float]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def step_done(self, now: float, seconds: float, rows: int, size: int) -> None:
        super().step_done(now, seconds, rows, size)
        with self.changed:
            self.done.append((now, seconds))
            self.changed.notify_all()

    def wait_for(self, steps: int, job: Job) -> None:
        """Until so many steps are done; raises what made the job fail."""
        while True:
            with self.changed:
                if self.changed.wait_for(lambda: len(self.done) >= steps, POLL_S):
                    return
            if job.await_termination(timeout=0.0):
                raise HoldfastError(f"the run ended after {len(self.done)} of {steps} steps.")


class CountingStore(FileStore):
    """The default store, which also counts what an epoch makes durable. The status of a job does not know the bytes of
    segments, because segments may be shared by epochs; here each is counted when it is stored."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bytes_written = 0
        self.segment_bytes: list[int] = []

    def put(self, entry: str, pairs: Mapping[str, bytes]) -> None:
        super().put(entry, pairs)
        self.bytes_written += sum(len(value) for value in pairs.values())

    def put_segments(self, entry: str, segments: Sequence[LocalSegment]) -> list[SegmentRef]:
        refs = super().put_segments(entry, segments)
        self.segment_bytes += [ref.size for ref in refs]
        self.bytes_written += sum(ref.size for ref in refs)
        return refs

    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        super().publish(region, epoch, manifest)
        self.bytes_written += len(manifest)


def watch_steps(job: Job) -> StepTimes:
    """Record the steps of a job that has just been submitted: of its only element, which reads and writes."""
    if len(job.loops) != 1:
        raise HoldfastError(f"the benchmark's graph became {len(job.loops)} elements instead of one.")
    (loop,) = job.loops.values()
    loop.metrics = times = StepTimes(loop.name)
    return times


def wait_until_visible(job: Job, *times: StepTimes) -> float:
    """Wait for the end of a job; says when its last row was visible: with the last epoch, or outside of regions with
    the last step."""
    ended = 0.0
    for region in job.regions.values():
        while not region.done.wait(POLL_S):
            job.await_termination(timeout=0.0)
        ended = time.monotonic()
    job.await_termination()
    return ended or max(one.done[-1][0] for one in times)


def latencies_of(steps: Sequence[tuple[float, float]], since: float) -> Iterator[float]:
    """For steps (end, seconds) over batches that are all there: how long each batch was the next in line until its rows
    were handed to the sink. That is the step, what the loop does before it, and what an epoch holds it up."""
    for end, seconds in steps:
        yield max(seconds, end - since)
        since = end


def run_topology(
    topology: Topology, session: SparkSession, files: Path, store: CountingStore | None
) -> Stretch:
    """Run over all files of a directory, one per step (of each stream, if it has one directory per stream)."""
    count = steps_in(files)
    job = job_of(topology.submit(spark=session, store=store, until="available"))
    times = watch_steps(job)
    ended = wait_until_visible(job, times)
    if len(times.done) != count:
        raise HoldfastError(f"{count} files became {len(times.done)} steps: steps may not be merged.")
    begun = times.done[0][0] - times.done[0][1]
    return Stretch(
        seconds=ended - begun,
        rows=rows_in(files),
        steps=count,
        latencies_s=tuple(latencies_of(times.done, begun)),
        step_s=tuple(seconds for _, seconds in times.done),
        epochs=sum(region.metrics.epochs_published for region in job.regions.values()),
        bytes_written=0 if store is None else store.bytes_written,
    )
