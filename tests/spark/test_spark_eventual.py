"""Eventual checkpoints on Spark: the same results as in one go, whatever failed, shuffled or not, from files too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import DRIVER_KILLED, fired

import holdfast as hf
from holdfast.failpoints import arm, disarm
from holdfast.language.stream import Stream

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).parent.parent / "runtime" / "eventual" / "eventual_program.py"
ROWS = 900
FILES = 6


@pytest.fixture(autouse=True)
def no_failpoints() -> Iterator[None]:
    yield
    disarm()


def write_files(here: Path, first: int, last: int) -> None:
    """The rows from `first` on, as lines of JSON, some files."""
    (here / "files").mkdir(exist_ok=True)
    for begin in range(first, last, ROWS // FILES):
        lines = [
            json.dumps(
                {"k": f"k{n * 7 % 11}", "v": n % 97, "at": f"2026-01-01T00:{n // 60 % 60:02}:{n % 60:02}Z"}
            )
            for n in range(begin, min(last, begin + ROWS // FILES))
        ]
        staged = here / f".{begin}"
        staged.write_text("\n".join(lines) + "\n")
        staged.rename(here / "files" / f"{begin:06}.json")


def topology(here: Path, what: str, rows_per_step: int | None = 70) -> hf.Topology:
    made = hf.Topology("windows")

    def files(name: str) -> Stream:
        schema = "k string, v long, at timestamp"
        found = hf.Files(here / "files", format="json", schema=schema, max_rows_per_step=rows_per_step)
        return made.source(found, name=name)

    rows = files("files").filter("v % 10 <> 3").with_columns(w="v * 2")
    if what == "join":
        others = files("others").filter("v % 10 = 4").select("k", "at")
        keep = {"keep": hf.latest(rows=ROWS), "other_keep": hf.latest(rows=ROWS)}
        met = rows.join(others, by="k", **keep, name="met")
        met.checkpoint(form=hf.eventual(every=0.05, slow_after=0)).sink(hf.LogSink(here / "out"), name="out")
        return made
    if what == "rows":
        window, form = hf.tumbling(rows=6), hf.eventual(every=0.05, slow_after=0, shots=2)
    else:
        rows = rows.event_time("at", delay="7 seconds")
        window, form = hf.sliding("20 seconds", "10 seconds"), hf.eventual(every=30, slow_after=5, shots=3)
    found = rows.aggregate(
        "k", window=window, n=hf.count(), total=hf.sum("w"), last=hf.last("v"), name="spent"
    )
    found.checkpoint(form=form).sink(hf.LogSink(here / "out"), name="out")
    return made


def results(here: Path) -> Counter[Any]:
    log = hf.Log(here / "out")
    return (
        Counter(tuple(r.values()) for r in log.reader().read_all().to_pylist()) if log.exists else Counter()
    )


@pytest.mark.sampled
@pytest.mark.parametrize("what", ["rows", "time", "join"])
def test_files_filters_and_failures(spark: Any, tmp_path: Path, shuffled: bool, what: str) -> None:
    golden, here = tmp_path / "golden", tmp_path / "here"
    for place in (golden, here):
        place.mkdir()
    write_files(golden, 0, ROWS)
    topology(golden, what, None).run(spark, until="available")
    write_files(here, 0, 450)
    arm("step.end=raise@2;eventual.noted=raise@4")
    topology(here, what).run(spark, until="available")
    assert all(disarm().values())
    write_files(here, 450, ROWS)
    topology(here, what, 110).run(spark, store=f"file:{tmp_path}/store", until="available")
    assert results(here) == results(golden)
    assert sum(results(here).values()) > 50


@pytest.mark.slow
@pytest.mark.parametrize("what", ["rows", "time", "sessions", "marks", "join"])
def test_killed_drivers_lose_and_double_nothing(tmp_path: Path, what: str) -> None:
    sys.path.insert(0, str(PROGRAM.parent))
    import eventual_program

    from holdfast.testing import run_local

    golden, here = tmp_path / "golden", tmp_path / "here"
    for place in (golden, here):
        place.mkdir()
        eventual_program.fill(place)
    run_local(eventual_program.topology(golden, what), partitions=1)
    life = [sys.executable, str(PROGRAM), what, "spark", str(here)]
    environment = {**os.environ, "HOLDFAST_FP": "eventual.noted=kill@4"}
    assert subprocess.run(life, env=environment, check=False).returncode == -signal.SIGKILL
    fired(DRIVER_KILLED)
    subprocess.run(life, check=True)
    assert eventual_program.results(here) == eventual_program.results(golden)
