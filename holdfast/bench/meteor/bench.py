"""`holdfast bench meteor`: throughput, latency, bytes and recovery of the ways to establish epochs (document 002, section IV).

Three applications whose state grows and falls; `independent`, `token`, `async`, `aware` (mode async, timed by state size), and an oracle that
asks for epochs at the true minima. All stores lie behind a link of 1 Gbit/s, as in the document; at three epochs per window the machine's own disk
is measured beside it. Windows have a fixed length; how many rows fit between two minima is chosen by a trial, so that a period has one.
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
from holdfast.bench.meteor.figures import CHECKED, PACED, Found, Round, report
from holdfast.bench.meteor.grounds import EngineName, Grounds, local_grounds, spark_grounds
from holdfast.bench.meteor.link import GIGABIT
from holdfast.bench.meteor.recovery import recoveries
from holdfast.bench.meteor.window import ORACLE, VARIANTS, Curve, Setting, Variant, Window

COUNTS, FEW_COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8), (0, 3)
SHORT_S = 10.0
"""Shorter windows: a quick look, with few of the counts, and without the machine's own disk."""
TOOTH = 0.45
"""Of a period at that count."""
NONE = Variant("none")
TRIALS = 4
"""Windows without epochs, before all others."""
MOST_STEPS = 1_000
"""Of input: a window ends with it."""


@dataclass(frozen=True)
class Scale:
    """What is run. `tried_steps`: of input, to know the pace. `rows_per_step`: by application, if not its own."""

    tried_steps: int = 60
    rows_per_step: Mapping[str, int] | None = None
    engine: EngineName = "spark"
    recovers: bool = True
    apps: Sequence[str] = tuple(APPS)

    def rows_of(self, app: MeteorApp) -> int:
        return (self.rows_per_step or {}).get(app.name, app.rows_per_step)


LOCAL = Scale(engine="local")
"""The same without Spark: `holdfast bench meteor-local`."""


def bench_meteor(
    scale: Scale | None = None, *, pairs: int = 5, seconds: float = 10.0, quiet: bool = False
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. With fewer than 10 s per window only 0 and 3 epochs are measured. HoldfastError if
    the variants did not write the same rows."""
    scale = scale or Scale()
    if scale.engine == "local":
        with scratch() as root:
            console = Console(stderr=True, quiet=quiet)
            found = _all(local_grounds(root), scale, pairs, seconds, console)
            return report(found, seconds, {"engine": "local"})
    with bench_place(quiet) as place:
        found = _all(spark_grounds(place), scale, pairs, seconds, place.console)
        return report(found, seconds, place.configuration(engine="spark", store_bytes_per_s=GIGABIT))


def _all(grounds: Grounds, scale: Scale, pairs: int, seconds: float, console: Console) -> list[Found]:
    told = Progress(console, len(scale.apps) * windows_of(pairs, seconds))
    return [AppBench(grounds, APPS[name], scale, seconds, told).measure(pairs) for name in scale.apps]


def windows_of(pairs: int, seconds: float) -> int:
    """Of one application, kills not counted."""
    in_round = 2 * (len(VARIANTS) + 1) + 1 + (2 if seconds >= SHORT_S else 0)
    by_count = (len(COUNTS) - 1) * len(VARIANTS) if seconds >= SHORT_S else 1
    return TRIALS + pairs * in_round + by_count


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
        self, grounds: Grounds, app: MeteorApp, scale: Scale, seconds: float, told: Progress
    ) -> None:
        self._grounds = grounds
        self._app = app
        self._scale = scale
        self._seconds = seconds
        self._told = told
        self._outputs = Outputs(app.name)

    def measure(self, pairs: int) -> Found:
        setting = self._setting()
        rounds, paced, disk = [], [], []
        sides, is_long = (*VARIANTS, ORACLE), self._seconds >= SHORT_S
        own_disk = replace(setting, bytes_per_s=None)
        for number in range(pairs):
            turn = sides if number % 2 == 0 else sides[::-1]
            rounds.append({side.name: self._window(setting, side, CHECKED) for side in turn})
            rate = PACED * setting.rate
            paced.append({side.name: self._window(setting, side, CHECKED, rate) for side in turn})
            paced[-1][NONE.name] = self._window(setting, NONE, 0, rate)
            ends = [side for side in turn if side.name in ("independent", "aware") and is_long]
            disk.append({side.name: self._window(own_disk, side, CHECKED) for side in ends})
        by_count = self._by_count(setting, rounds[0], is_long)
        recovers = self._scale.recovers
        times = recoveries(setting, pairs, self._told.console) if recovers else []
        outputs = (self._outputs.runs, self._outputs.rows)
        return Found(
            self._app.name, setting, rounds, paced, disk if is_long else [], by_count, times, outputs
        )

    def _by_count(self, setting: Setting, known: Round, is_long: bool) -> dict[int, Round]:
        """What the variants do with other numbers of epochs; in a quick look, what the slowest does with none."""
        found: dict[int, Round] = {}
        for count in COUNTS if is_long else FEW_COUNTS:
            some = VARIANTS if is_long or count else VARIANTS[:1]
            found[count] = (
                {side.name: known[side.name] for side in VARIANTS}
                if count == CHECKED
                else {side.name: self._window(setting, side, count) for side in some}
            )
        return found

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
        app, grounds, each = self._app, self._grounds, self._scale.rows_of(self._app)
        rate, tooth, rows = 0.0, each * self._scale.tried_steps // 4, each * self._scale.tried_steps
        setting: Setting | None = None
        for name in ("tried", "used"):
            directory: Path = grounds.root / f"{app.name}-{name}"
            made = app.make(directory, tooth, rows, each)
            self._told.console.print(f"{app.name}: {made.rows:,} rows, {tooth:,} until the state falls")
            setting = Setting(grounds, app, made, Curve.of(app, made), self._seconds, rate or 1.0, GIGABIT)
            self._window(setting, NONE, 0)  # the first one is slower
            rate = self._window(setting, NONE, 0).rows_per_s
            tooth = max(4 * each, int(TOOTH * rate * self._seconds / CHECKED))
            rows = min(int(1.5 * rate * self._seconds), each * MOST_STEPS)
        assert setting is not None
        return replace(setting, rate=rate)


def _mean_bytes(window: Window) -> int:
    return round(window.bytes / len(window.epochs)) if window.epochs else 0
