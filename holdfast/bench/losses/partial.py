"""`holdfast bench partial`: how far a learning operator's output is off after kills, with and without a checkpoint of its own.

The program is `examples/fabyield`: a model that learns the yield of a semiconductor line as units are tested. Its process is killed
(SIGKILL) while the model works on a unit drawn at random, and started again on the same store; it goes on behind the rows it had
taken. Each kill is done twice, on the same unit: with `.checkpoint(every=…)` on the model, and without. What both foresee from that
unit on is compared with a run that nobody killed: the root of the mean squared difference, in points of percent, over all kills.

Before the kill, the output must be the golden one, row by row. Rows that a kill costs are not foreseen at all: they are counted.
Lives run without Spark, which the model, hosted in the driver, does not notice; some are repeated on Spark.
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.measure.ratios import quantile
from holdfast.bench.measure.scratch import scratch
from holdfast.errors import ConfigError, HoldfastError

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "examples" / "fabyield" / "fabyield.py"
KILLS_PER_PAIR = 8
"""So that five pairs are the document's forty runs."""
ROWS_PER_STEP = 5
PACE_S = 0.02
EVERY_S = 0.1
SPARK_EVERY_S = 0.5
EARLIEST, LATEST = 0.05, 0.95
"""Kills come between these shares of the input."""
LIFE_S = 300.0

Foreseen = dict[int, float]
"""By unit: the yield foreseen for it."""


@dataclass(frozen=True, slots=True)
class Killed:
    """What one kill did to the output."""

    unit: int
    errors: tuple[float, ...]
    """Differences to the golden run, of each unit from the killed one on that was foreseen."""
    missing: int
    counted: int
    """Rows that the run itself counts as lost for its sink."""


