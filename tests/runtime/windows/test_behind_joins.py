"""What stands behind an interval join: windows, and in the order of time keyed operators, however both streams are cut."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import MemorySink, run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = "id long, k long, at timestamp"
COUNT = 200
Row = tuple[int, int, dt.datetime]


def rows(seed: int) -> list[Row]:
    """At most nine seconds out of order."""
    chance = random.Random(seed)
    shifts = [chance.choice([0, 3, 6, 9]) for _ in range(COUNT)]
    return [(n, chance.randrange(4), BEGIN + dt.timedelta(seconds=n - shifts[n])) for n in range(COUNT)]


LEFT, RIGHT = rows(1), rows(2)
CUTS = [(1, COUNT), (7, 3), (COUNT, 1), (40, 60)]


class Seen(hf.KeyedOperator):
    """The rows of a key in the order in which it sees them, told at the end of time."""

    pairs = hf.Value(str, default="")

    def process(self, row: Any, key: Any) -> None:
        self.pairs = f"{self.pairs} {row.id}-{row.id_right}"
        self.set_timer(BEGIN + dt.timedelta(days=1))

    def on_timer(self, at: Any, key: Any) -> Any:
        yield {"k": key, "pairs": self.pairs}


def joined(topology: hf.Topology, left_rows: int, right_rows: int) -> hf.Stream:
    streams = []
    for name, given, size in (("left", LEFT, left_rows), ("right", RIGHT, right_rows)):
        source = topology.source(hf.Rows(given, SCHEMA, rows_per_step=size), name=name)
        streams.append(source.event_time("at", delay="10 seconds").consistent("r", period=0.05))
    return streams[0].join(streams[1], "k", within=(2, 4), how="left", name="joined")


def pairs() -> list[tuple[Row, int | None]]:
    """What nested loops find."""
    found: list[tuple[Row, int | None]] = []
    for row in LEFT:
        near = [
            other[0]
            for other in RIGHT
            if other[1] == row[1] and dt.timedelta(seconds=-2) <= other[2] - row[2] <= dt.timedelta(seconds=4)
        ]
        found += [(row, other) for other in near] or [(row, None)]
    return found


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_windows_and_keyed_operators_see_all_pairs(cut: tuple[int, int], apart: bool, tmp_path: Path) -> None:
    topology = hf.Topology("behind")
    made = joined(topology, *cut)
    made = made.isolate() if apart else made
    counted = made.aggregate("k", window=hf.tumbling(20), n=hf.count(), met=hf.count("id_right"), name="w")
    counted.sink(MemorySink(f"{tmp_path}/w"), name="w_out")
    seen = made.sort(by="k", name="in_order").keyed("k", Seen, "k long, pairs string", name="seen")
    seen.sink(MemorySink(f"{tmp_path}/seen"), name="seen_out")
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    wanted: dict[tuple[int, dt.datetime], list[int]] = {}
    for (_, key, at), other in pairs():
        start = BEGIN + ((at - BEGIN) // dt.timedelta(seconds=20)) * dt.timedelta(seconds=20)
        count = wanted.setdefault((key, start), [0, 0])
        count[0] += 1
        count[1] += other is not None
    found = {(r["k"], r["window_start"]): [r["n"], r["met"]] for r in MemorySink.rows(f"{tmp_path}/w")}
    assert found == wanted
    times = {row[0]: row[2] for row in LEFT}
    for row in MemorySink.rows(f"{tmp_path}/seen"):
        of_key = [pair.split("-") for pair in row["pairs"].split()]
        given = sorted((str(left[0]), str(other)) for left, other in pairs() if left[1] == row["k"])
        assert sorted((left, other) for left, other in of_key) == given
        assert [times[int(left)] for left, _ in of_key] == sorted(times[int(left)] for left, _ in of_key)


@pytest.mark.parametrize(
    "write",
    [
        lambda s: s.dedup("id", name="x"),
        lambda s: s.keyed("k", Seen, "k long, pairs string", name="x"),
        lambda s: s.aggregate("k", window=hf.tumbling(rows=3), n=hf.count(), name="x"),
    ],
)
def test_what_needs_an_order_says_that_it_must_be_made(write: Any, tmp_path: Path) -> None:
    topology = hf.Topology("behind")
    write(joined(topology, 5, 5)).sink(MemorySink("unused"), name="out")
    with pytest.raises(TopologyError, match=r"comes in no order.*\.sort\(\)"):
        run_local(topology, store=f"file:{tmp_path}/store")


@pytest.mark.parametrize("rows_per_step", [3, 100])
def test_rows_without_an_event_time_come_out_alone_and_disturb_nobody_behind(
    rows_per_step: int, tmp_path: Path
) -> None:
    """Of the kept side; windows behind the join leave them out, as they do with all such rows."""
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    left = [(n, None if n % 5 == 0 else begin + dt.timedelta(seconds=n)) for n in range(60)]
    right = [(n, None if n % 7 == 0 else begin + dt.timedelta(seconds=n)) for n in range(60)]
    topology = hf.Topology("t")
    streams = [
        topology.source(hf.Rows(rows, f"id long, at {kind}", rows_per_step=rows_per_step), name=name)
        .event_time("at", delay=0)
        .consistent("r", period=0.02)
        for name, rows, kind in (("left", left, "timestamp"), ("right", right, "timestamp"))
    ]
    made = {
        "interval": streams[0].join(streams[1], "id", within=1, how="left", name="interval"),
        "asof": streams[0].asof_join(streams[1], "id", name="asof"),
        "inner": streams[0].join(streams[1], "id", within=1, name="inner"),
    }
    for name, joined in made.items():
        joined.sink(hf.MemorySink(f"{tmp_path}/{name}"), name=f"{name}_out")
        windows = joined.aggregate([], window=hf.tumbling(60), n=hf.count(), name=f"{name}_windows")
        windows.sink(hf.MemorySink(f"{tmp_path}/{name}_windows"), name=f"{name}_windows_out")
    done = run_local(topology, store=f"file:{tmp_path}/store", close=True)
    met = {n for n in range(60) if n % 5 and n % 7}
    for name in made:
        found = sorted((row["id"], row["at_right"]) for row in hf.MemorySink.rows(f"{tmp_path}/{name}"))
        alone = [] if name == "inner" else [n for n in range(60) if n not in met]
        wanted = [(n, None) for n in alone] + [(n, begin + dt.timedelta(seconds=n)) for n in met]
        assert found == sorted(wanted, key=lambda row: row[0])
        (window,) = hf.MemorySink.rows(f"{tmp_path}/{name}_windows")
        assert window["n"] == (len(met) if name == "inner" else sum(n % 5 != 0 for n in range(60)))
        counts = {op: of for element in done["elements"].values() for op, of in element["counts"].items()}
        assert counts[name]["without_time"] == sum(at is None for _, at in left + right)
