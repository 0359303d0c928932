"""`bench meteor` runs through at a small size, without Spark: one application, all variants, kills, figures and pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.bench.measure.examples import ROOT, data
from holdfast.bench.meteor.bench import Scale, bench_meteor
from holdfast.bench.meteor.figures import ORDER, RATIOS
from holdfast.bench.meteor.gate import Gate, latencies
from holdfast.bench.meteor.window import Curve
from holdfast.bench.pictures import draw
from holdfast.errors import ConfigError

SMALL = {"bcp": 5}


def has_data() -> bool:
    try:
        return data("geolife-sample").is_dir() and data("muni-bus-snapshot").is_dir()
    except ConfigError:
        return False


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.skipif(not has_data(), reason="needs shared/data; HOLDFAST_SHARED may name another shared/")
def test_a_small_meteor_benchmark_runs_through(tmp_path: Path) -> None:
    scale = Scale(tried_steps=12, rows_per_step=SMALL, engine="local", apps=("bcp",))
    result = bench_meteor(scale, pairs=1, seconds=0.6, quiet=True)
    for name in ("throughput_aware_over_independent", "recovery_seconds_aware_over_async"):
        assert result[name] > 0
        assert set(result[f"{name}_by_app"]) == set(SMALL)
    assert set(result["order"]["throughput_over_independent"]) == set(ORDER)
    for app in result["apps"].values():
        assert set(app["by_epochs"]) == {"0", "3"}
        assert app["outputs_equal"]["runs"] >= 0
        assert set(app["rows_per_s"]) == {*ORDER, "oracle"}
        assert set(app["paced_latency_ms"]) == {*ORDER, "oracle", "none"}
        assert all(window["epochs"] == 0 for window in app["by_epochs"]["0"].values())
        assert set(app["recovery_s"]) == {"async", "aware"}
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    files = draw(result, tmp_path)
    assert [file.name for file in files] == ["meteor-windows.png", "meteor-state.png"]


def test_the_figures_are_those_that_are_asked_for() -> None:
    wanted = ("throughput", "latency", "checkpoint_bytes", "instantaneous_latency", "recovery_seconds")
    assert all(any(name.startswith(field) for name in RATIOS) for field in wanted)
    assert (ROOT / "examples").is_dir()


def test_latency_runs_from_a_step_being_available_until_it_is_absorbed() -> None:
    gate = Gate(10, rate=10.0)
    gate.available = [(0.0, 10), (1.0, 20), (2.0, 30), (9.0, 40)]
    gate.absorbed = [(0.5, 10), (2.5, 30)]
    assert latencies(gate, 3.0) == [(0.0, 0.5, 10), (1.0, 1.5, 10), (2.0, 0.5, 10)]
    gate.absorbed.pop()
    assert latencies(gate, 3.0) == [(0.0, 0.5, 10), (1.0, 2.0, 10), (2.0, 1.0, 10)], "still on their way"


def test_an_oracle_knows_the_least_size_of_each_period() -> None:
    curve = Curve(((10, 5), (20, 9), (30, 1), (40, 4), (50, 8), (60, 2)))
    assert curve.minima(30.0, 2) == [30, 60]
    assert curve.minima(30.0, 5) == [30, 60]
    assert 0 < curve.least_over_average < 0.3
