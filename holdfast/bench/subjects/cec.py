"""`holdfast bench cec`: what eventual checkpoints cost a windowed aggregate, and what their restore reads and replays.

Both sides are the same program: Parquet files, an aggregate over windows of rows, a log of the results. Ours has `hf.eventual(…)`, the other
side has no checkpoint at all and would lose its windows. Regimes are the document's: *fast*, windows of one row; *slow*, two keys and
windows of 1,000 rows; *mixed*, 110 keys of which ten are rare, windows of 10 rows. Sides alternate, and the logs are compared.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import holdfast as hf
from holdfast.bench.measure.ratios import Ratio, ratio_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.subjects.cec_restore import worked_example
from holdfast.errors import HoldfastError
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.job import Job

HALF_WIDTH_MAX = 0.02
OPEN = "open"
"""Open records only."""
WINDOWS = {"fast": 1, "slow": 1000, "mixed": 10}

Engines = Callable[[], Engine]


@dataclass(frozen=True)
class Work:
    """Sizes of the benchmark."""

    step_rows: int = 10_000
    steps_min: int = 8
    steps_max: int = 400
    checks_ms: tuple[int, ...] = (2, 10, 20, 100)
    windows: int = 100
    window_rows: int = 10_000
    full: float = 0.9


def bench_cec(
    work: Work = Work(), *, pairs: int, seconds: float, quiet: bool, engines: Engines | None = None
) -> dict[str, Any]:
    console = Console(stderr=True, quiet=quiet)
    result: dict[str, Any] = {"bench": "cec", "configuration": {"step_rows": work.step_rows}}
    shown: dict[str, Ratio] = {}
    with scratch() as root, _on(engines) as make:
        for regime in WINDOWS:
            found = measured(root / regime, regime, work, pairs, seconds, make, console)
            for side, ratios in found["ratios"].items():
                name = f"normalized_throughput_{regime}_{side}"
                shown[name] = ratio_of(ratios, half_width_max=HALF_WIDTH_MAX)
                result |= figure(name, shown[name])
            result[f"regime_{regime}"] = found["told"]
        result["worked_example"] = worked_example(root / "restore", work, make, console)
    show(console, shown, result)
    return result


@contextmanager
def _on(engines: Engines | None) -> Iterator[Engines]:
    if engines is not None:
        yield engines
        return
    from holdfast.bench.measure.place import SETTINGS
    from holdfast.runtime.engines.spark.engine import SparkEngine
    from holdfast.runtime.engines.spark.session import make_session

    session = make_session("holdfast bench", settings=SETTINGS)
    try:
        yield lambda: SparkEngine(session)
    finally:
        session.stop()


def measured(
    here: Path, regime: str, work: Work, pairs: int, seconds: float, engines: Engines, console: Console
) -> dict[str, Any]:
    """Ratios of one regime by side, and what both sides did."""
    forms = {OPEN: hf.eventual(None)}
    forms |= {f"{ms}ms": hf.eventual(ms / 1000, slow_after=ms / 1000, shots=1) for ms in work.checks_ms}
    steps = work.steps_min
    for _ in range(2):  # warm up, and see how long a step takes
        fill(here / "input", regime, work, steps)
        pace = stretch(here, regime, None, engines)[0] / steps
        stretch(here, regime, forms[OPEN], engines)
        steps = min(work.steps_max, max(work.steps_min, round(seconds / pace)))
    fill(here / "input", regime, work, steps)
    ratios: dict[str, list[float]] = {side: [] for side in forms}
    took: dict[str, list[float]] = {"native": []}
    sizes: dict[str, int] = {}
    for number in range(pairs):
        for side, form in forms.items():
            native, wanted, sizes["native"] = stretch(here, regime, None, engines)
            ours, found, sizes[side] = stretch(here, regime, form, engines)
            if not found.equals(wanted):
                raise HoldfastError(f"the results of {regime} with {side} differ.")
            ratios[side].append(native / ours)
            took["native"].append(native)
            took.setdefault(side, []).append(ours)
        console.print(
            f"{regime}, pair {number + 1} of {pairs}: { ({s: round(r[-1], 3) for s, r in ratios.items()}) }"
        )
    shutil.rmtree(here)
    rows = steps * work.step_rows
    rates = {side: round(rows * len(each) / sum(each)) for side, each in took.items()}
    figures = {"rows": rows, "steps": steps, "rows_per_s": rates, "log_bytes": sizes}
    return {"ratios": ratios, "told": figures}


def fill(here: Path, regime: str, work: Work, steps: int) -> None:
    """Parquet files, one per step."""
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    dice = np.random.default_rng(7)
    for number in range(steps):
        keys = keys_of(dice, regime, work.step_rows)
        prices = dice.integers(1, 1000, work.step_rows)
        pq.write_table(pa.table({"item": keys, "price": prices}), here / f"{number:05}.parquet")


def keys_of(dice: np.random.Generator, regime: str, rows: int) -> Any:
    match regime:
        case "fast":
            return dice.integers(0, 1000, rows)
        case "slow":
            return dice.integers(0, 2, rows)
    common, rare = dice.integers(0, 100, rows), dice.integers(100, 110, rows)
    return np.where(dice.random(rows) < 0.01, rare, common)


def stretch(here: Path, regime: str, form: Any, engines: Engines) -> tuple[float, pa.Table, int]:
    """(seconds from the first step to the end, the results in one order, bytes of the log)."""
    shutil.rmtree(here / "log", ignore_errors=True)
    made = hf.Topology("cec")
    rows = made.source(hf.Files(here / "input", format="parquet", max_files_per_step=1), name="items")
    window = hf.tumbling(rows=WINDOWS[regime])
    average = rows.aggregate("item", window=window, average=hf.avg("price"), name="average")
    kept = average if form is None else average.checkpoint(form=form)
    kept.sink(hf.LogSink(here / "log"), name="log")
    engine, begun = engines(), []
    engine.before_step = lambda element, work: begun.append(time.perf_counter())
    job = Job(made.graph(), engine, None, until="available", rest_s=0.001).start()
    try:
        while not job.await_termination(timeout=3600):
            pass
        took = time.perf_counter() - begun[0]
    finally:
        job.close()
    size = sum(path.stat().st_size for path in (here / "log").rglob("*") if path.is_file())
    found = hf.Log(here / "log").reader().read_all()
    return took, found.sort_by([("item", "ascending"), ("window_rows", "ascending")]).combine_chunks(), size


def show(console: Console, shown: dict[str, Ratio], result: dict[str, Any]) -> None:
    table = Table("figure", "median", "interval", title="against no checkpoint at all", title_justify="left")
    for name, ratio in shown.items():
        verdict = "" if ratio.conclusive else " (inconclusive: the machine is too noisy)"
        table.add_row(name, f"{ratio.median:.3f}", f"± {ratio.half_width:.3f}{verdict}")
    console.print(table)
    console.print(f"restore of the worked example: {result['worked_example']}")
