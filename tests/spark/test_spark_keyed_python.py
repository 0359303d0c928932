"""Keyed Python operators on Spark, with and without a shuffle, against a loop over the rows of all files in order."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import keyed
from holdfast.testing import compare_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GAP = dt.timedelta(seconds=20)


@pytest.fixture
def files(parts: Callable[..., Path]) -> Path:
    random = np.random.default_rng(5)
    tables = []
    for number in range(3):
        seconds = np.arange(number * 400, number * 400 + 400) + random.integers(-3, 3, 400)
        keys = pa.array([f"k{n}" if n else None for n in random.integers(0, 12, 400)])
        moments = pa.array([BEGIN + dt.timedelta(seconds=int(s)) for s in seconds])
        tables.append(pa.table({"k": keys, "at": moments, "v": random.integers(0, 100, 400)}))
    return parts(tables)


def operator() -> Any:
    """A class that no worker can import, as those of __main__ and of notebooks."""

    @dataclasses.dataclass(frozen=True)
    class Top:
        v: int

    hf.register_dataclass(Top, name="keyed-python-top")

    class Sessions(hf.KeyedOperator):
        count = hf.Value(int, default=0)
        until = hf.Value(dt.datetime)
        top = hf.Value(Top)

        def process(self, row: Any, key: Any) -> None:
            if self.until is not None:
                self.clear_timer(self.until)
            self.count += 1
            self.top = Top(max(row.v, self.top.v if self.top else 0))
            self.until = row.at + GAP
            self.set_timer(self.until)

        def on_timer(self, at: dt.datetime, key: Any) -> Any:
            yield {"k": key, "ended": at, "n": self.count, "top": self.top.v}
            self.clear()

    return Sessions


def by_hand(files: Path, filtered: bool) -> list[dict[str, Any]]:
    found, reached = [], BEGIN
    open_: dict[Any, list[Any]] = defaultdict(lambda: [0, None, 0])
    for file in sorted(files.iterdir()):
        for row in pq.read_table(file).to_pylist():
            if filtered and row["v"] == 7:
                continue
            reached = max(reached, row["at"])
            mark = reached - dt.timedelta(seconds=4)
            for key in [key for key, (_, until, _) in open_.items() if until <= mark]:
                n, until, top = open_.pop(key)
                found.append({"k": key, "ended": until, "n": n, "top": top})
            session = open_[row["k"]]
            session[:] = [session[0] + 1, row["at"] + GAP, max(session[2], row["v"])]
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("shuffled", [False, True], ids=["short way", "shuffle"])
def test_sessions_end_when_the_watermark_has_passed_them(
    on_spark: Any, files: Path, shuffled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shuffled:
        monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)
    short: list[bool] = []
    places = keyed.KeyedJobs._places
    monkeypatch.setattr(keyed.KeyedJobs, "_places", lambda self: (short.append(True), places(self))[1])

    def build(topology: Topology) -> Stream:
        source = hf.Files(str(files), "parquet", "k string, at timestamp, v long", max_rows_per_step=310)
        rows = topology.source(source, name="in").consistent(period=0.3)
        return (rows.filter("v <> 7") if shuffled else rows).keyed(
            "k", operator(), "k string, ended timestamp, n long, top long", name="sessions", on="at", delay=4
        )

    wanted = by_hand(files, shuffled)
    assert len(wanted) > 50
    compare_rows(wanted, on_spark(build).to_pylist())
    assert bool(short) != shuffled
    (counts,) = [element["counts"]["sessions"] for element in on_spark.status["elements"].values()]
    assert 0 < counts["keys"] <= 12
