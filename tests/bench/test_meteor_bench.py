"""`bench meteor` runs through at a small size, without Spark: one application, all variants, kills, figures and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench.measure.examples import ROOT, data
from holdfast.bench.meteor.bench import Scale, bench_meteor, windows_of
from holdfast.bench.meteor.compared import Outputs
from holdfast.bench.meteor.figures import ORDER, RATIOS
from holdfast.bench.meteor.gate import Gate, latencies
from holdfast.bench.meteor.recovery import _plain
from holdfast.bench.meteor.recovery_child import profile_from
from holdfast.bench.meteor.window import Curve, Setting, Window
from holdfast.bench.pictures import draw
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ids import ElementName

SMALL = {"bcp": 5}


def has_data() -> bool:
    try:
        return data("geolife-sample").is_dir() and data("muni-bus-snapshot").is_dir()
    except ConfigError:
        return False


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.skipif(not has_data(), reason="needs shared/data; HOLDFAST_SHARED may name another shared/")
def test_a_small_meteor_benchmark_runs_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows, measured = list[Window](), Setting.window

    def counted(*given: Any) -> Window:
        windows.append(measured(*given))
        return windows[-1]

    monkeypatch.setattr(Setting, "window", counted)
    scale = Scale(tried_steps=12, rows_per_step=SMALL, engine="local", apps=("bcp",))
    result = bench_meteor(scale, pairs=1, seconds=0.6, quiet=True)
    assert len(windows) == windows_of(1, 0.6), "as many as were announced"
    for name in ("throughput_aware_over_independent", "recovery_seconds_aware_over_async"):
        assert result[name] > 0
        assert set(result[f"{name}_by_app"]) == set(SMALL)
    assert set(result["order"]["throughput_over_independent"]) == set(ORDER)
    for app in result["apps"].values():
        assert set(app["by_epochs"]) == {"0", "3"}
        assert app["outputs_equal"]["runs"] == sum(bool(window.written) for window in windows)
        assert set(app["rows_per_s"]) == {*ORDER, "oracle"}
        assert set(app["paced_latency_ms"]) == {*ORDER, "oracle", "none"}
        assert all(window["epochs"] == 0 for window in app["by_epochs"]["0"].values())
        assert set(app["recovery_s"]) == {"async", "aware"}
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    files = draw(result, tmp_path)
    assert [file.name for file in files] == ["meteor-windows.png", "meteor-state.png"]


def test_what_variants_write_must_be_the_same_as_far_as_they_came() -> None:
    outputs = Outputs("bcp")
    outputs.add("async", [])
    outputs.add("async", ["a", "b", "c"])
    outputs.add("aware", ["b", "a"])
    outputs.add("token", ["a", "b", "c", "d"])
    assert (outputs.runs, outputs.rows) == (3, 4)
    for wrong in (["a", "c"], ["a", "a"], ["a", "b", "c", "d", "d", "x"][1:], ["x"]):
        with pytest.raises(HoldfastError, match="bcp: oracle and token wrote different rows"):
            outputs.add("oracle", wrong)


def test_the_profile_of_true_sizes_has_patience() -> None:
    sizes = [(100 * n, 10 * (n % 10)) for n in range(1, 200)]
    found = Curve(tuple(sizes)).profile("modes", rate=100.0, period_s=25.0)
    assert found.dynamic == {ElementName("modes")}
    assert (found.s_min, found.patience is None) == (0, False)
    plain = json.loads(json.dumps(_plain(found)))
    again = profile_from(plain)
    assert [again.is_small(size, 3.0) for size in (0, 30, 90)] == [
        found.is_small(size, 3.0) for size in (0, 30, 90)
    ]


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
    assert curve.least(30.0, 2) == [1, 2]
    assert 0 < curve.least_over_average < 0.3
