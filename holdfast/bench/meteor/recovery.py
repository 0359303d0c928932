"""How soon an application works again after everything was lost: its driver, with JVM and workers, is killed, and a new one goes on.

`recovery_seconds`: from the topology being submitted in a new session until every element has its state of the newest epoch. Starting
Spark counts on no side.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.checkpoints.restore import driver
from holdfast.bench.meteor.figures import Recovery
from holdfast.bench.meteor.window import LEFT, VARIANTS, Setting, Variant
from holdfast.protocol.timing.aware_timing import Profile

CHILD = "holdfast.bench.meteor.recovery_child"
EPOCHS = 3
"""Per window, and published before the kill."""
COMPARED = ("async", "aware")


def recoveries(setting: Setting, pairs: int, console: Console) -> list[Recovery]:
    """So many kills of each variant. Each comes at a moment of its own, the same for both."""
    chance, found = random.Random(5), []
    for number in range(pairs):
        moment = chance.random()
        seconds, restores = {}, {}
        for variant in (v for v in VARIANTS if v.name in COMPARED):
            with setting.grounds.directory(f"recovery-{variant.name}") as here:
                said = _killed(setting, variant, here, moment)
            seconds[variant.name], restores[variant.name] = said["recovery_s"], said["restore_s"]
        found.append(Recovery(seconds, restores))
        shown = ", ".join(f"{name} {took:.2f} s" for name, took in seconds.items())
        console.print(f"{setting.app.name}, everything lost, {number + 1} of {pairs}: {shown}")
    return found


def _killed(setting: Setting, variant: Variant, here: Path, moment: float) -> dict[str, Any]:
    period = setting.seconds / (EPOCHS + LEFT)
    profile = setting.curve.profile(setting.app.kernel, setting.rate, period)
    config = {
        "engine": setting.grounds.engine,
        "app": setting.app.name,
        "input": str(setting.input.directory),
        "rows": setting.input.rows,
        "rows_per_step": setting.input.rows_per_step,
        "options": setting.input.options,
        "here": str(here),
        "period": period,
        "trigger": variant.trigger,
        "bytes_per_s": setting.bytes_per_s,
        "profile": _plain(profile) if variant.trigger == "aware" else None,
    }
    with driver(here, config, CHILD) as child:
        child.wait_for("epochs")
        time.sleep(moment * period)
    with driver(here, {**config, "again": True}, CHILD) as child:
        return child.wait_for("recovery_s")


def _plain(profile: Profile) -> dict[str, Any]:
    return {**asdict(profile), "dynamic": sorted(profile.dynamic)}
