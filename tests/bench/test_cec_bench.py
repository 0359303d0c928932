"""`bench cec` measures both sides, compares their results, and its figures are there."""

from __future__ import annotations

from pathlib import Path

from holdfast.bench.pictures import draw
from holdfast.bench.registry import BENCHES
from holdfast.bench.subjects.cec import Work, bench_cec
from holdfast.runtime.engines.local import LocalEngine


def test_the_figures_are_there(tmp_path: Path) -> None:
    small = Work(step_rows=1500, steps_min=2, steps_max=2, checks_ms=(2,), windows=100, window_rows=40)
    found = bench_cec(small, pairs=1, seconds=0.01, quiet=True, engines=LocalEngine)
    for regime in ("fast", "slow", "mixed"):
        for side in ("open", "2ms"):
            assert found[f"normalized_throughput_{regime}_{side}"] > 0
    example = found["worked_example"]
    assert example["windows"] == 100
    assert 0 < example["state_bytes_read"] <= 10_000
    assert example["bytes_replayed"] == 100 * 40 * 0.9 * 100
    assert example["incremental_state_bytes_read"] > 0
    assert [file.name for file in draw(found, tmp_path)] == ["cec.png"]
    assert "cec" in BENCHES
