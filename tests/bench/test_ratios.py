"""Ratios are medians of pairs and honest about noise."""

from __future__ import annotations

import json

import pytest

from holdfast.bench.measure.ratios import quantile, ratio_of, speedup_of


def test_the_figure_is_the_median_of_the_pairs() -> None:
    assert ratio_of([0.9, 1.0, 0.97, 0.99, 0.98]).median == 0.98


def test_steady_pairs_are_conclusive_and_scattered_ones_are_not() -> None:
    assert ratio_of([0.980, 0.981, 0.979, 0.980, 0.982]).conclusive
    scattered = ratio_of([0.7, 1.2, 0.9, 1.1, 0.8])
    assert not scattered.conclusive
    assert "inconclusive" in str(scattered)


def test_one_pair_alone_concludes_nothing() -> None:
    assert not ratio_of([1.0]).conclusive
    assert not speedup_of([3.0]).conclusive


def test_a_speedup_may_scatter_by_a_share_of_itself() -> None:
    pairs = [2.9, 3.0, 3.1, 3.05, 2.95]
    assert not ratio_of(pairs).conclusive
    assert speedup_of(pairs).conclusive
    assert not speedup_of([1.0, 3.0, 5.0, 2.0, 4.0]).conclusive


@pytest.mark.parametrize("pairs", [[1.0], [1.0, 2.0]])
def test_an_interval_is_always_valid_json(pairs: list[float]) -> None:
    text = json.dumps(ratio_of(pairs).as_dict(), allow_nan=False)
    assert json.loads(text)["pairs"] == pairs


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0], 0.0) == 1.0
    assert quantile([1.0, 2.0, 3.0], 1.0) == 3.0
    assert quantile([5.0], 0.99) == 5.0
    assert quantile([float(n) for n in range(101)], 0.99) == 99.0


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError):
        quantile([], 0.5)
