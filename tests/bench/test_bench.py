"""Every benchmark runs through at a small size: outputs are compared, epochs published, figures there."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from holdfast.bench.registry import BENCHES, run_bench
from holdfast.bench.subjects import stateless, stream_join
from holdfast.bench.subjects.join import Cell, Scale, bench_join
from holdfast.bench.subjects.keyed import WORKLOADS, bench_keyed
from holdfast.bench.subjects.state_growth import Growth, bench_state_growth
from holdfast.bench.subjects.window import Shape, bench_window
from holdfast.errors import ConfigError


def test_an_unknown_benchmark_is_refused_with_the_list() -> None:
    with pytest.raises(ConfigError, match="no benchmark 'kyed'") as refused:
        run_bench("kyed", pairs=1, seconds=1.0, quiet=True)
    assert refused.value.cure is not None
    for name in (
        "stateless",
        "keyed",
        "keyed-big",
        "keyed-1m",
        "state-growth",
        "window",
        "join",
        "stream-join",
    ):
        assert name in BENCHES
        assert name in refused.value.cure


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_stateless_benchmark_runs_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless, "ROWS_PER_FILE", 2_000)
    monkeypatch.setattr(stateless, "WARM_UP_FILES", 2)
    result = stateless.bench_stateless(pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["epochs_published"] > 0
    assert result["store_bytes_written"] > 0
    assert result["normalized_throughput"] > 0
    assert result["versus_plain_spark"] > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_keyed_benchmark_runs_through() -> None:
    work = replace(WORKLOADS["keyed-1m"], rows=2_000, keys=300, warm_up_steps=1, distinct=2)
    result = bench_keyed(work, pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["epochs_published"] > 0
    assert result["store_bytes_written"] > 0
    for name in ("ratio_vs_spark_default", "ratio_vs_spark_rocksdb", "latency_ratio_p50"):
        assert result[name] > 0
    assert result["steps_per_stretch"] == {"holdfast": 5, "spark_default": 5, "spark_rocksdb": 5}
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_state_growth_benchmark_runs_through() -> None:
    growth = Growth(sizes=(100, 1_000), rows=200, filling_rows=600, warm_up_steps=2, steps_at_least=3)
    result = bench_state_growth(growth, pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["step_ratio"] > 0
    assert result["p99_ratio"] > 0
    assert result["epochs_published"] > 0
    assert min(result["steps_per_stretch"].values()) >= 1.2 * 1_000 / 200
    for size in ("0.0001m", "0.001m"):
        assert result["durable"][size]["segments"] > 0
        assert result["durable"][size]["store_bytes_written"] > result["durable"][size]["segment_bytes"]


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_window_benchmark_runs_through() -> None:
    shape = Shape(rows=500, keys=7, warm_up_steps=2, steps_at_least=12)
    result = bench_window(shape, pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["ratio_vs_spark_default"] > 0
    assert result["epochs_published"] > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("shared_session")
def test_a_small_join_benchmark_runs_through() -> None:
    cells = [Cell("small", 600, 20, 20, False, 100.0, 200.0), Cell("per", 60, 10, 40, True, 100.0, 200.0)]
    scale = Scale(output_rows=12_000, rows_max=400, steps_at_least=4)
    result = bench_join(scale, cells, pairs=1, seconds=0.1, quiet=True)
    for cell in result["cells"].values():
        assert cell["input_rows_per_s"] > 0
        assert cell["output_rows_per_s"] > cell["input_rows_per_s"]
        assert cell["ratio_vs_document"] > 0


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_stream_join_benchmark_runs_through() -> None:
    shape = stream_join.Shape(rows=2_000, keys=50, warm_up_steps=1, steps_at_least=3)
    result = stream_join.bench_stream_join(shape, pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["epochs_published"] > 0
    assert result["ratio_vs_spark_default"] > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
def test_a_small_database_benchmark_runs_through() -> None:
    """In a process of its own: its session fetches a driver when it starts."""
    program = (
        "import json, sys; from holdfast.bench.subjects.database import bench_database; "
        "json.dump(bench_database(pairs=1, seconds=0.1, quiet=True, rows=2_000), sys.stdout)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["outputs_equal"]
    assert result["epochs_published"] > 0
    assert result["versus_jdbc_append"] > 0
    assert result["versus_jdbc_tuned"] > 0
