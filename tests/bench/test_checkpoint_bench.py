"""The checkpoint benchmarks: cycles of bases and deltas, keys in slices, pictures; and on Spark two of them at a small size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.bench.checkpoints.all import FIGURES, PARTS
from holdfast.bench.checkpoints.bytes_stored import EpochBytes, count_cycles, report
from holdfast.bench.checkpoints.filled_run import SlicedInputs
from holdfast.bench.checkpoints.pause import bench_checkpoint_pause
from holdfast.bench.checkpoints.plots import PICTURES, draw
from holdfast.bench.checkpoints.restore import bench_checkpoint_bound


def epochs(forms: str) -> list[EpochBytes]:
    """Of forms as letters: a base has 100 bytes and a delta 10, each with 1 byte of manifest."""
    found, deltas = [], 0
    for form in forms:
        deltas = 0 if form == "b" else deltas + 1
        size = 100 if form == "b" else 10
        found.append(EpochBytes("base" if form == "b" else "delta", deltas, size, size + 1))
    return found


@pytest.mark.parametrize(
    ("forms", "cycles"),
    [("b", 0), ("bdbddb", 1), ("bdbddddbddddb", 2), ("bdbddddbdddd", 1), ("bbbb", 0)],
)
def test_only_whole_cycles_of_the_longest_kind_count(forms: str, cycles: int) -> None:
    assert count_cycles(epochs(forms)) == cycles


def test_bytes_are_over_what_changed() -> None:
    told = report(epochs("bdddd"), 10, 1000)
    assert told["delta_bytes_over_changed"] == 1.0
    assert told["total_bytes_over_changed"] == (101 + 4 * 11) / 50
    assert told["bases"] == 1


def test_files_take_their_keys_from_one_slice_after_the_other(tmp_path: Path) -> None:
    inputs = SlicedInputs(tmp_path / "made", rows=50, keys=1000, slices=10, turn=3, distinct=2)
    (tmp_path / "in").mkdir()
    inputs.link_from(tmp_path / "in", 0, 40)
    slices = [
        {key // 100 for key in pq.read_table(path).column("key").to_pylist()}
        for path in sorted((tmp_path / "in").iterdir())
    ]
    assert slices == [{number // 3 % 10} for number in range(40)]


RESULTS: dict[str, dict[str, Any]] = {
    "checkpoint-throughput": {
        "normalized_throughput_8mb": 0.97,
        "normalized_throughput_8mb_interval": {"pairs": [0.9, 1.0]},
    },
    "checkpoint-pause": {"pause_ms": {"p50": 1.0, "p99": 3.0}, "epochs": 100},
    "checkpoint-bytes": {
        "delta_bytes_over_changed": 1.0, "total_bytes_over_changed": 1.9, "epochs": 9, "bases": 2,
    },
    "checkpoint-join": {
        "join_normalized_intervals": {
            "8192.512.1s": {"median": 0.98, "low": 0.96, "high": 1.0},
            "per_group_zipf.512.10s": {"median": 1.0, "low": 0.9, "high": 1.1},
        },
        "deadline_met": 1.0,
    },
    "checkpoint-restore": {"first_s": {"holdfast": [1.0], "spark_default": [4.0]}, "state_mb": 512},
    "checkpoint-bound": {"restore_s": {"1": [0.3]}, "predicted_s": {"1": [0.4]}, "restores": 1},
}  # fmt: skip


def test_every_part_has_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    assert set(PICTURES) >= set(PARTS) == set(RESULTS)
    files = draw({"bench": "checkpoint", "parts": RESULTS}, tmp_path / "pictures")
    assert [file.stem for file in files] == list(RESULTS)
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_the_figures_on_top_are_those_that_parts_have() -> None:
    fields = [field for part in RESULTS.values() for field in part]
    for figure in FIGURES:
        if figure not in ("pause_ms_p99", "restore_ratio_vs_spark", "bound_met"):
            assert any(field.startswith(figure) for field in fields), figure


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_pause_benchmark_runs_through() -> None:
    """The run is at rest when its state is filled: epochs that it waits for must be asked for."""
    result = bench_checkpoint_pause(1, 3, seconds=1.0, quiet=True)
    assert result["epochs"] >= 3
    assert result["pause_ms_p99"] > 0
    assert result["state_bytes"] > 0


@pytest.mark.spark
@pytest.mark.chaos
def test_a_small_bound_benchmark_runs_through() -> None:
    result = bench_checkpoint_bound(1, (5.0,), 1, quiet=True)
    assert result["restores"] == 1
    assert result["predicted_s"]["5"]
