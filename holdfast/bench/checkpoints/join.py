"""`holdfast bench checkpoint-join`: what checkpoints cost the window join of `holdfast bench join`.

Windows of 8,192 and 131,072 rows in groups of 512 and 4,096, and 1,024 rows of each of 50 keys that come by Zipf's law;
epochs every second and every ten. `join_normalized.<window>.<group>.<period>`: rows per second in a region over the
same without one. `deadline_met`: the share of epochs that were published before the next one was due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.bench.measure.inputs import steps_in
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import ratio_of
from holdfast.bench.measure.side_holdfast import CountingStore, wait_until_visible, watch_steps
from holdfast.bench.subjects.join import CELLS, Cell, Scale, join_topology, output_rows, write_streams
from holdfast.errors import HoldfastError
from holdfast.runtime.job import job_of

GROUPS = (512, 4096)
PERIODS = (1.0, 10.0)
BY_NAME = {cell.name: cell for cell in CELLS}
ZIPF = replace(BY_NAME["per_group"], name="per_group_zipf", zipf=True)
WINDOWS = (BY_NAME["8192"], BY_NAME["131072"], ZIPF)


@dataclass(frozen=True)
class Done:
    """What one run did with full windows."""

    seconds: float
    epoch_ms: tuple[float, ...] = ()


def bench_checkpoint_join(
    windows: Sequence[Cell] = WINDOWS,
    scale: Scale | None = None,
    *,
    pairs: int = 5,
    seconds: float = 10.0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    found: dict[str, Any] = {}
    epochs: list[tuple[float, float]] = []
    with bench_place(quiet) as place:
        for cell in windows:
            _cells(place, cell, scale or Scale(), pairs, seconds, found, epochs)
        configuration = place.configuration(periods_s=PERIODS, groups=GROUPS)
    if not epochs:
        raise HoldfastError("no epoch was published while the joins were measured.")
    met = sum(ms <= 1000 * period for ms, period in epochs) / len(epochs)
    return {
        "bench": "checkpoint-join",
        "join_normalized": {name: one["median"] for name, one in found.items()},
        "join_normalized_intervals": found,
        "deadline_met": round(met, 4),
        "epochs_published": len(epochs),
        "configuration": configuration,
    }


def _cells(
    place: Place,
    cell: Cell,
    scale: Scale,
    pairs: int,
    seconds: float,
    found: dict[str, Any],
    epochs: list[tuple[float, float]],
) -> None:
    rows = min(scale.rows_max, max(200, round(scale.output_rows / cell.pairs_per_row)))
    fill = -(-cell.rows_kept // rows) * (4 if cell.per_key else 1)
    warm = _run(place, cell, rows, fill, scale.steps_at_least, None, None)
    steps = {
        period: max(
            scale.steps_at_least,
            round(scale.steps_at_least * max(seconds, 2 * period) / warm.seconds),
        )
        for period in PERIODS
    }
    for period in PERIODS:
        for group in GROUPS:
            ratios = []
            for number in range(pairs):
                sides = (None, period) if number % 2 == 0 else (period, None)
                done = {side: _run(place, cell, rows, fill, steps[period], side, group) for side in sides}
                ratios.append(done[None].seconds / done[period].seconds)
                epochs += [(ms, period) for ms in done[period].epoch_ms]
            name = f"{cell.name}.{group}.{period:g}s"
            found[name] = ratio_of(ratios).as_dict()
            place.console.print(f"{name}: {ratio_of(ratios)}")


def _run(
    place: Place, cell: Cell, rows: int, fill: int, steps: int, period: float | None, group: int | None
) -> Done:
    """Fill the windows, then measure so many steps until the last of them is done."""
    with place.directory("in") as files, place.directory("out") as out, place.directory("store") as at:
        write_streams(files, cell, rows, fill + steps)
        place.settle()
        store = None if period is None else CountingStore(at)
        topology = join_topology(files, out, cell, period, group)
        job = job_of(topology.submit(spark=place.session, store=store, until="available"))
        times = watch_steps(job)
        wait_until_visible(job, times)
        if len(times.done) != steps_in(files):
            raise HoldfastError(f"{steps_in(files)} files became {len(times.done)} steps.")
        output_rows(out, cell, rows, fill, steps)
        took = times.done[-1][0] - times.done[fill - 1][0]
        if store is None:
            return Done(took)
        events = [event.data["ms"] for event in store.events() if event.kind == "epoch.published"]
        return Done(took, tuple(events))
