"""Both sides over the same rows, each in a process of its own, taking turns; what they wrote is compared.

The other side runs with several trigger sizes, as its users would try them. Its best counts: the one with the largest median. One
that is far from the best in the first round is left out of the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from holdfast.bench.measure.alternate import check_equal
from holdfast.bench.measure.cpu import per_million_rows
from holdfast.bench.measure.ratios import Ratio, speedup_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.subjects.changelog import COLUMNS, first_difference, merged
from holdfast.bench.whole import flink
from holdfast.bench.whole.flink import FLINK
from holdfast.bench.whole.processes import NOTHING, started
from holdfast.bench.whole.rows import Format, Size, WholeInputs
from holdfast.bench.whole.sides import OURS, THEIRS, Task
from holdfast.errors import HoldfastError

CHILD = "holdfast.bench.whole.child"
OUR_FILES = 3
"""Per step of ours: one size, where theirs has several."""
TRIGGERS = (1, 3, 10)
"""Files per trigger of theirs."""
FAR = 0.8
"""Of the best in the first round: what is slower is measured no more."""
SINGLE = (OURS, FLINK)
"""Sides that run with one size of step only."""


@dataclass(frozen=True)
class Part:
    """One thing to measure. `subject`: its name without how it is measured and over how many keys."""

    subject: str
    format: Format
    expressions: bool
    warm: bool
    keys: int
    size_name: str

    @property
    def mode(self) -> str:
        return "warm" if self.warm else "whole"

    @property
    def name(self) -> str:
        return f"{self.subject}.{self.mode}.{self.size_name}"

    def figure_against(self, other: str) -> str:
        return f"{self.subject}.{self.mode}_ratio_vs_{other}.{self.size_name}"


@dataclass(frozen=True)
class Done:
    """What one side did in one round. `seconds`: of the whole process, or of what came behind the warm-up."""

    seconds: float
    steps: int
    epochs: int
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    started_s: float = 0.0
    """Of a whole process: how much of it went by until its session was there."""


Launch = Callable[[dict[str, Any], Path], Done]
"""(configuration of a child, a directory for it) → what it did."""
Round = Mapping[str, Done]


@dataclass(frozen=True)
class Ground:
    """What the rounds of a part share."""

    inputs: WholeInputs
    warm_up: WholeInputs
    size: Size
    triggers: Sequence[int]
    launch: Launch
    with_flink: bool = False

    @property
    def sides(self) -> dict[str, tuple[str, int]]:
        """By name: who works, and over how many files in a step (Flink has no steps)."""
        theirs = {f"{THEIRS}_{n}": (THEIRS, n) for n in self.triggers}
        return {OURS: (OURS, OUR_FILES), **theirs, **({FLINK: (FLINK, 1)} if self.with_flink else {})}


def launch(config: dict[str, Any], directory: Path) -> Done:
    """A process from its start to its exit."""
    interpreter, more = flink.interpreter() if config["side"] == FLINK else (sys.executable, NOTHING)
    with started([interpreter, "-m", CHILD, json.dumps(config)], directory, more) as child:
        seconds = child.wait()
        child.check()
        report: dict[str, Any] = {}
        for line in child.out.read_text().splitlines():
            report |= json.loads(line) if line.startswith("{") else {}
    if config["warm_up"] is not None:
        seconds = report["seconds"]
    return Done(seconds, report["steps"], report["epochs"], report["cpu_s"], report["started_s"])


def measure(part: Part, ground: Ground, pairs: int, console: Console) -> dict[str, Any]:
    """The rounds of a part; what is reported of it, with its ratios among it."""
    rounds: list[Round] = []
    turn = list(ground.sides)
    for number in range(pairs):
        rounds.append(_round(part, ground, turn if number % 2 == 0 else turn[::-1]))
        rates = {name: ground.size.rows / done.seconds for name, done in rounds[-1].items()}
        shown = ", ".join(f"{name} {rates[name]:,.0f}" for name in turn)
        console.print(f"{part.name}, round {number + 1} of {pairs}, rows/s: {shown}")
        if number == 0:
            turn = near_the_best(turn, rates)
    return report(part, ground.size, rounds, console)


def near_the_best(names: Sequence[str], rates: Mapping[str, float]) -> list[str]:
    """Ours, and those of theirs that may still turn out to be the best."""
    best = max(rates[name] for name in names if name not in SINGLE)
    return [name for name in names if name in SINGLE or rates[name] >= FAR * best]


def _round(part: Part, ground: Ground, turn: Sequence[str]) -> Round:
    done: dict[str, Done] = {}
    seen: dict[str, Any] = {}
    for name in turn:
        with scratch() as directory:
            config = configuration(part, ground, name, directory)
            done[name] = ground.launch(config, directory)
            seen[name] = look(part, ground, directory / "out")
        if name == OURS and not done[name].epochs:
            raise HoldfastError("the region published no epoch: the figures would mean nothing.")
    check_equal(seen)
    return done


def configuration(part: Part, ground: Ground, name: str, directory: Path) -> dict[str, Any]:
    """Of the child that is the side of this name."""
    side, files_per_step = ground.sides[name]

    def task(inputs: WholeInputs, files: int, prefix: str = "") -> dict[str, Any]:
        places = [str(directory / f"{prefix}{place}") for place in ("out", "store")]
        source = str(inputs.directory(files))
        return asdict(Task(part.format, part.expressions, files_per_step, source, *places))

    return {
        "side": side,
        "task": task(ground.inputs, ground.size.files),
        "warm_up": task(ground.warm_up, ground.size.warm_up_files, "warm-up-") if part.warm else None,
    }


def look(part: Part, ground: Ground, out: Path) -> dict[str, int]:
    """What a side wrote, merged by key; it must be what its input comes to."""
    found = merged(written(out), part.keys)
    wrong = first_difference(found, ground.inputs.totals(ground.size.files, part.expressions))
    if wrong is not None:
        raise HoldfastError(f"{part.name}: a side wrote wrong rows: {wrong}.")
    return found.summary()


def written(out: Path) -> Iterator[pa.Table]:
    """Files of rows: Parquet, or, from Flink, csv without a header and without a suffix."""
    for file in sorted(out.iterdir()):
        if file.suffix == ".parquet":
            yield pq.read_table(file, columns=list(COLUMNS))
        elif file.name.startswith("part-") and file.stat().st_size:
            yield pa_csv.read_csv(file, pa_csv.ReadOptions(column_names=list(COLUMNS)))


# --- figures --------------------------------------------------------------------------------------------------------


def by_side(rounds: Sequence[Round]) -> dict[str, list[Done]]:
    """All that each side did, also of those that were left out later."""
    return {name: [done[name] for done in rounds if name in done] for name in sorted(rounds[0])}


def best_of(rounds: Sequence[Round]) -> str:
    """Whichever of theirs took part to the end and has the smallest median."""
    there = [name for name in rounds[-1] if name not in SINGLE]
    return min(there, key=lambda name: median(done[name].seconds for done in rounds))


def report(part: Part, size: Size, rounds: Sequence[Round], console: Console) -> dict[str, Any]:
    best, sides = best_of(rounds), by_side(rounds)
    against = {"spark": best, **({"flink": FLINK} if FLINK in sides else {})}
    ratios = {
        other: speedup_of([done[name].seconds / done[OURS].seconds for done in rounds])
        for other, name in against.items()
    }
    found: dict[str, Any] = {}
    for other, ratio in ratios.items():
        found |= figure(part.figure_against(other), ratio)
    found |= {
        "best_of_theirs": best,
        "rows_per_s": {name: round(size.rows / median(d.seconds for d in done)) for name, done in sides.items()},
        "seconds": {name: [round(d.seconds, 2) for d in done] for name, done in sides.items()},
        "session_s": {name: round(median(d.started_s for d in done), 2) for name, done in sides.items()},
        "steps": {name: [d.steps for d in done] for name, done in sides.items()},
        "epochs_published": [d.epochs for d in sides[OURS]],
        "cpu_s_per_million_rows": {
            name: per_million_rows([d.cpu_s for d in done], size.rows) for name, done in sides.items()
        },
    }  # fmt: skip
    _show(part, ratios, found, console)
    return found


def _show(part: Part, ratios: Mapping[str, Ratio], report: Mapping[str, Any], console: Console) -> None:
    table = Table("side", "rows/s", "rounds", "CPU s per million rows", title=part.name, title_justify="left")
    for name, rate in report["rows_per_s"].items():
        cpu = ", ".join(
            f"{kind} {seconds:.2f}" for kind, seconds in report["cpu_s_per_million_rows"][name].items()
        )
        table.add_row(name, f"{rate:,}", str(len(report["seconds"][name])), cpu)
    console.print(table)
    for other, ratio in ratios.items():
        side = report["best_of_theirs"] if other == "spark" else other
        console.print(f"{part.figure_against(other)} (against {side}): {ratio}")
