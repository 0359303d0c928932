"""`holdfast bench checkpoint-restore` and `checkpoint-bound`: drivers that are killed, and how soon the next one works.

*restore*: a running aggregate with 512 MB of state. Its driver, JVM included, is killed by SIGKILL; a new one finds new
input whose first step touches one key in a hundred, at random. `restore_ratio_vs_spark`: seconds from its session
being ready until the rows of that step were handed to the sink, over the same with Structured Streaming.

*bound*: the same with `restore_within` of 1, 2 and 5 seconds, killed again and again at random moments while the state
changes. `bound_met` is the share of restores that took no longer; restore time is what the run itself measured.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from holdfast.bench.checkpoints.filled_run import FILLING_ROWS
from holdfast.bench.checkpoints.throughput import ROW_BYTES
from holdfast.bench.measure.inputs import write_keyed
from holdfast.bench.measure.ratios import speedup_of
from holdfast.bench.measure.report import figure
from holdfast.bench.measure.scratch import scratch
from holdfast.bench.subjects.state_growth import filling_inputs
from holdfast.errors import HoldfastError

SIZE_MB = 512
PERIOD_S = 2.0
STEP_ROWS = 100_000
STEPS_AFTER = 15
WAIT_S = 900.0
SIDES = ("holdfast", "spark_default")
CHILD = "holdfast.bench.checkpoints.restore_child"


class Driver:
    """A child process and what it says. It leads a process group of its own, so that its JVM dies with it."""

    def __init__(self, directory: Path, config: dict[str, Any], module: str = CHILD) -> None:
        path = directory / f"driver-{time.monotonic_ns()}.json"
        path.write_text(json.dumps(config))
        self._log = (directory / f"{path.stem}.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(path)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, field: str) -> dict[str, Any]:
        """The next message with that field."""
        assert self._process.stdout is not None
        limit = time.monotonic() + WAIT_S
        for line in self._process.stdout:
            if line.startswith("{") and field in (said := json.loads(line)):
                return dict(said)
            if time.monotonic() > limit:
                break
        raise HoldfastError(f"a driver of the benchmark ended without telling {field!r}: {self._log.name}")

    def kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._log.close()


@contextmanager
def driver(directory: Path, config: dict[str, Any], module: str = CHILD) -> Iterator[Driver]:
    """A driver that is killed at the end of the block."""
    child = Driver(directory, config, module)
    try:
        yield child
    finally:
        child.kill()


def bench_checkpoint_restore(
    size_mb: int = SIZE_MB,
    sides: Sequence[str] = SIDES,
    *,
    pairs: int = 5,
    quiet: bool = False,
    **_: object,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    console = Console(stderr=True, quiet=quiet)
    keys = size_mb * 1_000_000 // ROW_BYTES
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    with scratch() as root:
        runs = {side: Restored(root / side, side, keys) for side in sides}
        for side, run in runs.items():
            console.print(f"{side}: filling {keys:,} keys")
            run.fill()
        for number in range(pairs):
            for side in sides if number % 2 == 0 else reversed(sides):
                found[side].append(runs[side].restore())
            shown = ", ".join(f"{side} {found[side][-1]['first_s']:.2f} s" for side in sides)
            console.print(f"restore {number + 1} of {pairs}: {shown}")
    ours, theirs = (found[side] for side in sides[:2])
    first = [a["first_s"] / b["first_s"] for a, b in zip(ours, theirs, strict=True)]
    back = [
        a["back_s"] / b["back_s"] for a, b in zip(ours, theirs, strict=True) if a["back_s"] and b["back_s"]
    ]
    return {
        "bench": "checkpoint-restore",
        **figure("restore_ratio_vs_spark", speedup_of(first)),
        **(figure("back_to_rate_ratio_vs_spark", speedup_of(back)) if back else {}),
        "first_s": {side: [round(one["first_s"], 3) for one in found[side]] for side in sides},
        "back_to_rate_s": {side: [one["back_s"] and round(one["back_s"], 2) for one in found[side]] for side in sides},
        "restore_s": [one.get("restore_s") for one in ours],
        "restore_predicted_s": [one.get("restore_predicted_s") for one in ours],
        "keys": keys,
        "state_mb": size_mb,
        "outputs": "the sink's rows are checked by the other benchmarks and by the tests",
    }  # fmt: skip


class Restored:
    """One side: its files, its store, and drivers that come and go."""

    def __init__(self, root: Path, side: str, keys: int, **more: Any) -> None:
        self._root = root
        self._keys = keys
        self._files = root / "files"
        self._files.mkdir(parents=True)
        self._config = {
            "side": side,
            "files": str(self._files),
            "out": str(root / "out"),
            "store": str(root / "store"),
            "period": PERIOD_S,
            **more,
        }
        self._number = 0
        self._usual: float | None = None

    def fill(self) -> None:
        """Every key once, then some steps as they will come later; killed when all of it is in an epoch."""
        filling = filling_inputs(self._root / "filling", self._keys, FILLING_ROWS)
        filling.link(self._files, len(filling.distinct), "a-filling")
        self.add_steps(STEPS_AFTER)
        with driver(self._root, {**self._config, "steps": len(filling.distinct) + STEPS_AFTER}) as child:
            self._usual = child.wait_for("filled")["step_s"]

    def restore(self) -> dict[str, Any]:
        """New input, a new driver; killed when it is back at its work."""
        self.add_steps(STEPS_AFTER)
        config = {**self._config, "steps": STEPS_AFTER, "first": True, "usual_step_s": self._usual}
        with driver(self._root, config) as child:
            first = child.wait_for("first_s")
            return {**first, "back_s": child.wait_for("filled")["back_s"]}

    def interrupted(self, seconds: float) -> dict[str, Any]:
        """A new driver, killed after it has restored and worked for so long."""
        self.add_steps(STEPS_AFTER)
        with driver(self._root, {**self._config, "steps": 1 << 30, "first": True}) as child:
            first = child.wait_for("first_s")
            time.sleep(seconds)
            return first

    def add_steps(self, count: int) -> None:
        """Input whose steps touch one key in a hundred each, at random."""
        rows = max(STEP_ROWS, self._keys // 100)
        for _ in range(count):
            made = self._root / f"made-{self._number % 8}.parquet"
            if not made.exists():
                chance = np.random.default_rng([self._keys, self._number])
                write_keyed(made, chance.integers(0, self._keys, rows), chance)
            os.link(made, self._files / f"b-{self._number:07}.parquet")
            self._number += 1


def bench_checkpoint_bound(
    size_mb: int = 64,
    bounds: Sequence[float] = (1.0, 2.0, 5.0),
    each: int = 7,
    *,
    quiet: bool = False,
    **_: object,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data."""
    console = Console(stderr=True, quiet=quiet)
    keys = size_mb * 1_000_000 // ROW_BYTES
    found: dict[str, list[dict[str, Any]]] = {}
    chance = random.Random(keys)
    with scratch() as root:
        for bound in bounds:
            run = Restored(root / f"within-{bound:g}", "holdfast", keys, restore_within=bound)
            run.fill()
            restores = found.setdefault(f"{bound:g}", [])
            for number in range(each):
                restores.append(run.interrupted(chance.uniform(1.0, 6.0)))
                console.print(f"within {bound:g} s, {number + 1} of {each}: {restores[-1]}")
    measured = [(float(bound), one) for bound, all_of in found.items() for one in all_of]
    met = [one["restore_s"] <= bound for bound, one in measured]
    return {
        "bench": "checkpoint-bound",
        "bound_met": round(sum(met) / len(met), 4),
        "restores": len(met),
        "restore_s": {bound: [one["restore_s"] for one in all_of] for bound, all_of in found.items()},
        "predicted_s": {
            bound: [one["restore_predicted_s"] for one in all_of] for bound, all_of in found.items()
        },
        "median_measured_over_predicted": round(
            median(one["restore_s"] / one["restore_predicted_s"] for _, one in measured), 3
        ),
        "state_mb": size_mb,
    }
