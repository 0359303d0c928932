"""`holdfast bench cold`: from starting a ten-line program until its first row is visible, beside Structured Streaming.

    holdfast    `holdfast run program.py --store store --until available`: a filter and an aggregate in a consistent region
    spark       `python program.py`: the same as a streaming query with availableNow, in a session with Spark's own settings

One small file comes in, as CSV, JSON lines or Parquet; JSON lines come out. This process looks into the output directory all the time. The
whole output is compared with what the input comes to. *missing*: how soon `holdfast run` says that there is no such program, or that
the directory with its input is not there.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.json as pa_json
from rich.console import Console

from holdfast.bench.measure.alternate import check_equal
from holdfast.bench.measure.ratios import speedup_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.subjects.changelog import first_difference, merged, totals_of
from holdfast.bench.whole import programs
from holdfast.bench.whole.processes import Started, started
from holdfast.bench.whole.rows import Format, Size, WholeInputs, meets_condition
from holdfast.bench.whole.sides import OURS, THEIRS
from holdfast.errors import ConfigError, HoldfastError

FORMATS: tuple[Format, ...] = ("csv", "json", "parquet")
MISSING = "missing"
PARTS = (*FORMATS, MISSING)
ROWS, KEYS = 1_000, 10
LOOK_S = 0.003
WAIT_S = 300.0


@dataclass(frozen=True)
class Shown:
    """Seconds from the start of a process until its first row was visible, and until it had ended."""

    first_row_s: float
    whole_s: float


Write = Callable[[Path, str], None]
Side = tuple[Sequence[str], Write]
"""What is started, and what writes its program."""


def our_command() -> list[str]:
    holdfast = Path(sysconfig.get_path("scripts")) / "holdfast"
    if not holdfast.is_file():
        raise ConfigError(f"there is no {holdfast}.", cure="Install holdfast into this Python.")
    return [str(holdfast), "run", programs.NAME, "--store", "store", "--until", "available"]


def sides() -> dict[str, Side]:
    return {
        OURS: (our_command(), programs.write_ours),
        THEIRS: ([sys.executable, programs.NAME], programs.write_theirs),
    }


def bench_cold(
    *, pairs: int = 5, quiet: bool = False, only: Sequence[str] | None = None, **_: object
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    chosen = list(PARTS if only is None else only)
    unknown = next((name for name in chosen if name not in PARTS), None)
    if unknown is not None:
        raise ConfigError(f"bench cold has no part {unknown!r}.", cure=f"There are: {', '.join(PARTS)}.")
    console = Console(stderr=True, quiet=quiet)
    formats = [format for format in FORMATS if format in chosen]
    result: dict[str, Any] = {"bench": "cold"}
    for format in formats:
        report = _format(format, pairs, console)
        if format == formats[0]:
            result |= {name: report[name] for name in report if name.startswith("first_row_ratio")}
        result |= {f"first_row_ratio.{format}": report["first_row_ratio"], format: report}
    if MISSING in chosen:
        result |= _missing(pairs, console)
    configuration = {
        "rows": ROWS,
        "cores": os.cpu_count(),
        "ours": " ".join(["holdfast", *our_command()[1:]]),
        "programs": {OURS: programs.OURS, THEIRS: programs.THEIRS},
    }
    return {**result, "outputs_equal": True, "configuration": configuration}


def _format(format: Format, pairs: int, console: Console) -> dict[str, Any]:
    rounds: list[Mapping[str, Shown]] = []
    with scratch() as root:
        inputs = WholeInputs(root, format, KEYS, Size(1, ROWS, 0))
        for number in range(pairs):
            rounds.append(_round(inputs, sides(), backwards=bool(number % 2)))
            shown = ", ".join(f"{name} {done.first_row_s:.1f} s" for name, done in rounds[-1].items())
            console.print(f"{format}, round {number + 1} of {pairs}, first row: {shown}")
    ratio = speedup_of([done[OURS].first_row_s / done[THEIRS].first_row_s for done in rounds])
    console.print(f"{format}: first_row_ratio {ratio}")
    return {
        **figure("first_row_ratio", ratio),
        "first_row_s": _seconds(rounds, lambda done: done.first_row_s),
        "whole_s": _seconds(rounds, lambda done: done.whole_s),
    }


def _seconds(
    rounds: Sequence[Mapping[str, Shown]], what: Callable[[Shown], float]
) -> dict[str, dict[str, Any]]:
    found = {name: [what(done[name]) for done in rounds] for name in (OURS, THEIRS)}
    return {
        name: {"median": round(median(all_of), 2), "all": [round(one, 2) for one in all_of]}
        for name, all_of in found.items()
    }


def _round(inputs: WholeInputs, turn: Mapping[str, Side], backwards: bool) -> dict[str, Shown]:
    done: dict[str, Shown] = {}
    seen: dict[str, Any] = {}
    for name in list(turn)[:: -1 if backwards else 1]:
        command, write = turn[name]
        with scratch() as directory:
            (directory / "in").mkdir()
            inputs.link(directory / "in", 1)
            write(directory, inputs.format)
            done[name] = first_row(command, directory)
            seen[name] = look(inputs, directory / "out")
    check_equal(seen)
    return {name: done[name] for name in turn}


def first_row(command: Sequence[str], directory: Path) -> Shown:
    """Start it and look into `out` until a row is there; then wait for its end."""
    with started(command, directory) as process:
        seen = _wait_for_a_row(process, directory / "out")
        whole = process.wait()
        process.check()
        return Shown(seen - process.begun, whole)


def _wait_for_a_row(process: Started, out: Path) -> float:
    while True:
        ended = process.process.poll() is not None
        if has_a_row(out):
            return time.monotonic()
        if ended or time.monotonic() > process.begun + WAIT_S:
            raise HoldfastError(f"a side showed no row: {process.last_words()}")
        time.sleep(LOOK_S)


def has_a_row(out: Path) -> bool:
    """Whether a file with a row in it has its final name."""
    try:
        return any(entry.stat().st_size > 0 for entry in os.scandir(out) if entry.name[0] not in "._")
    except FileNotFoundError:
        return False


def look(inputs: WholeInputs, out: Path) -> dict[str, int]:
    """What a program wrote, merged by key; it must be what its input comes to."""
    files = [path for path in sorted(out.iterdir()) if path.name[0] not in "._" and path.stat().st_size]
    found = merged((pa_json.read_json(path) for path in files), inputs.keys)
    keys, values = inputs.rows_of(0)
    kept = meets_condition(values)
    wrong = first_difference(found, totals_of([(keys[kept], values[kept])], inputs.keys))
    if wrong is not None:
        raise HoldfastError(f"a side wrote wrong rows: {wrong}.")
    return found.summary()


# --- missing --------------------------------------------------------------------------------------------------------


def _missing(times: int, console: Console) -> dict[str, Any]:
    """Of `holdfast run` without a program, and without the directory that its program reads."""
    found: dict[str, list[float]] = {"missing_program_s": [], "missing_input_s": []}
    for _ in range(times):
        found["missing_program_s"].append(refused(lambda directory: None))
        found["missing_input_s"].append(refused(lambda directory: programs.write_ours(directory, "csv")))
    report = {name: round(median(seconds), 2) for name, seconds in found.items()}
    console.print(", ".join(f"{name} {seconds}" for name, seconds in report.items()))
    return {**report, MISSING: {name: [round(one, 2) for one in seconds] for name, seconds in found.items()}}


def refused(prepare: Callable[[Path], None]) -> float:
    """Seconds until `holdfast run` has ended, which must say what is wrong."""
    with scratch() as directory:
        prepare(directory)
        with started(our_command(), directory) as process:
            seconds = process.wait()
            if process.process.returncode in (0, 1) or "error" not in process.last_words():
                raise HoldfastError(f"a run that lacks a file was not refused: {process.last_words()}")
            return seconds
