"""`holdfast bench meteor`: throughput, latency, bytes and recovery of the ways to establish epochs (document 002, section IV).

Three applications whose state grows and falls; `independent`, `token`, `async`, `aware` (mode async, timed by state size), and an oracle that
asks for epochs at the true minima. All stores lie behind a link of 1 Gbit/s, as in the document; at three epochs per window the machine's own disk
is measured beside it. Windows have a fixed length; how many rows fit between two minima is chosen by a trial, so that a period has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.measure.place import bench_place
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.meteor.apps import APPS, MeteorApp
from holdfast.bench.meteor.figures import Found, report
from holdfast.bench.meteor.grounds import EngineName, Grounds, local_grounds, spark_grounds
from holdfast.bench.meteor.link import GIGABIT
from holdfast.bench.meteor.recovery import recoveries
from holdfast.bench.meteor.window import ORACLE, VARIANTS, Curve, Setting, Variant, Window

COUNTS, FEW_COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8), (0, 3, 8)
SHORT_S = 10.0
"""Shorter windows: a quick look, with few of the counts."""
CHECKED = 3
"""Epochs per window at which variants are compared."""
TOOTH = 0.45
"""Of a period at that count."""
PACED = 0.6
"""Of what can be taken without epochs, when latency is measured."""
NONE = Variant("none")


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
    """Run the benchmark; the result is plain data. With fewer than 10 s per window only 0, 3 and 8 epochs are measured."""
    scale = scale or Scale()
    counts = COUNTS if seconds >= SHORT_S else FEW_COUNTS
    if scale.engine == "local":
        with scratch() as root:
            console = Console(stderr=True, quiet=quiet)
            found = _all(local_grounds(root), scale, counts, pairs, seconds, console)
            return report(found, seconds, {"engine": "local"})
    with bench_place(quiet) as place:
        found = _all(spark_grounds(place), scale, counts, pairs, seconds, place.console)
        return report(found, seconds, place.configuration(engine="spark", store_bytes_per_s=GIGABIT))


def _all(
    grounds: Grounds, scale: Scale, counts: Sequence[int], pairs: int, seconds: float, console: Console
) -> list[Found]:
    return [_app(grounds, APPS[name], scale, counts, pairs, seconds, console) for name in scale.apps]


def _app(
    grounds: Grounds,
    app: MeteorApp,
    scale: Scale,
    counts: Sequence[int],
    pairs: int,
    seconds: float,
    console: Console,
) -> Found:
    setting = _setting(grounds, app, scale, seconds, console)
    rounds, paced, disk = [], [], []
    sides = (*VARIANTS, ORACLE)
    own_disk = Setting(**{**_fields(setting), "bytes_per_s": None})
    for number in range(pairs):
        turn = sides if number % 2 == 0 else sides[::-1]
        rounds.append({side.name: setting.window(side, CHECKED) for side in turn})
        rate = PACED * setting.rate
        paced.append({side.name: setting.window(side, CHECKED, rate) for side in turn})
        paced[-1][NONE.name] = setting.window(NONE, 0, rate)
        ends = [side for side in turn if side.name in ("independent", "aware")]
        disk.append({side.name: own_disk.window(side, CHECKED) for side in ends})
        console.print(f"{app.name}, round {number + 1} of {pairs}: {_shown(rounds[-1])}")
    by_count: dict[int, dict[str, Window]] = {}
    for count in counts:
        by_count[count] = {
            side.name: rounds[0][side.name] if count == CHECKED else setting.window(side, count)
            for side in VARIANTS
        }
        console.print(f"{app.name}, {count} epochs per window: {_shown(by_count[count])}")
    times = recoveries(setting, pairs, console) if scale.recovers else []
    return Found(app.name, setting, rounds, paced, disk, by_count, times)


def _shown(windows: Mapping[str, Window]) -> str:
    return ", ".join(f"{name} {window.rows_per_s:,.0f} rows/s" for name, window in windows.items())


def _fields(setting: Setting) -> dict[str, Any]:
    return {name: getattr(setting, name) for name in setting.__dataclass_fields__}


def _setting(grounds: Grounds, app: MeteorApp, scale: Scale, seconds: float, console: Console) -> Setting:
    """Try how fast it is, then make input of which each period at the checked count has a minimum."""
    each = scale.rows_of(app)
    rate, tooth = 0.0, each * scale.tried_steps // 4
    rows = each * scale.tried_steps
    setting: Setting | None = None
    for name in ("tried", "used"):
        directory: Path = grounds.root / f"{app.name}-{name}"
        made = app.make(directory, tooth, rows, each)
        console.print(f"{app.name}: {made.rows:,} rows, {tooth:,} until the state falls")
        setting = Setting(grounds, app, made, Curve.of(app, made), seconds, rate or 1.0, GIGABIT)
        setting.window(NONE, 0)  # the first one is slower
        rate = setting.window(NONE, 0).rows_per_s
        tooth = max(4 * each, int(TOOTH * rate * seconds / CHECKED))
        rows = int(1.5 * rate * seconds)
    assert setting is not None
    return Setting(**{**_fields(setting), "rate": rate})
