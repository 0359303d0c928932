"""`bench log` measures both sides, and its figures are there."""

from __future__ import annotations

from holdfast.bench.registry import BENCHES
from holdfast.bench.subjects.log import Work, bench_log, make_batch


def test_the_figures_are_there() -> None:
    small = Work((256,), 16 << 10, 1 << 20, 4, 5, 0.01)
    found = bench_log(small, pairs=2, seconds=0.02, quiet=True)
    assert found["append_ratio_256"] > 0
    assert len(found["append_ratio_256_interval"]["pairs"]) == 2
    assert found["side_256"]["log_mb_per_s"] > 0
    assert found["latency_ms"]["log"]["p50"] > 0
    assert "added_latency_p50_ms" in found
    assert "log" in BENCHES


def test_rows_have_the_width_that_is_asked_for() -> None:
    for width in (256, 1024, 4096):
        batch = make_batch(width, 256 << 10)
        assert abs(batch.serialize().size / batch.num_rows - width) < 0.05 * width
