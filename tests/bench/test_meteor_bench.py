"""`bench meteor` runs through at a small size, without Spark: one application, all variants, kills, figures and pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench.measure.examples import ROOT, data
from holdfast.bench.meteor.apps import APPS
from holdfast.bench.meteor.bench import USUAL, Scale, bench_meteor, chosen, windows_of
from holdfast.bench.meteor.compared import Outputs
from holdfast.bench.meteor.curve import Curve
from holdfast.bench.meteor.figures import ORDER, RATIOS
from holdfast.bench.meteor.gate import Gate, latencies
from holdfast.bench.meteor.recovery import _plain
from holdfast.bench.meteor.recovery_child import profile_from
from holdfast.bench.meteor.window import Epoch, Setting, Window, counted, shown
from holdfast.bench.pictures import draw
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ids import ElementName
from holdfast.testing import submit_local

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
    scale = Scale(tried_steps=40, rows_per_step=SMALL, engine="local")
    result = bench_meteor(scale, pairs=1, seconds=0.9, quiet=True, only=["bcp"])
    assert len(windows) == windows_of(1, USUAL), "as many as were announced"
    for name in ("throughput_aware_over_independent", "recovery_seconds_aware_over_async"):
        assert result[name] > 0
        assert set(result[f"{name}_by_app"]) == set(SMALL)
    assert set(result["order"]["throughput_over_independent"]) == set(ORDER)
    for app in result["apps"].values():
        assert set(app["by_epochs"]) == {"0", "1", "3", "8"}
        assert app["outputs_equal"]["runs"] >= 3
        assert set(app["rows_per_s"]) == set(ORDER)
        assert set(app["paced_latency_ms"]) == {*ORDER, "oracle", "none"}
        assert all(window["epochs"] == 0 for window in app["by_epochs"]["0"].values())
        assert set(app["recovery_s"]) == {"async", "aware"}
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    files = draw(result, tmp_path)
    assert [file.name for file in files] == ["meteor-windows.png", "meteor-state.png"]


@pytest.mark.slow
@pytest.mark.skipif(not has_data(), reason="needs shared/data; HOLDFAST_SHARED may name another shared/")
def test_a_part_of_it_gives_its_figures_and_no_others(tmp_path: Path) -> None:
    scale = Scale(tried_steps=40, rows_per_step=SMALL, engine="local")
    result = bench_meteor(scale, pairs=1, seconds=0.6, quiet=True, only=["bcp", "latency"])
    assert "checkpoint_bytes_aware_over_async" in result
    assert not {"throughput_aware_over_independent", "order", "recovery_seconds_aware_over_async"} & set(
        result
    )
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    assert [file.name for file in draw(result, tmp_path)] == ["meteor-state.png"]


def test_what_there_is_not_is_refused() -> None:
    assert chosen(["tmi", "counts"], USUAL) == (["tmi"], ["counts"])
    assert chosen(None, USUAL) == (list(APPS), list(USUAL))
    with pytest.raises(ConfigError, match="no 'tni'"):
        chosen(["tni"], USUAL)


def test_what_runs_write_must_be_the_beginning_of_what_the_operators_say() -> None:
    said = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]
    outputs = Outputs("bcp", said, lambda row: row[0])
    outputs.add("async", [])
    outputs.add("async", [("a", 2), ("a", 1)])
    outputs.add("token", said)
    assert (outputs.runs, outputs.rows) == (2, 5)
    a, _, a2, a3, b2 = said
    for wrong in ([a2], [a, a], [a, a3], [*said, b2], [("c", 1)], [a, b2]):
        with pytest.raises(HoldfastError, match="bcp: what oracle wrote is wrong"):
            outputs.add("oracle", wrong)


def test_a_window_counts_what_lies_in_it() -> None:
    gate = Gate(10, rate=10.0)
    gate.available = [(float(n), 10 * (n + 1)) for n in range(8)]
    gate.absorbed = [(n + 0.5, 10 * (n + 1)) for n in range(8)]
    epochs = [Epoch(1.9, 2.2, 5), Epoch(4.0, 4.6, 7), Epoch(6.2, 6.4, 9)]
    window = counted(gate, epochs, 2.0, 6.0, ())
    assert (window.rows, window.seconds, window.epochs) == (40, 4.0, (epochs[1],))
    assert window.latency_s == 0.5
    assert window.latency_in_epochs_s == 0.5


@pytest.mark.skipif(not has_data(), reason="needs shared/data; HOLDFAST_SHARED may name another shared/")
def test_what_operators_say_without_an_engine_is_what_runs_write(tmp_path: Path) -> None:
    app = APPS["bcp"]
    made = app.make(tmp_path / "input", 40, 1_200, 20)
    walked = app.walk(made)
    assert walked.sizes[-1][0] == made.rows == 1_200
    assert len(walked.said) > 3
    job = submit_local(
        app.build(made, tmp_path, period=0.05, trigger="periodic"),
        f"file:{tmp_path / 'store'}",
        until="available",
    )
    assert job.await_termination(timeout=60)
    outputs = Outputs("bcp", walked.said, app.lane)
    outputs.add("all of it", shown(tmp_path / "out"))
    assert outputs.rows == len(walked.said)


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
    assert curve.minima(0.0, 30.0, 2) == [30, 60]
    assert curve.minima(0.0, 30.0, 5) == [30, 60]
    assert curve.least(0.0, 30.0, 2) == [1, 2]
    assert curve.minima(30.0, 20.0, 1) == [40]
    assert 0 < curve.least_over_average < 0.3
