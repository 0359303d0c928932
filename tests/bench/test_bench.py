"""Benchmarks: ratios are honest about noise, and the stateless one really compares what the sides wrote."""

from __future__ import annotations

import pytest

from holdfast.bench import stateless
from holdfast.bench.ratios import ratio_of
from holdfast.errors import HoldfastError


def test_the_figure_is_the_median_of_the_pairs() -> None:
    assert ratio_of([0.9, 1.0, 0.97, 0.99, 0.98]).median == 0.98


def test_steady_pairs_are_conclusive_and_scattered_ones_are_not() -> None:
    assert ratio_of([0.980, 0.981, 0.979, 0.980, 0.982]).conclusive
    scattered = ratio_of([0.7, 1.2, 0.9, 1.1, 0.8])
    assert not scattered.conclusive
    assert "inconclusive" in str(scattered)


def test_one_pair_alone_concludes_nothing() -> None:
    assert not ratio_of([1.0]).conclusive


def test_sides_that_wrote_different_rows_fail_the_benchmark() -> None:
    with pytest.raises(HoldfastError, match="different rows"):
        stateless._check_equal({"region": {"check": {"rows": 1}}, "plain": {"check": {"rows": 2}}})


@pytest.mark.spark
@pytest.mark.slow
def test_a_small_stateless_benchmark_runs_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless, "ROWS_PER_FILE", 2_000)
    monkeypatch.setattr(stateless, "WARM_UP_FILES", 2)
    result = stateless.bench_stateless(pairs=1, seconds=0.1, quiet=True)
    assert result["outputs_equal"]
    assert result["epochs_published"] > 0
    assert result["store_bytes_written"] > 0
    assert result["normalized_throughput"] > 0
    assert result["versus_plain_spark"] > 0
