"""`holdfast bench checkpoint-throughput`: what epochs of a large state cost the work between them.

A running aggregate with a state of 8, 64 and 512 MB, of which a tenth of the keys changes between two epochs 8 s apart.

    region   in a consistent region: changes stored as deltas and bases, fsync, output committed
    free     the same graph without a region, its live directory in memory

Both runs stay alive and take turns. `normalized_throughput_<size>`: rows per second of the first over the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from holdfast.bench.checkpoints.filled_run import FilledRun, SlicedInputs, filled
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, ratio_of
from holdfast.bench.measure.report import figure
from holdfast.bench.subjects.state_growth import epochs_of
from holdfast.errors import HoldfastError

PERIOD_S = 8.0
ROW_BYTES = 49
"""Of the benchmark's state, per key."""
SIZES_MB = (8, 64, 512)
SLICES = 10
STRETCH = 6
"""Epochs in a stretch, at least. Not all stretches have a base, which costs several deltas: the details tell the ratio of
all seconds as well, in which bases count by how often they came."""
ROWS = 200_000
WARM_UP = 40


def bench_checkpoint_throughput(
    sizes_mb: Sequence[int] = SIZES_MB, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. Stretches last several epochs."""
    result: dict[str, Any] = {"bench": "checkpoint-throughput"}
    with bench_place(quiet) as place:
        for size in sizes_mb:
            ratio, more = _size(place, size, pairs, max(seconds, STRETCH * PERIOD_S))
            place.console.print(f"{size} MB: normalized throughput {ratio}")
            result |= figure(f"normalized_throughput_{size}mb", ratio)
            result[f"details_{size}mb"] = more
        result["configuration"] = place.configuration(
            period_s=PERIOD_S, rows_per_step=ROWS, keys_changed_per_epoch=f"1/{SLICES}"
        )
    return result


def _size(place: Place, size_mb: int, pairs: int, seconds: float) -> tuple[Ratio, dict[str, Any]]:
    keys = size_mb * 1_000_000 // ROW_BYTES
    region = {"period": PERIOD_S}
    with filled(place, keys, None, in_memory=True) as free, filled(place, keys, region) as bound:
        probe = SlicedInputs(place.root / f"probe-{size_mb}", ROWS, keys, SLICES, 1)
        free.run(probe, WARM_UP)
        bound.run(probe, WARM_UP)
        pace = free.run(probe, WARM_UP) / WARM_UP
        turn = max(1, round(PERIOD_S / pace))
        inputs = SlicedInputs(place.root / f"sliced-{size_mb}", ROWS, keys, SLICES, turn)
        steps = math.ceil(seconds / pace)
        epochs, written = epochs_of(bound.job), bound.store.bytes_written
        found, seconds_of = [], {id(free): 0.0, id(bound): 0.0}
        for number in range(pairs):
            order = (free, bound) if number % 2 == 0 else (bound, free)
            took = {id(run): run.run(inputs, steps) for run in order}
            found.append(took[id(free)] / took[id(bound)])
            seconds_of = {run: spent + took[run] for run, spent in seconds_of.items()}
            place.console.print(
                f"  {size_mb} MB, pair {number + 1} of {pairs}: {steps} steps in {took[id(bound)]:.2f} s, without epochs {took[id(free)]:.2f} s"
            )
        overall = seconds_of[id(free)] / seconds_of[id(bound)]
        more = _details(bound, keys, epochs, written, steps, pace)
        return ratio_of(found), {"overall": round(overall, 4), **more}


def _details(run: FilledRun, keys: int, epochs: int, written: int, steps: int, pace: float) -> dict[str, Any]:
    published = epochs_of(run.job) - epochs
    if not published:
        raise HoldfastError("no epoch was published while the steps were measured.")
    events = [event.data for event in run.store.events() if event.kind == "epoch.published"]
    (status,) = run.job.status()["regions"].values()
    return {
        "keys": keys,
        "state_bytes": run.state_bytes()[0],
        "steps_per_stretch": steps,
        "step_ms_without_epochs": round(1000 * pace, 1),
        "epochs_published": published,
        "store_bytes_written": run.store.bytes_written - written,
        "epoch_ms": [round(event["ms"]) for event in events[-published:]],
        "longest_pause_ms": status["longest_pause_ms"],
    }
