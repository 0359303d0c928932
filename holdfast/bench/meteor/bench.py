"""`holdfast bench meteor`: throughput, latency, bytes and recovery of the ways to establish epochs (document 002, section IV).

Three applications whose state grows and falls; `independent`, `token`, `async`, `aware` (mode async, timed by state size), and an oracle that
asks for epochs at the true minima. All stores lie behind a link of 1 Gbit/s, as in the document. Windows have a fixed length; how many rows fit
between two minima is chosen by a trial, so that a period has one at least. Parts:

    throughput   as many rows as can be taken, three epochs per window
    latency      half as many become available; with an oracle, and without epochs; the bytes of epochs are of these runs
    counts       throughput and latency with 0 to 8 epochs per window (0, 1 and 8 unless it is asked for by name)
    recovery     everything is killed, and goes on
    disk         throughput without the link (only if it is asked for)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.measure.place import bench_place
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.meteor.apps import APPS, MeteorApp
from holdfast.bench.meteor.compared import Outputs
from holdfast.bench.meteor.figures import PACED, Found, Round, report
from holdfast.bench.meteor.grounds import EngineName, Grounds, local_grounds, spark_grounds
from holdfast.bench.meteor.link import GIGABIT
from holdfast.bench.meteor.recovery import recoveries
from holdfast.bench.meteor.window import CHECKED, NONE, ORACLE, VARIANTS, Setting, Variant, Window
from holdfast.errors import ConfigError

PARTS = ("throughput", "latency", "counts", "recovery", "disk")
USUAL, QUICK = ("throughput", "latency", "counts", "recovery"), ("throughput", "latency", "recovery")
COUNTS, FEW_COUNTS = (0, 1, 2, 4, 5, 6, 7, 8), (0, 1, 8)
"""Beside CHECKED, which the throughput is of."""
QUICK_S = 3.0
TOOTH = 0.6
"""Of a period at CHECKED, at the pace of latency: then it has a minimum at least."""
MARGIN = 1.6
"""Of the input that a run should need: it may be faster than the trial was."""
TEETH_AT_LEAST = 4
STEPS_IN_TOOTH = 8
MOST_BYTES = 4e9
"""Of an application's input."""


@dataclass(frozen=True)
class Scale:
    """What is run. `tried_steps`: of input, to know the pace. `rows_per_step`: by application, if not its own."""

    tried_steps: int = 400
    rows_per_step: Mapping[str, int] | None = None
    engine: EngineName = "spark"

    def rows_of(self, app: MeteorApp) -> int:
        return (self.rows_per_step or {}).get(app.name, app.rows_per_step)


LOCAL = Scale(engine="local")
"""The same without Spark: `holdfast bench meteor-local`."""


