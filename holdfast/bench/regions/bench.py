"""`holdfast bench regions`: throughput of applications in a consistent region over that of the same graph without one.

    free       the graph without a region
    2s, 4s, …  the whole application in a region with epochs so often; wordcount-ds: an epoch after each file

Sides alternate in one warmed session over the same files, and what they wrote is compared. Seconds run from the first step until the last
row is visible. Chains of stateless operators have epochs every 8 s.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.bench.measure.alternate import Stretch, check_equal
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.ratios import Ratio, ratio_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.side_holdfast import CountingStore, StepTimes, wait_until_visible
from holdfast.bench.regions.apps import APPS, Reframed, RegionsApp
from holdfast.bench.regions.chains import LENGTHS, PERIOD_S, WIDTHS, chain
from holdfast.errors import ConfigError, HoldfastError
from holdfast.runtime.job import job_of

PERIODS_S = (2.0, 4.0, 8.0, 32.0, 64.0)
EPOCHS_AT_LEAST = 2.5
"""Of the longest period in a stretch: longer ones are measured only in longer stretches."""
SHORT_S = 10.0
"""Shorter stretches: a quick look, with the shortest and the longest chain only."""
TRIES = 3
COPIES_MAX = 400


@dataclass(frozen=True)
class Scale:
    """What is run."""

    apps: Sequence[RegionsApp] = tuple(APPS.values())
    chains: Sequence[tuple[int, int]] | None = None
    """(length, width); None: all, or the extremes in short stretches."""
    chain_periods: float = 1.6
    """Of a chain in a stretch, at least. A stretch ends with an epoch: in one of 3 s that of 8 s would be paid for by 3 s. With 1.6 periods there
    is one on the way and one at the end."""


def bench_regions(
    scale: Scale | None = None,
    *,
    pairs: int = 5,
    seconds: float = 10.0,
    quiet: bool = False,
    periods: Sequence[float] | None = None,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. `periods`: seconds between epochs; without them 2 s, and longer ones if a stretch has
    room for two epochs and a half of them: with 160 s all are measured. `only`: applications and chains by name."""
    scale = scale or Scale()
    chosen = _periods(periods, seconds)
    cells = scale.chains
    if cells is None:
        few = ((LENGTHS[0], WIDTHS[0]), (LENGTHS[-1], WIDTHS[-1]))
        all_cells = [(length, width) for width in WIDTHS for length in LENGTHS]
        cells = few if seconds < SHORT_S and only is None else all_cells
    work = [(app, [0.0] if app.operator_driven else chosen) for app in scale.apps]
    work += [(chain(*cell), list(periods or [PERIOD_S])) for cell in cells]
    work = _only(work, only)
    result: dict[str, Any] = {"bench": "regions", "normalized_throughput": {}}
    with bench_place(quiet) as place:
        lasts = {
            app.name: max(seconds, scale.chain_periods * max(each))
            if app.name.startswith("chain")
            else seconds
            for app, each in work
        }
        minutes = sum((len(each) + 1) * pairs * lasts[app.name] for app, each in work) / 60
        place.console.print(f"{len(work)} programs, at least {minutes:.0f} min of stretches")
        for app, each in work:
            _add(result, place, app, each, pairs, lasts[app.name])
        result["configuration"] = place.configuration(periods_s=chosen, chain_period_s=PERIOD_S)
    return result


def _periods(wanted: Sequence[float] | None, seconds: float) -> list[float]:
    if wanted is None:
        return [p for p in PERIODS_S if p == PERIODS_S[0] or seconds >= EPOCHS_AT_LEAST * p]
    if not wanted or min(wanted) <= 0 or max(wanted) > seconds:
        raise ConfigError(
            f"a stretch of {seconds:g} s has no epoch every {max(wanted, default=0):g} s.",
            cure="Give longer stretches with --seconds, at best two and a half of the longest period.",
        )
    return list(wanted)


Work = list[tuple[RegionsApp, list[float]]]


def _only(work: Work, names: Sequence[str] | None) -> Work:
    known = [app.name for app, _ in work]
    for name in names or ():
        if name not in known:
            raise ConfigError(
                f"there is nothing called {name!r} here.", cure=f"There are: {', '.join(known)}."
            )
    return [one for one in work if names is None or one[0].name in names]


def _add(
    result: dict[str, Any],
    place: Place,
    app: RegionsApp,
    periods: Sequence[float],
    pairs: int,
    seconds: float,
) -> None:
    ratios, details = Compared(place, app, periods).measure(pairs, seconds)
    for period, ratio in ratios.items():
        name = _field(app, period)
        result["normalized_throughput"][name] = round(ratio.median, 4)
        result |= figure(f"normalized_throughput.{name}", ratio)
        place.console.print(f"{name}: normalized throughput {ratio}")
    result[f"details.{app.name}"] = details


