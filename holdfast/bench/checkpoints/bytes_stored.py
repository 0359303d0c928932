"""`holdfast bench checkpoint-bytes`: what reaches the store, over what changed.

A state of 64 MB of which exactly one key in a hundred changes between two epochs, over at least three whole cycles of
base and deltas. *Changed* are the uncompressed Arrow bytes of the rows that changed. `delta_bytes_over_changed` is of
the epochs stored as deltas, their manifests left out; `total_bytes_over_changed` is of everything written to the store.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.bench.checkpoints.filled_run import FilledRun, filled
from holdfast.bench.checkpoints.throughput import ROW_BYTES
from holdfast.bench.measure.inputs import write_keyed
from holdfast.bench.measure.place import bench_place
from holdfast.bench.subjects.state_growth import epochs_of
from holdfast.checkpoint import manifest as manifests
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, RegionName

SIZE_MB = 64
CYCLES = 3
SHARE = 100
WAIT_S = 60.0


def bench_checkpoint_bytes(
    size_mb: int = SIZE_MB,
    cycles: int = CYCLES,
    *,
    pairs: int = 5,
    seconds: float = 10.0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    keys = size_mb * 1_000_000 // ROW_BYTES
    changed = keys // SHARE
    with bench_place(quiet) as place, filled(place, keys, {"trigger": "manual"}) as run:
        found: list[EpochBytes] = [_epoch(run)]
        order = np.random.default_rng(keys).permutation(keys)
        while count_cycles(found) < cycles:
            number = len(found)
            at = number * changed % (keys - changed)
            _step(run, place.root / f"step-{number}.parquet", order[at : at + changed], number)
            found.append(_epoch(run))
            if number % 50 == 0:
                place.console.print(
                    f"{number} epochs, {count_cycles(found)} of {cycles} cycles of the longest kind"
                )
        return report(found[1:], round(run.state_bytes()[1] * changed), keys) | {
            "configuration": place.configuration(keys=keys, keys_changed_per_epoch=changed)
        }


@dataclass(frozen=True, slots=True)
class EpochBytes:
    """One epoch: its form, and what it brought into the store."""

    form: str
    deltas: int
    segments: int
    everything: int


def _step(run: FilledRun, path: Path, keys: Any, number: int) -> None:
    write_keyed(path, keys, np.random.default_rng(number))
    done = len(run.times.done)
    path.rename(run.files / f"b-{number:07}.parquet")
    run.times.wait_for(done + 1, run.job)


def _epoch(run: FilledRun) -> EpochBytes:
    """Establish an epoch and see what it wrote."""
    before, written, segments = epochs_of(run.job), run.store.bytes_written, sum(run.store.segment_bytes)
    run.job.trigger_epoch()
    limit = time.monotonic() + WAIT_S
    while epochs_of(run.job) == before:
        if time.monotonic() > limit:
            raise HoldfastError(f"no epoch was published within {WAIT_S:.0f} s.")
        time.sleep(0.002)
    (status,) = run.job.status()["regions"].values()
    region, epoch = RegionName("bench"), Epoch(status["epoch"])
    manifest = manifests.decode(run.store.manifest(region, epoch), f"epoch {epoch}")
    form = manifest.operators()["by_key"].form
    assert form is not None
    return EpochBytes(
        form.kind,
        form.deltas,
        sum(run.store.segment_bytes) - segments,
        run.store.bytes_written - written,
    )


def count_cycles(found: list[EpochBytes]) -> int:
    """Whole cycles of a base and the greatest number of deltas seen."""
    lengths = [before.deltas for before, after in pairwise(found) if after.form == "base"]
    longest = max(lengths, default=0)
    return sum(length >= 0.9 * longest for length in lengths) if longest > 1 else 0


def report(found: list[EpochBytes], changed: int, keys: int) -> dict[str, Any]:
    """The figures; `changed`: bytes that changed in each epoch."""
    deltas = [epoch.segments for epoch in found if epoch.form == "delta"]
    return {
        "bench": "checkpoint-bytes",
        "delta_bytes_over_changed": round(sum(deltas) / (changed * len(deltas)), 4),
        "total_bytes_over_changed": round(sum(e.everything for e in found) / (changed * len(found)), 4),
        "epochs": len(found),
        "bases": sum(epoch.form == "base" for epoch in found),
        "longest_chain": max(epoch.deltas for epoch in found),
        "changed_bytes_per_epoch": changed,
        "base_bytes": [epoch.segments for epoch in found if epoch.form == "base"],
        "keys": keys,
    }
