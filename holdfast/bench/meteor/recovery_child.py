"""One driver of the recovery benchmark, in a process of its own so that it can be killed: `python -m … CONFIG`.

It says what it does in lines of JSON on its standard output: {"recovery_s", …} when it has restored, {"epochs"} when some are published.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.bench.measure.place import SETTINGS
from holdfast.bench.meteor.apps import APPS, Input
from holdfast.bench.meteor.gate import Gate, GatedFiles, KernelMetrics
from holdfast.bench.meteor.link import LinkedStore
from holdfast.ids import ElementName
from holdfast.protocol.timing.aware_timing import Profile
from holdfast.protocol.timing.waiting import Followed, Patience
from holdfast.runtime.engines.spark.session import make_session
from holdfast.runtime.job import Job, job_of
from holdfast.runtime.region.aware_trigger import AwareTrigger
from holdfast.runtime.telling.events import EpochPublished, Restored, RunEvent
from holdfast.testing import submit_local


class Ear:
    """Hears of epochs and of the restore."""

    def __init__(self) -> None:
        self.epochs = threading.Semaphore(0)
        self.restored = threading.Event()
        self.at = 0.0
        self.restore_s = 0.0

    def __call__(self, event: RunEvent) -> None:
        if isinstance(event, EpochPublished):
            self.epochs.release()
        if isinstance(event, Restored):
            self.at, self.restore_s = time.monotonic(), event.restore_s or 0.0
            self.restored.set()


def main(config: dict[str, Any]) -> None:
    app, here = APPS[config["app"]], Path(config["here"])
    given = Input(Path(config["input"]), config["rows"], config["rows_per_step"], config["options"], list)
    session = None
    if config["engine"] == "spark":
        session = make_session("holdfast bench", settings=SETTINGS)
        session.range(1).count()
    gate, ear = Gate(given.rows_per_step, config["rate"]), Ear()
    store = LinkedStore(here / "store", config["bytes_per_s"])
    begun = time.monotonic()
    made = app.build(
        given, here, source=partial(GatedFiles, gate), trigger=config["trigger"], period=config["period"]
    )
    job: Job = (
        submit_local(made, store, subscribers=[ear])
        if session is None
        else job_of(made.submit(spark=session, store=store, subscribers=[ear]))
    )
    kernel = job.loops[ElementName(app.kernel)]
    kernel.metrics = KernelMetrics(kernel.name, gate)
    if config["profile"] is not None:
        (region,) = job.regions.values()
        assert isinstance(region.trigger, AwareTrigger)
        region.trigger.know(profile_from(config["profile"]))
    if config["again"]:
        ear.restored.wait()
        say(recovery_s=ear.at - begun, restore_s=ear.restore_s)
    for _ in range(config["epochs"]):
        ear.epochs.acquire()
    say(epochs=config["epochs"])
    time.sleep(3600)  # until killed


def profile_from(plain: dict[str, Any]) -> Profile:
    """What `asdict` made of it, and JSON."""
    patience = plain["patience"]
    if patience is not None:
        followed = tuple(Followed(**each) for each in patience["followed"])
        patience = Patience(**{**patience, "followed": followed})
    return Profile(**{**plain, "dynamic": frozenset(plain["dynamic"]), "patience": patience})


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
