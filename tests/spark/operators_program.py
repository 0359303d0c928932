"""Child of test_spark_operators_survive_kills: keyed operators of all kinds side by side in one region, to the end of
their input. `python operators_program.py DIRECTORY MASTER`; what it is to suffer is in its environment.

`DEADLY`: JSON, operator → moment. A task of the operator kills its own Python worker once: at its *begin*, or when it
is *done*: segments and the sink's files are written then, and nobody knows of them yet. Only after a new epoch, so that there
is something to go back to. `SHUFFLED=1`: rows reach the tasks through a shuffle.

Everything here is shipped to the workers by value. It ends when its parent is gone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast as hf

SCHEMA = "at timestamp, k string, a double, end boolean, v long"
STEPS = {"left": 60, "right": 50}
"""Rows per step of each source."""
OPERATORS = (
    "interval", "asof", "ordered", "again", "best", "sorted", "both", "sessions", "counted", "sliding", "marked"
)  # fmt: skip
"""Each has a sink of its own, in the directory of its name."""
REGION, PERIOD_S = "region", 0.5


class Sessions(hf.KeyedOperator):
    """A row per pause of a key, by timers, with state of every kind."""

    count = hf.Value(int, default=0)
    until = hf.Value(dt.datetime)
    tens = hf.Map(int, int, ttl=20)
    recent = hf.Window(int, rows=3)

    def process(self, row: Any, key: Any) -> None:
        if self.until is not None:
            self.clear_timer(self.until)
        self.count += 1
        self.tens[row.v // 10] = self.tens.get(row.v // 10, 0) + 1
        self.recent.append(row.v)
        self.until = row.at + dt.timedelta(seconds=1)
        self.set_timer(self.until)

    def on_timer(self, at: dt.datetime, key: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key, "ended": at, "rows": self.count, "said": f"{self.tens} {self.recent}"}
        self.count = 0


def build(here: Path, out: Path) -> hf.Topology:
    """Input from `here`; outputs that do not depend on the pace of a run, each with a sink of its own in `out`."""
    topology = hf.Topology("operators")
    left, right = (
        topology.source(
            hf.Files(str(here / name), "parquet", SCHEMA, max_rows_per_step=rows), name=name
        ).consistent(name=REGION, period=PERIOD_S)
        for name, rows in STEPS.items()
    )
    streams = {**joined(left, right), **kept(left, right), **windowed(left)}
    assert tuple(streams) == OPERATORS
    for name, stream in streams.items():
        stream.sink(hf.FileSink(str(out / name), "parquet"), name=f"{name}_out")
    return topology


def joined(left: Any, right: Any) -> dict[str, Any]:
    timed: dict[str, Any] = {"on": "at", "delay": 3}
    latest: dict[str, Any] = {"keep": hf.latest(rows=30), "other_keep": hf.latest(2)}
    return {
        "interval": left.join(right, "k", within=(1, 2), how="left", name="interval", **timed),
        "asof": left.asof_join(right, "k", tolerance=5, name="asof", **timed),
        "ordered": left.join(right, "k", name="ordered", **latest, **timed),
    }


def kept(left: Any, right: Any) -> dict[str, Any]:
    """Rows that wait, are remembered or ranked, and what Python keeps of a key."""
    return {
        "again": left.dedup("k", ttl=hf.ttl(2, on="at", delay=1), name="again"),
        "best": left.top_n(
            2, by="k", order=["-v", "at"], window=hf.tumbling(6, on="at", delay=2), name="best"
        ),
        "sorted": left.union(right).sort("at", delay=3, name="sorted"),
        "both": left.zip(right, by="k", name="both"),
        "sessions": left.keyed(
            "k", Sessions, "k string, ended timestamp, rows long, said string", name="sessions", on="at", delay=2
        ),
    }  # fmt: skip


def windowed(left: Any) -> dict[str, Any]:
    windows: dict[str, Any] = {
        "counted": hf.sliding(rows=20, every=5),
        "sliding": hf.sliding(delta=20, of="a", every=3),
        "marked": hf.tumbling(until="end"),
    }
    return {
        name: left.aggregate("k", window=window, c=hf.count(), all=hf.collect("v"), name=name)
        for name, window in windows.items()
    }


def epoch_of(here: Path) -> int:
    """The newest one; works whatever happened to the owner of the store."""
    found = (here / "store" / "epochs" / REGION).glob("*.manifest")
    return max((int(path.name[:12]) for path in found), default=0)


def deadly_stage(here: str, deadly: dict[str, str]) -> Any:
    """A stage whose worker dies once for each operator in `deadly`, but at most once per epoch; `died/EPOCH` tells of it."""
    from holdfast.runtime.engines.spark.stage import KeyedStage

    class DeadlyStage(KeyedStage):
        def apply(self, partition: int, attempt: int, arrived: Any) -> dict[str, Any] | None:
            if arrived is not None:
                self.die("begin")
            done = super().apply(partition, attempt, arrived)
            if done is not None:
                self.die("done")
            return done

        def die(self, moment: str) -> None:
            name, epoch = str(self.task.operator), epoch_of(Path(here))
            if (
                deadly.get(name) != moment
                or not epoch
                or any(name == dead for dead, *_ in deaths(Path(here)))
            ):
                return
            try:
                note = os.open(f"{here}/died/{epoch:04}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                return
            os.write(note, f"{name} {moment} {epoch} {time.time()}".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return DeadlyStage


def deaths(here: Path) -> list[list[str]]:
    """[operator, moment, epoch, time] of each worker that died so far, in order."""
    return [words for path in sorted((here / "died").iterdir()) if (words := path.read_text().split())]


def end_with_parent() -> None:
    """The parent holds the other end of stdin and never writes to it: its end is the parent's death."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main(here: str, master: str) -> None:
    from holdfast.chaos.campaign_driver import SETTINGS
    from holdfast.runtime.engines.spark import keyed
    from holdfast.runtime.engines.spark.session import make_session

    threading.Thread(target=end_with_parent, daemon=True).start()
    if deadly := json.loads(os.environ.get("DEADLY", "{}")):
        keyed.KeyedStage = deadly_stage(here, deadly)  # type: ignore[attr-defined]
    if os.environ.get("SHUFFLED"):
        keyed.UNSHUFFLED_PARTITIONS = 0
    session = make_session("operators", master, SETTINGS)
    session.sparkContext.setLogLevel("OFF")
    topology = build(Path(here), Path(here))
    topology.run(session, store=f"file:{here}/store", until="available")
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