def _field(app: RegionsApp, period: float) -> str:
    plain = not period or (app.name.startswith("chain") and period == PERIOD_S)
    return app.name if plain else f"{app.name}.{period:g}s"


class Compared:
    """One application with and without a region."""

    def __init__(self, place: Place, app: RegionsApp, periods: Sequence[float]) -> None:
        self._place = place
        self._app = app
        self._periods = periods
        self._copies = 0
        self._rows = 0
        self._here = place.root / f"regions-{app.name}"

    def measure(self, pairs: int, seconds: float) -> tuple[dict[float, Ratio], dict[str, Any]]:
        """Warm up, find out how much input a stretch needs, alternate."""
        self._size(seconds)
        sides: list[float | None] = [None, *self._periods]
        rounds: list[dict[float | None, Stretch]] = []
        for number in range(pairs):
            done, seen = {}, {}
            for side in sides if number % 2 == 0 else sides[::-1]:
                done[side], seen[str(side)] = self._stretch(side)
            check_equal(seen)
            rounds.append(done)
            shown = ", ".join(f"{_side(side)} {done[side].rows_per_s:,.0f} rows/s" for side in sides)
            self._place.console.print(f"{self._app.name}, round {number + 1} of {pairs}: {shown}")
        shutil.rmtree(self._here, ignore_errors=True)
        ratios = {
            period: ratio_of([done[period].rows_per_s / done[None].rows_per_s for done in rounds])
            for period in self._periods
        }
        return ratios, self._details(rounds)

    def _details(self, rounds: Sequence[dict[float | None, Stretch]]) -> dict[str, Any]:
        regions = [done[period] for done in rounds for period in self._periods]
        epochs, written = sum(one.epochs for one in regions), sum(one.bytes_written for one in regions)
        if not epochs or not written:
            raise HoldfastError("the region published no epoch: the figures would mean nothing.")
        return {
            "rows": self._rows,
            "seconds": {_side(side): [round(done[side].seconds, 2) for done in rounds] for side in rounds[0]},
            "rows_per_s_free": [round(done[None].rows_per_s) for done in rounds],
            "overall": {
                _side(p): round(sum(d[None].seconds for d in rounds) / sum(d[p].seconds for d in rounds), 4)
                for p in self._periods
            },
            "epochs_published": epochs,
            "epochs_per_period": {
                _side(p): round(sum(d[p].epochs * p for d in rounds) / sum(d[p].seconds for d in rounds), 2)
                for p in self._periods
                if p
            },
            "store_bytes_written": written,
            "outputs_equal": True,
        }

    def _size(self, seconds: float) -> None:
        """So many copies of the data that a stretch without a region lasts long enough."""
        self._make(1)
        self._stretch(self._periods[0])
        for _ in range(TRIES):
            took, _ = self._stretch(None)
            if took.seconds >= seconds or self._copies >= COPIES_MAX:
                return
            self._make(
                min(COPIES_MAX, max(self._copies + 1, math.ceil(1.1 * self._copies * seconds / took.seconds)))
            )

    def _make(self, copies: int) -> None:
        shutil.rmtree(self._here, ignore_errors=True)
        self._rows = self._app.make(self._here, copies)
        self._copies = copies
        self._place.console.print(f"{self._app.name}: {self._rows:,} rows")

    def _stretch(self, period: float | None) -> tuple[Stretch, Any]:
        with self._place.directory("here") as here, self._place.directory("store") as store:
            (here / "in").symlink_to(self._here / "in")
            self._place.settle()
            made = Reframed(self._app.build(str(here)), period, self._app.operator_driven)
            counting = None if period is None else CountingStore(store)
            done = _run(made, self._place, counting, self._rows)
            return done, self._app.look(here)


def _side(period: float | None) -> str:
    return "free" if period is None else f"{period:g}s" if period else "after each file"


def _run(topology: Reframed, place: Place, store: CountingStore | None, rows: int) -> Stretch:
    job = job_of(topology.submit(spark=place.session, store=store, until="available"))
    times = {name: StepTimes(name) for name in job.loops}
    for name, loop in job.loops.items():
        loop.metrics = times[name]
    ended = wait_until_visible(job, *times.values())
    steps = [step for one in times.values() for step in one.done]
    begun = min(end - seconds for end, seconds in steps)
    return Stretch(
        ended - begun,
        rows,
        len(steps),
        epochs=sum(region.metrics.epochs_published for region in job.regions.values()),
        bytes_written=0 if store is None else store.bytes_written,
    )
