"""`holdfast bench checkpoint-pause`: how long an epoch keeps an element from its next step.

A state of 512 MB, epochs every second, at least 100 of them, input always waiting. The element itself measures the
time in which it had input but ran no step because of an epoch: handling the request, sealing the sink's output,
pinning the state, passing markers on. `pause_ms_p99` is over all epochs.
"""

from __future__ import annotations

import math
from typing import Any

from holdfast.bench.checkpoints.filled_run import SlicedInputs, filled
from holdfast.bench.checkpoints.throughput import ROW_BYTES, ROWS, SLICES, WARM_UP
from holdfast.bench.measure.place import bench_place
from holdfast.bench.measure.ratios import quantile
from holdfast.bench.subjects.state_growth import epochs_of
from holdfast.errors import HoldfastError

SIZE_MB = 512
PERIOD_S = 1.0
EPOCHS = 100


def bench_checkpoint_pause(
    size_mb: int = SIZE_MB,
    epochs: int = EPOCHS,
    *,
    seconds: float = 10.0,
    quiet: bool = False,
    **_: object,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    keys = size_mb * 1_000_000 // ROW_BYTES
    with bench_place(quiet) as place, filled(place, keys, {"period": PERIOD_S}) as run:
        inputs = SlicedInputs(place.root / "sliced", ROWS, keys, SLICES, 8)
        pace = run.run(inputs, WARM_UP) / WARM_UP
        (life,) = (life for region in run.job.regions.values() for life in region.lives.values())
        before, begun = epochs_of(run.job), len(life.pauses.seconds)
        while epochs_of(run.job) - before < epochs:
            run.run(inputs, math.ceil(seconds / pace))
        pauses = list(life.pauses.seconds)[begun:]
        if len(pauses) < epochs:
            raise HoldfastError(f"only {len(pauses)} pauses were measured for {epochs} epochs.")
        place.console.print(f"{len(pauses)} epochs: p99 {1000 * quantile(pauses, 0.99):.1f} ms")
        return {
            "bench": "checkpoint-pause",
            "pause_ms_p99": round(1000 * quantile(pauses, 0.99), 2),
            "pause_ms": {f"p{q}": round(1000 * quantile(pauses, q / 100), 2) for q in (50, 90, 99, 100)},
            "epochs": len(pauses),
            "state_bytes": run.state_bytes()[0],
            "configuration": place.configuration(period_s=PERIOD_S, rows_per_step=ROWS, keys=keys),
        }
