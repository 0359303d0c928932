"""Lives of operators_program over one input, the kills in them, and what its sinks must have in the end."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from exact_sums import written
from faults import fired
from operators_program import OPERATORS, STEPS, build, deaths, epoch_of

from holdfast.errors import HoldfastError
from holdfast.store.base import Event
from holdfast.store.urls import open_store
from holdfast.testing import compare_rows, compare_sequence, processes, run_local

PROGRAM = Path(__file__).with_name("operators_program.py")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LIFE_S = 240.0
"""A driver that lives longer hangs."""
FELT_S = 10.0
"""A worker's death that nobody felt by then hit nobody's task."""


def rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Five per second of event time, some of them late; an attribute that grows, not quite in order; marks."""
    far, made = 0.0, []
    for n in range(count):
        far += chance.choice([0, 0.5, 1, 3])
        made.append(
            {
                "at": BEGIN + dt.timedelta(seconds=n / 5 - chance.choice([0, 0, 0, 1, 3, 9])),
                "k": chance.choice("abcd"),
                "a": far - chance.choice([0, 0, 2]),
                "end": chance.random() < 0.1,
                "v": chance.randrange(99),
            }
        )
    return made


class TaggedLives:
    """Processes that are found by their tags, and a directory of theirs. Leaves neither behind."""

    def __init__(self) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="hf-"))  # not below the run: sockets need short paths
        self._tags: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for tag in self._tags:
            processes.kill_all(tag)
        shutil.rmtree(self._scratch, ignore_errors=True)


class Lives(TaggedLives):
    """The program over one input, in as many lives as it takes."""

    def __init__(
        self,
        here: Path,
        seed: int,
        steps: int,
        shuffled: bool,
        master: str = "local[2]",
        life_s: float = LIFE_S,
    ) -> None:
        self.here, self.shuffled, self._master, self._life_s = here, shuffled, master, life_s
        self.kills: list[tuple[str, str, int, float]] = []
        """(what died, where, newest epoch, when)"""
        super().__init__()
        (here / "died").mkdir(parents=True)
        for name, step in STEPS.items():
            (here / name).mkdir()
            table = pa.Table.from_pylist(rows(random.Random(f"{name} {seed}"), step * steps))
            pq.write_table(table, here / name / "part-0.parquet")

    # --- lives --------------------------------------------------------------------------------------------------

    def start(self, deadly: Mapping[str, str] | None = None, failpoint: str = "") -> subprocess.Popen[bytes]:
        self._tags.append(processes.new_tag("operators"))
        environment = {
            **os.environ,
            **dict.fromkeys(("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR"), str(self._scratch)),
            processes.TAG: self._tags[-1],
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SHUFFLED": "1" if self.shuffled else "",
            "DEADLY": json.dumps(deadly or {}),
            "HOLDFAST_FP": failpoint,
        }
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.here), self._master],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.here / f"driver-{len(self._tags)}.log"

    def until(self, driver: subprocess.Popen[bytes], condition: Callable[[], bool], within_s: float) -> bool:
        """False if the driver ended or the time is over before."""
        deadline = time.monotonic() + within_s
        while not condition():
            if driver.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def ended(self, driver: subprocess.Popen[bytes]) -> int:
        """How the driver ended: well, or by SIGKILL. What it started ends too."""
        code = driver.wait(self._life_s)
        assert code in (0, -signal.SIGKILL), self.log.read_text(errors="replace")[-3000:]
        assert processes.left_after(self._tags[-1], 20) == [], "its JVM and workers notice and end"
        return code

    # --- kills --------------------------------------------------------------------------------------------------

    def kill_driver(self, driver: subprocess.Popen[bytes]) -> None:
        self.note_driver("")
        driver.kill()
        assert self.ended(driver) == -signal.SIGKILL

    def note_driver(self, where: str) -> None:
        self.kills.append(("driver", where, epoch_of(self.here), time.time()))

    def kill_some_worker(self, driver: subprocess.Popen[bytes]) -> bool:
        """One that computes just now. False: it was no task of ours."""
        before, now = self.resets(), time.time()
        victim = processes.busy(self._tags[-1], "worker", 20.0)
        if victim is None or not processes.send(victim.pid, self._tags[-1]):
            return False
        if not self.until(driver, lambda: self.resets() > before, FELT_S):
            return False
        self.kills.append(("worker", "(some)", epoch_of(self.here), now))
        return True

    def kill_an_executor(self, driver: subprocess.Popen[bytes]) -> None:
        """Of a cluster: with the segments of its partitions, and its workers. The region must reset."""
        before, now = self.resets(), time.time()
        victim, *_ = processes.of_kind(self._tags[-1], "executor")
        assert processes.send(victim.pid, self._tags[-1])
        self.kills.append(("executor", "", epoch_of(self.here), now))
        assert self.until(driver, lambda: self.resets() > before, self._life_s), "the region did not reset"

    def note_deaths(self) -> list[str]:
        """Operators whose workers died, of their own accord."""
        found = deaths(self.here)
        self.kills += [("worker", f"{name} {moment}", int(e), float(t)) for name, moment, e, t in found]
        return [name for name, *_ in found]

    def events(self) -> list[Event]:
        try:
            return open_store(f"file:{self.here}/store").events()
        except HoldfastError:
            return []  # the first driver is about to make the store

    def resets(self) -> int:
        """Resets in place so far, over all lives."""
        return sum(e.kind == "reset.begin" and int(e.data["consecutive"]) > 0 for e in self.events())

    def table(self) -> list[str]:
        """One line per kill, under `HEADER`."""
        published = [e.wall for e in self.events() if e.kind == "epoch.published"]
        lines = []
        for what, where, epoch, at in sorted(self.kills, key=lambda kill: kill[-1]):
            took = next((f"{wall - at:.1f}" for wall in published if wall > at), "-")
            lines.append(f"{what:8} {where or '-':28} {epoch:5} {took:>7}")
        return lines

    def visible(self) -> dict[str, int]:
        """How many rows each sink has."""
        return {name: len(written(self.here, name)) for name in OPERATORS}

    def check(self) -> None:
        """Every sink has what it has without failures and without Spark, what is sorted in the same order."""
        for what, *_ in self.kills:
            fired(f"{what} killed")
        run_local(build(self.here, self.here / "golden"), store=f"file:{self.here}/golden/store")
        for name in OPERATORS:
            golden = written(self.here / "golden", name)
            assert len(golden) > 5, f"{name} has few rows: little is learnt about it"
            compare_rows(golden, written(self.here, name), name)
        compare_sequence(in_order(self.here / "golden", "sorted"), in_order(self.here, "sorted"))


HEADER = f"{'killed':8} {'where':28} {'epoch':>5} {'seconds':>7}"


def in_order(here: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a sink that is written by one partition, in the order of epochs."""
    files = sorted((here / name).glob("part-*.parquet"))
    return [row for path in files for row in pq.read_table(path).to_pylist()]
