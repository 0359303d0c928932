"""`holdfast bench state-growth`: the same step on a small and on a large state. Our side only.

Steps of 100,000 rows over states of 0.1, 1 and 10 million keys, drawn uniformly. First a run is filled: large steps
touch every key once, and an epoch with all of it is published. Then the measured files appear, one per step. Time runs
from that moment until the last row is visible; merging of segments, epochs and fsync are part of it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from holdfast.bench.measure.alternate import Stretch, pairs_of, steps_for
from holdfast.bench.measure.inputs import Inputs, KeyedInputs, read_totals, write_keyed
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, quantile, speedup_of
from holdfast.bench.measure.report import by_side, durability, figure, latency_figures, show, side_figures
from holdfast.bench.measure.side_holdfast import (
    PERIOD_S,
    CountingStore,
    StepTimes,
    latencies_of,
    wait_until_visible,
    watch_steps,
)
from holdfast.bench.subjects.changelog import COLUMNS, first_difference, merged
from holdfast.bench.subjects.keyed import keyed_topology
from holdfast.errors import HoldfastError
from holdfast.runtime.job import Job, job_of

EPOCHS_AFTER_FILLING = 2
"""The first may have begun before the last filling step; the second has all of it."""


@dataclass(frozen=True)
class Growth:
    """Sizes of the benchmark. The first and the last size are compared, those between are reported."""

    sizes: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    rows: int = 100_000
    filling_rows: int = 1_000_000
    warm_up_steps: int = 40
    steps_at_least: int = 50

    @property
    def steps_min(self) -> int:
        """Enough to bring more rows than the largest state has keys: its share of rewriting is then in the total."""
        return max(self.steps_at_least, math.ceil(1.2 * self.sizes[-1] / self.rows))


@dataclass
class Evidence:
    """Sizes of the segments that epochs stored in all runs on one size (those merged away before an epoch came are not
    seen). More bytes per step than on a fresh state, or segments larger than a step's own, are the work of merging."""

    filling: list[int] = field(default_factory=list)
    measured: list[int] = field(default_factory=list)

    def add(self, stored: list[int], filling: int) -> None:
        self.filling += stored[:filling]
        self.measured += stored[filling:]

    def as_dict(self, steps: int) -> dict[str, int]:
        return {
            "segments": len(self.measured),
            "segment_bytes": sum(self.measured),
            "segment_bytes_per_step": sum(self.measured) // steps,
            "largest_segment_bytes": max(self.measured, default=0),
            "largest_segment_bytes_of_filling": max(self.filling, default=0),
        }


