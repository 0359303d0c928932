"""`holdfast bench checkpoint`: all checkpoint benchmarks one after another, in one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.bench.checkpoints.bytes_stored import bench_checkpoint_bytes
from holdfast.bench.checkpoints.join import bench_checkpoint_join
from holdfast.bench.checkpoints.pause import bench_checkpoint_pause
from holdfast.bench.checkpoints.restore import bench_checkpoint_bound, bench_checkpoint_restore
from holdfast.bench.checkpoints.throughput import bench_checkpoint_throughput

PARTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "checkpoint-throughput": bench_checkpoint_throughput,
    "checkpoint-pause": bench_checkpoint_pause,
    "checkpoint-bytes": bench_checkpoint_bytes,
    "checkpoint-join": bench_checkpoint_join,
    "checkpoint-restore": bench_checkpoint_restore,
    "checkpoint-bound": bench_checkpoint_bound,
}

FIGURES = (
    "normalized_throughput_", "pause_ms_p99", "delta_bytes_over_changed", "total_bytes_over_changed",
    "join_normalized", "deadline_met", "restore_ratio_vs_spark", "bound_met",
)  # fmt: skip


def bench_checkpoint(*, pairs: int = 5, seconds: float = 10.0, quiet: bool = False) -> dict[str, Any]:
    """Run them all; the figures on top, what each part said below."""
    parts = {name: part(pairs=pairs, seconds=seconds, quiet=quiet) for name, part in PARTS.items()}
    figures = {
        field: value
        for part in parts.values()
        for field, value in part.items()
        if field.startswith(FIGURES) and not field.endswith(("_interval", "_intervals"))
    }
    return {"bench": "checkpoint", **figures, "parts": parts}