def bench_meteor(
    scale: Scale | None = None,
    *,
    pairs: int = 2,
    seconds: float = 6.0,
    quiet: bool = False,
    only: Sequence[str] | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. `only`: applications and parts. `quick`: one short round, without other numbers of epochs.
    HoldfastError if a run did not write what it should."""
    scale = scale or Scale()
    apps, parts = chosen(only, QUICK if quick else USUAL)
    pairs, seconds = (1, QUICK_S) if quick else (pairs, seconds)

    def all_of(grounds: Grounds, console: Console) -> list[Found]:
        progress = Progress(console, sum(windows_of(pairs, parts, only) for _ in apps))
        return [
            AppBench(grounds, APPS[name], scale, seconds, progress).measure(pairs, parts, only)
            for name in apps
        ]

    if scale.engine == "local":
        with scratch() as root:
            found = all_of(local_grounds(root), Console(stderr=True, quiet=quiet))
            return report(found, seconds, {"engine": "local", "store_bytes_per_s": GIGABIT})
    with bench_place(quiet) as place:
        found = all_of(spark_grounds(place), place.console)
        return report(found, seconds, place.configuration(engine="spark", store_bytes_per_s=GIGABIT))


def chosen(only: Sequence[str] | None, usual: Sequence[str]) -> tuple[list[str], list[str]]:
    """Applications and parts; of either kind all, or the usual ones, if none is named."""
    foreign = [name for name in only or () if name not in (*APPS, *PARTS)]
    if foreign:
        raise ConfigError(
            f"bench meteor has no {foreign[0]!r}.", cure=f"There are: {', '.join((*APPS, *PARTS))}."
        )
    apps = [name for name in APPS if name in (only or ())]
    parts = [name for name in PARTS if name in (only or ())]
    return apps or list(APPS), parts or list(usual)


def counts_of(only: Sequence[str] | None) -> tuple[int, ...]:
    return COUNTS if only is not None and "counts" in only else FEW_COUNTS


def sides_at(count: int) -> tuple[Variant, ...]:
    """Without epochs, the variants differ in what they preserve only."""
    return VARIANTS if count else tuple(side for side in VARIANTS if side.name in ("independent", "async"))


def windows_of(pairs: int, parts: Sequence[str], only: Sequence[str] | None = None) -> int:
    """Of one application, kills and trials not counted."""
    in_pair = {"throughput": len(VARIANTS), "latency": len(VARIANTS) + 2, "disk": 2}
    by_count = sum(len(sides_at(count)) for count in counts_of(only)) if "counts" in parts else 0
    return pairs * sum(in_pair.get(part, 0) for part in parts) + by_count


class Progress:
    """Says after each window how many are left, and for how long about."""

    def __init__(self, console: Console, windows: int) -> None:
        self.console = console
        self._windows = windows
        self._done = 0
        self._begun = time.monotonic()

    def __call__(self, what: str) -> None:
        self._done += 1
        left = (time.monotonic() - self._begun) / self._done * max(0, self._windows - self._done)
        self.console.print(
            f"{self._done} of {self._windows}: {what} ({left / 60:.1f} min left, without kills)"
        )


class AppBench:
    """All windows of one application."""

    def __init__(
        self, grounds: Grounds, app: MeteorApp, scale: Scale, seconds: float, progress: Progress
    ) -> None:
        self._grounds = grounds
        self._app = app
        self._scale = scale
        self._seconds = seconds
        self._told = progress
        self._outputs = Outputs(app.name, (), app.lane)

    def measure(self, pairs: int, parts: Sequence[str], only: Sequence[str] | None) -> Found:
        setting = self._setting()
        self._outputs = Outputs(self._app.name, setting.walked.said, self._app.lane)
        rate, disk = PACED * setting.rate, replace(setting, bytes_per_s=None)
        ends = [side for side in VARIANTS if side.name in ("independent", "aware")]
        rounds, paced, on_disk = list[Round](), list[Round](), list[Round]()
        for number in range(pairs):
            turn = 1 if number % 2 == 0 else -1
            if "throughput" in parts:
                rounds.append(self._round(setting, VARIANTS[::turn]))
            if "latency" in parts:
                sides = (*VARIANTS, ORACLE)[::turn]
                paced.append({
                    NONE.name: self._window(setting, NONE, 0, rate), **self._round(setting, sides, rate)
                })  # fmt: skip
            if "disk" in parts:
                on_disk.append(self._round(disk, ends[::turn]))
        by_count: dict[int, Round] = {
            count: {side.name: self._window(setting, side, count) for side in sides_at(count)}
            for count in (counts_of(only) if "counts" in parts else ())
        }
        if rounds and by_count:
            by_count[CHECKED] = rounds[0]
        times = []
        if "recovery" in parts:
            times = recoveries(setting, pairs, self._outputs, self._told.console)
        outputs = (self._outputs.runs, self._outputs.rows)
        return Found(self._app.name, setting, rounds, paced, on_disk, by_count, times, outputs)

    def _round(self, setting: Setting, sides: Sequence[Variant], rate: float | None = None) -> Round:
        return {side.name: self._window(setting, side, CHECKED, rate) for side in sides}

    def _window(self, setting: Setting, side: Variant, count: int, rate: float | None = None) -> Window:
        window = setting.window(side, count, rate)
        how = "paced" if rate else "saturated" if setting.bytes_per_s else "saturated, own disk"
        self._outputs.add(f"{side.name} ({how}, {count} epochs)", window.written)
        self._told(
            f"{self._app.name}, {side.name}, {how}: {window.rows_per_s:,.0f} rows/s, "
            f"{1000 * window.latency_s:,.0f} ms, {len(window.epochs)} epochs of {_mean_bytes(window):,} bytes"
        )
        return window

    def _setting(self) -> Setting:
        """Try how fast it is, then make input of which each period at the checked count has a minimum."""
        each = self._scale.rows_of(self._app)
        tried = self._made("tried", each * self._scale.tried_steps // 4, each * self._scale.tried_steps)
        rate = max(tried.pace() for _ in range(2))  # the first one is slower
        tooth = max(STEPS_IN_TOOTH * each, int(TOOTH * PACED * rate * self._seconds / CHECKED))
        room = int(MOST_BYTES / bytes_of(tried.input.directory) * tried.input.rows)
        rows = min(room, int(MARGIN * rate * self._seconds * (1 + 1 / CHECKED)))
        return replace(self._made("used", tooth, max(TEETH_AT_LEAST * tooth, rows)), rate=rate)

    def _made(self, name: str, tooth: int, rows: int) -> Setting:
        """With input of so many rows."""
        app, grounds = self._app, self._grounds
        made = app.make(grounds.root / f"{app.name}-{name}", tooth, rows, self._scale.rows_of(app))
        self._told.console.print(f"{app.name}: {made.rows:,} rows, {tooth:,} until the state falls")
        return Setting(grounds, app, made, app.walk(made), self._seconds, 1.0, GIGABIT)


def bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _mean_bytes(window: Window) -> int:
    return round(window.bytes / len(window.epochs)) if window.epochs else 0
