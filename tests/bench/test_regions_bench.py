"""`bench regions` runs through at a small size: what the sides wrote is the same, and every field is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.bench.measure.examples import data
from holdfast.bench.pictures import draw
from holdfast.bench.regions import apps, chains
from holdfast.bench.regions.bench import Scale, _periods, bench_regions
from holdfast.bench.registry import numbers, run_bench
from holdfast.errors import ConfigError

NAMES = ("vwap", "logwatch", "wordcount-ds", "wordcount-fs", "signal")


def has_data() -> bool:
    try:
        return all(data(name).is_dir() for name in ("taq-vwap", "logwatch", "enron-mail"))
    except ConfigError:
        return False


def test_the_five_applications_are_there() -> None:
    assert tuple(apps.APPS) == NAMES
    assert [app.name for app in apps.APPS.values() if app.operator_driven] == ["wordcount-ds"]


CELLS = {name: ((name,), ()) for name in NAMES} | {"chain-16x4": ((), ((16, 4),))}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.skipif(not has_data(), reason="needs shared/data; HOLDFAST_SHARED may name another shared/")
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("chosen", CELLS)
def test_a_small_regions_benchmark_runs_through(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "READ_MAX", 600)
    monkeypatch.setattr(apps, "BLOCKS_PER_FILE", 8)
    monkeypatch.setattr(chains, "ROWS_PER_FILE", 2_000)
    monkeypatch.setattr(chains, "FILES_PER_COPY", 2)
    names, cells = CELLS[chosen]
    scale = Scale(apps=[apps.APPS[name] for name in names], chains=cells, chain_periods=0.0)
    result = bench_regions(scale, pairs=1, seconds=0.01, quiet=True)
    field = chosen if chosen in ("wordcount-ds", "chain-16x4") else f"{chosen}.2s"
    assert list(result["normalized_throughput"]) == [field]
    assert result["normalized_throughput"][field] > 0
    assert result[f"normalized_throughput.{field}_interval"]["pairs"]
    details = result[f"details.{chosen}"]
    assert details["outputs_equal"]
    assert details["epochs_published"] > 0
    assert details["store_bytes_written"] > 0
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    assert [file.name for file in draw(result, tmp_path)] == ["regions.png"]


def test_a_look_at_lines_notices_a_row_that_is_missing_or_different(tmp_path: Path) -> None:
    (tmp_path / "out" / "a").mkdir(parents=True)
    file = tmp_path / "out" / "a" / "part-0.csv"
    file.write_text("x\n1\n2\n")
    first = apps.same_lines(tmp_path)
    file.write_text("x\n2\n1\n")
    assert apps.same_lines(tmp_path) == first
    for other in ("x\n1\n", "x\n1\n3\n", "x\n1\n2\n2\n"):
        file.write_text(other)
        assert apps.same_lines(tmp_path) != first


def test_a_region_is_taken_away_or_gets_other_settings(tmp_path: Path) -> None:
    made = chains.build_chain(8, 1, str(tmp_path))
    source = next(iter(made.graph().operators))
    free, other = apps.Reframed(made, None), apps.Reframed(made, 32.0)
    driven = apps.Reframed(made, 0.0, operator_driven=True)
    assert free.graph().operators[source].annotations.consistent is None
    settings = other.graph().operators[source].annotations.consistent
    assert settings is not None
    assert settings.period_s == 32.0
    settings = driven.graph().operators[source].annotations.consistent
    assert settings is not None
    assert settings.trigger == "operator"


def test_periods_and_programs_can_be_chosen() -> None:
    assert numbers("2,0.5,64") == [2.0, 0.5, 64.0]
    assert numbers(None) is None
    assert _periods([8.0, 2.0], 10.0) == [8.0, 2.0]
    assert _periods(None, 10.0) == [2.0, 4.0]
    with pytest.raises(ConfigError, match="'2;4' are no numbers"):
        numbers("2;4")
    with pytest.raises(ConfigError, match="has no epoch every 64 s"):
        run_bench("regions", pairs=1, seconds=10.0, quiet=True, periods=[64.0])
    with pytest.raises(ConfigError, match=r"nothing called 'vwop' here.*chain-8x1"):
        run_bench("regions", pairs=1, seconds=10.0, quiet=True, only=["vwop"])
    with pytest.raises(ConfigError, match="'stateless' takes no --only"):
        run_bench("stateless", pairs=1, seconds=1.0, quiet=True, only=["vwap"])
