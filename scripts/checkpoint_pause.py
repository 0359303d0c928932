"""How long an epoch keeps a Python operator with 64 MB of state from its work.

    python scripts/checkpoint_pause.py [--megabytes 64] [--epochs 3]

Prints one line per way of keeping the state: processor time of the element's thread in the longest pin, and the longest
pause as the element measures it (on a busy machine that is mostly waiting for a processor).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import holdfast as hf
from holdfast.runtime.job import Job
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.testing import MemorySink, Rows, submit_local

TEXT_BYTES = 200


class Declared(hf.Operator):
    """A map of fixed values."""

    texts = hf.Map(int, str)
    entries = 0

    def process(self, row: Any, port: int) -> Any:
        if not self.texts:
            self.texts.update({n: f"{n:0{TEXT_BYTES}d}" for n in range(self.entries)})
        self.texts[row.n % self.entries] = f"{row.n:0{TEXT_BYTES}d}"
        time.sleep(0.001)
        return {"n": row.n}


class Plain(Declared):
    """The same as a plain attribute: only the operator knows when it changes."""

    def __init__(self) -> None:
        self.mine: dict[int, str] = {}

    texts = property(lambda self: self.mine)  # type: ignore[assignment]


class Prepared(Plain):
    """The same, copied by the operator itself."""

    def prepare_to_checkpoint(self) -> dict[int, str]:
        return dict(self.mine)

    def reset(self, state: dict[int, str]) -> None:
        self.mine = state


def pause_ms(operator: type, form: Any, megabytes: int, epochs: int) -> dict[str, float]:
    entries = megabytes * (1 << 20) // TEXT_BYTES
    cls = type(operator.__name__, (operator,), {"entries": entries})
    topology = hf.Topology("pauses")
    rows = topology.source(Rows([(n,) for n in range(200_000)], "n long", rows_per_step=50), name="rows")
    stream = rows.consistent("r", trigger="manual").apply(cls, "n long", name="big", checkpoint=form)
    stream.sink(MemorySink("pauses"), name="out")
    cpu: list[float] = []
    with measured(cpu):
        job = submit_local(topology, f"memory:pauses-{time.time_ns()}")
        found = _pauses(job, epochs)
    return {
        "pin_cpu_ms": round(max(cpu) * 1000, 1),
        "pause_ms": round(max(found, default=0.0) * 1000, 1),
        "epochs": len(found),
    }


@contextmanager
def measured(cpu: list[float]) -> Iterator[None]:
    """Processor time of the element's thread in each pin of a Python operator: the same on a busy machine."""
    original = HostedRun.pin

    def pin(self: HostedRun, epoch: Any) -> Any:
        begun = time.thread_time()
        try:
            return original(self, epoch)
        finally:
            cpu.append(time.thread_time() - begun)

    HostedRun.pin = pin  # type: ignore[method-assign]
    try:
        yield
    finally:
        HostedRun.pin = original  # type: ignore[method-assign]


def _pauses(job: Job, epochs: int) -> list[float]:
    try:
        _until(job, lambda: job.status()["elements"]["big"]["rows"] > 0)
        for epoch in range(1, epochs + 1):
            job.trigger_epoch()
            _until(job, lambda epoch=epoch: job.status()["regions"]["r"]["epoch"] >= epoch)
        lives = job.regions[next(iter(job.regions))].lives
        return [seconds for name, each in lives.items() if name == "big" for seconds in each.pauses.seconds]
    finally:
        job.close()
        MemorySink.clear("pauses")


def _until(job: Job, condition: Any) -> None:
    while not condition():
        job.await_termination(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    for name, operator, form in (
        ("declared, incremental", Declared, hf.incremental()),
        ("declared, full", Declared, hf.full()),
        ("plain attributes", Plain, None),
        ("prepare_to_checkpoint", Prepared, None),
    ):
        print(
            json.dumps({"state": name, **pause_ms(operator, form, given.megabytes, given.epochs)}), flush=True
        )


if __name__ == "__main__":
    main()
