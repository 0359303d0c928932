"""`bench log` measures both sides, and its figures are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.bench.logs import preserve, taking_turns
from holdfast.bench.logs.append import Work, bench_append, make_batch
from holdfast.bench.pictures import draw
from holdfast.bench.registry import BENCHES, run_bench
from holdfast.errors import ConfigError


def test_the_figures_are_there() -> None:
    small = Work((256,), 16 << 10, 1 << 20, 4, 5, 0.01)
    found = bench_append(small, pairs=2, seconds=0.02, quiet=True)
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


@pytest.mark.spark
def test_parts_on_spark_compare_what_they_find(
    shared_session: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preserve, "SLICE_ROWS", 500)
    monkeypatch.setattr(taking_turns, "WARM_UPS", 0)
    chosen = ["preserve", "query", "stream", "large"]
    found = run_bench("log", pairs=1, seconds=0.01, quiet=True, only=chosen, scale=0.0005)
    assert found["preserve_rows"] == 2000
    assert found["query_rows"] == round(found["query_log_rows"] / 100)
    for name in (
        "preserve_ratio",
        "query_over_all",
        "query_over_parquet",
        "stream_ratio",
        "stream_rows_ratio",
    ):
        assert found[name] > 0
        assert len(found[f"{name}_interval"]["pairs"]) == 1
    assert len(found["large_writer_peak_mb"]) == len(found["large_reader_peak_mb"]) == 8
    assert found["large_log_bytes"] > 1 << 20
    assert [path.name for path in draw(json.loads(json.dumps(found)), tmp_path)] == [
        "log-ratios.png",
        "log-memory.png",
    ]


def test_parts_that_there_are_not_are_refused() -> None:
    with pytest.raises(ConfigError, match="no part 'speed'"):
        run_bench("log", pairs=1, seconds=0.01, quiet=True, only=["speed"])
    with pytest.raises(ConfigError, match="takes no --scale"):
        run_bench("window", pairs=1, seconds=0.01, quiet=True, scale=0.1)