def bench_state_growth(
    growth: Growth | None = None, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    growth = growth or Growth()
    with bench_place(quiet) as place:
        place.console.print("warming up")
        warm = SizedState(place, growth, growth.sizes[0], growth.warm_up_steps, "warm")
        steps = steps_for(seconds, warm.stretch().step_mean_s, growth.steps_min)
        sides = {label(size): SizedState(place, growth, size, steps, label(size)) for size in growth.sizes}
        rounds: list[dict[str, Stretch]] = []
        for number in range(pairs):
            # Every other round backwards: what drifts over time hits all sizes alike.
            order = list(sides) if number % 2 == 0 else list(reversed(sides))
            done = {name: sides[name].stretch() for name in order}
            rounds.append({name: done[name] for name in sides})
            shown = ", ".join(f"{name} {1000 * done[name].step_mean_s:.0f} ms/step" for name in sides)
            place.console.print(f"round {number + 1} of {pairs}: {shown}")
        return _report(place, growth, rounds, {name: side.evidence for name, side in sides.items()})


class SizedState:
    """One size of the state: its files, and runs over them."""

    def __init__(self, place: Place, growth: Growth, keys: int, steps: int, name: str) -> None:
        self._place = place
        self._keys = keys
        self._steps = steps
        root = place.root / name
        # No file twice: a step that repeats another one's keys would find them in a small, recent segment.
        self._measured = KeyedInputs(root / "measured", growth.rows, keys, steps)
        self._filling = filling_inputs(root / "filling", keys, growth.filling_rows)
        self._wanted = read_totals([*self._measured.distinct, *self._filling.distinct], keys)
        self.evidence = Evidence()

    def stretch(self) -> Stretch:
        """Fill a new state, then measure steps on it."""
        place = self._place
        place.settle()
        with place.directory("in") as files, place.directory("out") as out, place.directory("store") as at:
            self._filling.link(files, len(self._filling.distinct), "a-filling")
            store = CountingStore(at)
            job = job_of(keyed_topology(files, out).submit(spark=place.session, store=store))
            try:
                done = self._measure(job, store, files)
            finally:
                job.close()
            self._check(out)
            return done

    def _measure(self, job: Job, store: CountingStore, files: Path) -> Stretch:
        times = watch_steps(job)
        filling = len(self._filling.distinct)
        times.wait_for(filling, job)
        establish_epochs(job, EPOCHS_AFTER_FILLING)
        epochs, written, segments = epochs_of(job), store.bytes_written, len(store.segment_bytes)
        begun = time.monotonic()
        self._measured.link(files, self._steps, "b-measured")
        times.wait_for(filling + self._steps, job)
        job.ask_to_stop()
        ended = wait_until_visible(job, times)
        self.evidence.add(store.segment_bytes, segments)
        return Stretch(
            seconds=ended - begun,
            rows=self._steps * self._measured.rows_per_file,
            steps=self._steps,
            latencies_s=measured_latencies(times, filling, begun),
            step_s=tuple(seconds for _, seconds in times.done[filling:]),
            epochs=epochs_of(job) - epochs,
            bytes_written=store.bytes_written - written,
        )

    def _check(self, out: Path) -> None:
        tables = (pq.read_table(file, columns=list(COLUMNS)) for file in sorted(out.glob("*.parquet")))
        wrong = first_difference(merged(tables, self._keys), self._wanted)
        if wrong is not None:
            raise HoldfastError(f"the run on {self._keys:,} keys wrote wrong rows: {wrong}.")


def filling_inputs(root: Path, keys: int, rows: int) -> Inputs:
    """Files that hold every key once, in random order."""
    shuffled = np.random.default_rng(keys).permutation(keys)
    pieces = np.array_split(shuffled, -(-keys // rows))

    def write(path: Path, number: int) -> None:
        write_keyed(path, pieces[number], np.random.default_rng([keys, number]))

    return Inputs(root, rows, len(pieces), write)


def epochs_of(job: Job) -> int:
    return sum(region.metrics.epochs_published for region in job.regions.values())


def establish_epochs(job: Job, count: int) -> None:
    """So many more epochs, one after the other; raises what made the job fail. They are asked for by name: where nothing is new, none
    comes by itself (decision 21). Of two the second one certainly holds every step that was done before."""
    for _ in range(count):
        before = epochs_of(job)
        job.trigger_epoch()
        while epochs_of(job) == before:
            if job.await_termination(timeout=0.01):
                raise HoldfastError("the run ended before its state was filled.")


def measured_latencies(times: StepTimes, filling: int, begun: float) -> tuple[float, ...]:
    return tuple(latencies_of(times.done[filling:], begun))


def label(keys: int) -> str:
    return f"{keys / 1e6:g}m"


def ratios_of(rounds: list[dict[str, Stretch]], small: str, large: str) -> dict[str, Ratio]:
    """How many times longer the same steps take on the large state."""
    return {
        "step_ratio": speedup_of(pairs_of(rounds, large, small, lambda s: s.seconds)),
        "p99_ratio": speedup_of(pairs_of(rounds, large, small, lambda s: quantile(s.latencies_s, 0.99))),
    }


def _report(
    place: Place, growth: Growth, rounds: list[dict[str, Stretch]], evidence: dict[str, Evidence]
) -> dict[str, Any]:
    names = [label(size) for size in growth.sizes]
    ratios = ratios_of(rounds, names[0], names[-1])
    show(
        place.console,
        f"state-growth: {growth.rows:,} rows per step, {names[-1]} over {names[0]} keys",
        ratios,
        rounds,
    )
    result: dict[str, Any] = {"bench": "state-growth"}
    for name, ratio in ratios.items():
        result |= figure(name, ratio)
    for name in names[1:-1]:
        between = ratios_of(rounds, names[0], name)
        result[f"ratios_{name}"] = {key: round(ratio.median, 4) for key, ratio in between.items()}
    sides = by_side(rounds)
    return {
        **result,
        **side_figures(rounds),
        "rounds": len(rounds),
        "latency_ms": latency_figures(rounds),
        "durable": {
            name: {**durability(done), **evidence[name].as_dict(sum(s.steps for s in done))}
            for name, done in sides.items()
        },
        **durability([stretch for done in sides.values() for stretch in done]),
        "outputs_equal": True,
        "configuration": place.configuration(
            rows_per_step=growth.rows,
            sizes=list(growth.sizes),
            period_s=PERIOD_S,
            seconds="files of the measured steps appear → last row visible; filling the state is not counted",
            latency="from the end of the step before to the end of the step",
        ),
    }
