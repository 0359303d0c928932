"""How soon an application works again after everything was lost: its driver, with JVM and workers, is killed, and a new one goes on.

`recovery_seconds`: from the topology being submitted in a new session until every element has its state of the newest epoch. Starting
Spark counts on no side. What the sinks show after a kill is compared like that of windows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.checkpoints.restore import driver
from holdfast.bench.meteor.compared import Outputs
from holdfast.bench.meteor.figures import PACED, Recovery
from holdfast.bench.meteor.window import VARIANTS, Setting, Variant, shown
from holdfast.protocol.timing.aware_timing import Profile

CHILD = "holdfast.bench.meteor.recovery_child"
EPOCHS = 2
"""Published before each kill."""
COMPARED = tuple(variant for variant in VARIANTS if variant.name in ("async", "aware"))
KILLS_AT_MOST = 2
"""Of one run: its input has an end."""


def recoveries(setting: Setting, pairs: int, outputs: Outputs, console: Console) -> list[Recovery]:
    """So many kills of each variant. Each comes at a moment of its own, the same for both."""
    chance, found = random.Random(5), list[Recovery]()
    while len(found) < pairs:
        moments = [chance.random() for _ in range(min(KILLS_AT_MOST, pairs - len(found)))]
        for recovery in _killed(setting, moments, outputs):
            found.append(recovery)
            line = ", ".join(f"{name} {took:.2f} s" for name, took in recovery.seconds.items())
            console.print(f"{setting.app.name}, everything lost, {len(found)} of {pairs}: {line}")
    return found


def _killed(setting: Setting, moments: list[float], outputs: Outputs) -> Iterator[Recovery]:
    """Runs of all variants, in turns; killed at these moments of a period."""
    with ExitStack() as places:
        here = {v: places.enter_context(setting.grounds.directory(f"recovery-{v.name}")) for v in COMPARED}
        for number, moment in enumerate([*moments, None]):
            said = {}
            for variant, place in here.items():
                with driver(place, _config(setting, variant, place, again=number > 0), CHILD) as child:
                    if number > 0:
                        said[variant.name] = child.wait_for("recovery_s")
                    if moment is not None:
                        child.wait_for("epochs")
                        time.sleep(moment * setting.lead_s)
                outputs.add(f"{variant.name} (killed)", shown(place / "out"))
            if said:
                yield Recovery(
                    *({name: one[what] for name, one in said.items()} for what in ("recovery_s", "restore_s"))
                )


def _config(setting: Setting, variant: Variant, here: Path, again: bool) -> dict[str, Any]:
    rate, period = PACED * setting.rate, setting.lead_s
    profile = setting.curve.profile(setting.app.kernel, rate, period)
    return {
        "engine": setting.grounds.engine,
        "app": setting.app.name,
        "input": str(setting.input.directory),
        "rows": setting.input.rows,
        "rows_per_step": setting.input.rows_per_step,
        "options": setting.input.options,
        "here": str(here),
        "period": period,
        "rate": rate,
        "trigger": variant.trigger,
        "bytes_per_s": setting.bytes_per_s,
        "profile": _plain(profile) if variant.trigger == "aware" else None,
        "epochs": EPOCHS,
        "again": again,
    }


def _plain(profile: Profile) -> dict[str, Any]:
    return {**asdict(profile), "dynamic": sorted(profile.dynamic)}
