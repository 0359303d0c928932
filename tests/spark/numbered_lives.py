"""Lives of numbered_program over one input, and what must be visible in the end."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from exact_sums import written
from numbered_program import TOLD
from operators_lives import TaggedLives

from holdfast.testing import processes

PROGRAM = Path(__file__).with_name("numbered_program.py")
PATIENCE_S = 240.0


def feed(here: Path, rows: int, seed: int = 3) -> None:
    chance = random.Random(seed)
    (here / "in").mkdir(parents=True)
    table = pa.table({"id": range(rows), "k": [f"k{chance.randrange(9)}" for _ in range(rows)]})
    pq.write_table(table, here / "in" / "part-0.parquet")


def check(here: Path, complete: bool = True) -> None:
    """Every row is there once, with its number among those of its key."""
    counts: Counter[str] = Counter()
    golden = []
    for row in pq.read_table(here / "in" / "part-0.parquet").to_pylist():
        counts[row["k"]] += 1
        golden.append((row["id"], row["k"], counts[row["k"]]))
    found = sorted((row["id"], row["k"], row["n"]) for row in written(here, "out"))
    assert found == golden if complete else not Counter(found) - Counter(golden)


class Numbered(TaggedLives):
    """The program over one input, in as many lives as it takes."""

    def __init__(self, here: Path, rows: int) -> None:
        super().__init__()
        self.here = here
        feed(here, rows)

    @property
    def tag(self) -> str:
        """Of the newest life."""
        return self._tags[-1]

    def start(
        self,
        master: str,
        store: str = "",
        *before: str,
        settings: Mapping[str, str] | None = None,
        **more: str,
    ) -> subprocess.Popen[bytes]:
        """`before`: what runs the command, such as `nsenter`. `more`: environment."""
        self._tags.append(processes.new_tag("numbered"))
        places = dict.fromkeys(
            ("TMPDIR", "SPARK_LOCAL_DIRS", "HOLDFAST_LIVE_DIR", "SPARK_WORKER_DIR"), str(self._scratch)
        )
        environment = {
            **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **places, processes.TAG: self.tag,
            "SETTINGS": json.dumps(settings or {}), **more,
        }  # fmt: skip
        command = [*before, sys.executable, str(PROGRAM), str(self.here), master]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*command, store or f"file:{self.here}/store"],
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.here / f"driver-{len(self._tags)}.log"

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def until(
        self,
        driver: subprocess.Popen[bytes],
        condition: Callable[[], Any],
        what: str,
        within_s: float = PATIENCE_S,
    ) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert driver.poll() is None, f"the driver ended before {what}: {self.said()}"
            assert time.monotonic() < deadline, f"{what} did not come: {self.said()}"
            time.sleep(0.02)

    def until_epoch(self, driver: subprocess.Popen[bytes], behind: int = 0) -> int:
        """The newest epoch, one behind that one."""
        self.until(driver, lambda: self.epoch() > behind, f"an epoch behind {behind}")
        return self.epoch()

    def epoch(self) -> int:
        return max((int(path.name.split("-")[1]) for path in self.here.glob("published-*")), default=0)

    def finished(self, driver: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The region's status in the end."""
        assert driver.wait(PATIENCE_S) == 0, self.said()
        check(self.here)
        (told,) = [line for line in self.log.read_text().splitlines() if line.startswith(TOLD)]
        status: dict[str, Any] = json.loads(told.removeprefix(TOLD))
        return status
