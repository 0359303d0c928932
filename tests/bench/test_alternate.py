"""Sides take turns over the same steps; pairs come from the same round; times of steps become latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holdfast.bench.measure.alternate import Alternation, Side, Stretch, check_equal, pairs_of, steps_for
from holdfast.bench.measure.inputs import KeyedInputs
from holdfast.bench.measure.report import durability, latency_figures, side_figures
from holdfast.bench.measure.side_holdfast import latencies_of
from holdfast.bench.measure.side_spark import span_of
from holdfast.bench.subjects.keyed import DEFAULT, OURS, ROCKSDB, WORKLOADS, ratios_of
from holdfast.errors import HoldfastError


class Quiet:
    """A place without Spark."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.console = Console(quiet=True)

    @contextmanager
    def directory(self, prefix: str) -> Iterator[Path]:
        yield self.root

    def settle(self) -> None: ...


def stretch(rows_per_s: float, latency_s: float = 0.1, steps: int = 10) -> Stretch:
    return Stretch(
        1000 / rows_per_s, 1000, steps, latencies_s=(latency_s,) * steps, epochs=1, bytes_written=1
    )


def alternation(
    root: Path,
    calls: list[tuple[str, int]],
    *slow: str,
    seconds: Callable[[int], float] = lambda steps: 2.0 * steps,
) -> Alternation:
    def side(name: str) -> Side:
        def run(files: Path, out: Path) -> Stretch:
            steps = len(list(files.iterdir()))
            calls.append((name, steps))
            return Stretch(seconds(steps), 10 * steps, steps)

        return Side(name, run, 1 if name in slow else None)

    inputs = KeyedInputs(root / "in", 10, 5, 2)
    place: Any = Quiet(root)
    return Alternation(place, inputs, [side("a"), side("b"), side("c")], lambda out, steps: steps)


def test_every_other_round_goes_backwards(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []
    rounds = alternation(tmp_path, calls).measure(2, 4)
    assert calls == [("a", 4), ("b", 4), ("c", 4), ("c", 4), ("b", 4), ("a", 4)]
    assert [set(done) for done in rounds] == [{"a", "b", "c"}] * 2


def test_a_slow_side_takes_fewer_rounds_of_as_many_steps(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []
    rounds = alternation(tmp_path, calls, "c").measure(2, 4)
    assert calls == [("a", 4), ("b", 4), ("c", 4), ("b", 4), ("a", 4)]
    assert [set(done) for done in rounds] == [{"a", "b", "c"}, {"a", "b"}]


def test_the_fastest_whole_side_sets_the_length_of_a_stretch(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []
    sides = alternation(tmp_path, calls, "c")
    sides.warm_up(5)
    assert calls == [("a", 5), ("b", 5), ("c", 5)] * 2
    steps = sides.steps_of(seconds=10.0, at_least=3)
    assert calls[6:] == [("a", 6)]
    assert steps == 6


def test_a_stretch_that_turned_out_short_gets_more_steps(tmp_path: Path) -> None:
    calls: list[tuple[str, int]] = []
    sides = alternation(tmp_path, calls, seconds=lambda steps: 0.5 * steps if steps < 10 else 0.25 * steps)
    sides.warm_up(4)
    assert sides.steps_of(seconds=10.0, at_least=3) == 44
    assert [steps for _, steps in calls[6:]] == [22, 44]


def test_a_stretch_has_room_to_get_faster() -> None:
    assert steps_for(10.0, 0.1, at_least=5) == 110
    assert steps_for(0.1, 1.0, at_least=5) == 5


def test_sides_that_wrote_different_rows_fail_the_benchmark() -> None:
    check_equal({"region": {"rows": 1}, "plain": {"rows": 1}})
    with pytest.raises(HoldfastError, match="different rows"):
        check_equal({"region": {"rows": 1}, "plain": {"rows": 1}, "slow": {"rows": 2}})


def test_pairs_are_of_rounds_both_sides_took_part_in() -> None:
    rounds = [
        {"a": stretch(200), "b": stretch(100)},
        {"a": stretch(300)},
        {"a": stretch(90), "b": stretch(30)},
    ]
    assert pairs_of(rounds, "a", "b", lambda s: s.rows_per_s) == pytest.approx([2.0, 3.0])


def test_the_figures_of_a_keyed_workload_are_ours_over_theirs() -> None:
    done = {OURS: stretch(400, 0.1), DEFAULT: stretch(100, 0.2), ROCKSDB: stretch(50, 0.4)}
    ratios = {name: ratio.median for name, ratio in ratios_of(WORKLOADS["keyed"], [done, done]).items()}
    assert ratios == pytest.approx(
        {
            "ratio_vs_spark_default": 4.0,
            "ratio_vs_spark_rocksdb": 8.0,
            "latency_ratio_p50": 0.5,
            "latency_ratio_p50_vs_rocksdb": 0.25,
        }
    )
    assert set(ratios_of(WORKLOADS["keyed-big"], [done])) == {"ratio_vs_spark_default"}


def test_sides_are_reported_over_all_rounds() -> None:
    rounds = [{"a": stretch(100, 0.1)}, {"a": stretch(300, 0.3)}]
    assert side_figures(rounds)["rows_per_s"] == {"a": 150}
    assert latency_figures(rounds)["a"]["p50"] == pytest.approx(200.0)


def test_a_side_without_epochs_means_nothing() -> None:
    assert durability([stretch(1), stretch(1)]) == {"epochs_published": 2, "store_bytes_written": 2}
    with pytest.raises(HoldfastError, match="no epoch"):
        durability([Stretch(1.0, 1, 1)])


def test_a_batch_waits_from_the_end_of_the_step_before() -> None:
    assert list(latencies_of([(10.0, 1.0), (12.0, 1.5), (12.5, 0.8)], 9.0)) == [1.0, 2.0, 0.8]


def test_micro_batches_span_from_the_first_begin_to_the_last_end() -> None:
    first = {"timestamp": "2026-01-01T00:00:59.500Z", "durationMs": {"triggerExecution": 700}}
    last = {"timestamp": "2026-01-01T00:01:01.000Z", "durationMs": {"triggerExecution": 250}}
    assert span_of([first, last]) == pytest.approx(1.75)
    assert span_of([first]) == pytest.approx(0.7)