def bench_partial(
    kills: int | None = None,
    on_spark: int = 1,
    units_max: int | None = None,
    *,
    pairs: int = 5,
    quiet: bool = False,
    **_: object,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. `units_max`: of the input only so many units."""
    console = Console(stderr=True, quiet=quiet)
    kills = KILLS_PER_PAIR * pairs if kills is None else kills
    data = _data()
    with scratch() as root:
        bench = Bench(root, data, units_max)
        golden = bench.golden()
        units = _units(sorted(golden), kills)
        sides = bench.sides(golden, units, "local", EVERY_S, console)
        spark = bench.sides(golden, units[:on_spark], "spark", SPARK_EVERY_S, console) if on_spark else {}
    result = report(sides)
    return {
        "bench": "partial",
        **result,
        **({"spark": {k: v for k, v in report(spark).items() if k != "errors"}} if spark else {}),
        "kills": kills,
        "units": len(golden),
        "before_the_kill_equal": True,
        "configuration": {
            "engine": "without Spark",
            "rows_per_step": ROWS_PER_STEP,
            "pace_s": PACE_S,
            "every_s": EVERY_S,
            "spark_every_s": SPARK_EVERY_S,
            "input": data.name,
            "cores": os.cpu_count(),
        },
    }


class Bench:
    """Lives of the program, each pair in a directory of its own."""

    def __init__(self, root: Path, data: Path, units_max: int | None = None) -> None:
        self._root, self._name = root, data.name
        lines = data.read_text().splitlines(keepends=True)
        self._lines = lines if units_max is None else lines[: 1 + units_max]

    def golden(self) -> Foreseen:
        here = self._place("golden")
        self._live(here, None, None, "local")
        return foreseen_in(here)

    def sides(
        self, golden: Foreseen, units: Sequence[int], engine: str, every_s: float, console: Console
    ) -> dict[str, list[Killed]]:
        found: dict[str, list[Killed]] = {"with": [], "without": []}
        for number, unit in enumerate(units):
            for side, every in (("with", every_s), ("without", None)):
                found[side].append(self._killed(f"{engine}-{number}-{side}", golden, unit, every, engine))
            line = ", ".join(f"{side} {rmse(done[-1].errors):.2f}" for side, done in found.items())
            console.print(f"{engine}, kill {number + 1} of {len(units)} at unit {unit}: {line}")
        return found

    def _killed(self, name: str, golden: Foreseen, unit: int, every: float | None, engine: str) -> Killed:
        here = self._place(name)
        self._live(here, every, unit, engine)
        before = foreseen_in(here)
        live = self._live(here, every, None, engine)
        found = foreseen_in(here)
        shutil.rmtree(here)
        if any(golden[one] != value for one, value in before.items()) or max(before, default=0) >= unit:
            raise HoldfastError(f"before unit {unit} was reached, the output was not the golden one.")
        return compared(golden, found, unit, sum(live["lost_rows"].values()))

    def _place(self, name: str) -> Path:
        here = self._root / name
        (here / "in").mkdir(parents=True)
        (here / "in" / self._name).write_text("".join(self._lines))
        return here

    def _live(self, here: Path, every: float | None, kill_at: int | None, engine: str) -> dict[str, Any]:
        """One life; the figures it leaves if it was not to be killed."""
        config = {
            "program": str(PROGRAM),
            "here": str(here),
            "every": every,
            "kill_at": kill_at,
            "engine": engine,
            "rows_per_step": ROWS_PER_STEP,
            "pace_s": PACE_S,
        }
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.bench.losses.partial_child", json.dumps(config)],
            capture_output=True,
            text=True,
            timeout=LIFE_S,
            check=False,
        )
        wanted = 0 if kill_at is None else -signal.SIGKILL
        if done.returncode != wanted:
            raise HoldfastError(
                f"a life ended with {done.returncode} instead of {wanted}: {done.stderr[-2000:]}"
            )
        return {} if kill_at is not None else dict(json.loads(done.stdout.splitlines()[-1]))


def foreseen_in(here: Path) -> Foreseen:
    """What the program has written."""
    found: Foreseen = {}
    for path in sorted((here / "out").glob("*.csv")):
        with path.open(newline="") as file:
            found.update((int(row["unit"]), float(row["foreseen_yield"])) for row in csv.DictReader(file))
    return found


def compared(golden: Foreseen, found: Foreseen, unit: int, counted: int) -> Killed:
    errors = tuple(value - golden[one] for one, value in sorted(found.items()) if one >= unit)
    return Killed(unit, errors, len(golden) - len(found), counted)


def rmse(errors: Sequence[float]) -> float:
    return math.sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0


def report(sides: Mapping[str, Sequence[Killed]]) -> dict[str, Any]:
    """Figures of both sides: over all kills, as the document has it, and kill by kill."""
    pooled = {side: [error for one in done for error in one.errors] for side, done in sides.items()}
    each = {side: [rmse(one.errors) for one in done] for side, done in sides.items()}
    over = {side: rmse(errors) for side, errors in pooled.items()}
    if not over["without"]:
        raise HoldfastError("a model that lost its state foresees what it did before: the kills did nothing.")
    return {
        "rmse_ratio": round(over["with"] / over["without"], 4),
        **{f"rmse_{side}": round(value, 4) for side, value in over.items()},
        "rmse_of_each_kill": {side: [round(one, 4) for one in values] for side, values in each.items()},
        "largest_error": {side: round(max(map(abs, errors)), 2) for side, errors in pooled.items()},
        "missing_rows": {side: [one.missing for one in done] for side, done in sides.items()},
        "counted_as_lost": {side: [one.counted for one in done] for side, done in sides.items()},
        "killed_at_units": [one.unit for one in sides["with"]],
        "errors": {
            side: [round(quantile(sorted(map(abs, errors)), q / 200), 4) for q in range(201)]
            for side, errors in pooled.items()
        },
    }


def _units(units: Sequence[int], kills: int) -> list[int]:
    chance = random.Random(kills)
    low, high = int(EARLIEST * len(units)), int(LATEST * len(units))
    return [units[chance.randrange(low, high)] for _ in range(kills)]


def _data() -> Path:
    shared = Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
    found = sorted((shared / "data" / "fab-yield").glob("*.csv"))
    if not found or not PROGRAM.is_file():
        raise ConfigError(
            f"the benchmark needs {PROGRAM} and a csv file in {shared / 'data' / 'fab-yield'}.",
            cure="Run it in a checkout; HOLDFAST_SHARED may name another shared/.",
        )
    return found[0]
