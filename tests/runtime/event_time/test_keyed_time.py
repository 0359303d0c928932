"""Event time and order behind keyed Python operators: what comes behind them is compared with loops over rows, for several
cuts into steps, in one element and in several, and after kills; their outputs have names, and what has no order is refused."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import event_time_program as events
import keyed_time_program as program
import pyarrow as pa
import pytest
from killed import killed_and_finished, written

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import MemorySink, run_local

FILE = Path(program.__file__)
LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)
Marked = list[tuple[Any, dt.datetime, dt.datetime]]
"""(what it is, its event time, the watermark at its place)."""


def marked() -> Marked:
    mark, found = LONG_AGO, []
    for row in program.rows():
        mark = max(mark, row[2] - dt.timedelta(seconds=events.DELAY))
        found.append((row, row[2], mark))
    return found


def some() -> Marked:
    found: Marked = []
    for row, at, mark in marked():
        times = 0 if row[0] % 3 == 0 else 2 if row[0] % 5 == 0 else 1
        found += [((*row, n), at, mark) for n in range(times)]
    return found


def quiet() -> Marked:
    """What timers tell: with the watermark before the one that reached them, or at the row that set them too late."""
    seen: Counter[int] = Counter()
    until: dict[int, dt.datetime] = {}
    found: Marked = []
    mark = LONG_AGO
    for _, k, at in program.rows():
        before, mark = mark, max(mark, at - dt.timedelta(seconds=events.DELAY))
        for due, time in sorted(until.items(), key=lambda each: each[1]):
            if time <= mark:
                found.append(((due, seen[due], until.pop(due)), time, before))
        seen[k] += 1
        until[k] = at + dt.timedelta(seconds=12)
        if until[k] <= mark:
            found.append(((k, seen[k], until.pop(k)), at + dt.timedelta(seconds=12), mark))
    return [*found, *(((k, seen[k], at), at, mark) for k, at in until.items())]


def sessions() -> list[tuple[dt.datetime, int]]:
    """(end, rows) of each session of rows in time."""
    found = []
    for key in range(7):
        times = sorted(at for row, at, mark in marked() if row[1] == key and at >= mark)
        session: list[dt.datetime] = []
        for at in [*times, dt.datetime.max.replace(tzinfo=dt.UTC)]:
            if session and at - session[-1] >= dt.timedelta(seconds=events.GAP):
                found.append((session[-1] + dt.timedelta(seconds=events.GAP), len(session)))
                session = []
            session.append(at)
    return found


def window(at: dt.datetime, size: int = 20) -> dt.datetime:
    return at - dt.timedelta(seconds=(at - events.BEGIN).total_seconds() % size)


def counted(rows: Iterable[tuple[Any, dt.datetime, dt.datetime]]) -> list[tuple[dt.datetime, int]]:
    starts = [window(at) for _, at, mark in rows if window(at) + dt.timedelta(seconds=20) > mark]
    return sorted(Counter(starts).items())


def ports() -> tuple[Marked, list[tuple[int, int]], list[tuple[int, int]]]:
    """(rows in time, late ones with their number within the key, failed ones with theirs)."""
    seen: Counter[int] = Counter()
    main: Marked = []
    late, failed = [], []
    for row, at, mark in marked():
        if row[0] % 7 == 0:
            failed.append((row[0], len(failed) + 1))
            continue
        seen[row[1]] += 1
        if at < mark:
            late.append((row[0], seen[row[1]]))
        else:
            main.append((row, at, mark))
    return main, late, failed


def expected() -> dict[str, list[Any]]:
    main, late, failed = ports()
    once = {row[0]: row[3] for row, _, _ in reversed(some())}
    of_key: Counter[int] = Counter()
    numbered = []
    for row, _, _ in some():
        of_key[row[1]] += 1
        numbered.append((row[0], row[3], of_key[row[1]]))
    ended: Counter[dt.datetime] = Counter()
    for end, rows in sessions():
        ended[window(end)] += rows
    in_time = [row for row, at, mark in some() if at >= mark]
    return {
        "counted": counted(some()),
        "sorted": [(row[0], row[3]) for row in sorted(in_time, key=lambda row: (row[2], row[0], row[3]))],
        "once": sorted(once.items()),
        "numbered": sorted(numbered),
        "hosted": counted(some()),
        "joined": sorted((row[0], row[3]) for row in in_time),
        "quiet": counted(quiet()),
        "quiet_sorted": sorted(row for row, at, mark in quiet() if at >= mark),
        "ended": sorted(ended.items()),
        "main": counted(main),
        "late": sorted(late),
        "errors": failed,
    }


def results(here: Path) -> dict[str, list[Any]]:
    columns = {
        "once": ("id", "n"),
        "numbered": ("id", "n", "seen"),
        "joined": ("id", "n"),
        "quiet_sorted": ("k", "seen", "at"),
        "late": ("id", "seen"),
        "errors": ("id", "seen"),
    }
    found: dict[str, list[Any]] = {}
    for name in expected():
        chosen = columns.get(name, ("window_start", "n"))
        if name != "sorted":
            found[name] = sorted(tuple(row[c] for c in chosen) for row in written(here, name))
    ordered = sorted(written(here, "sorted"), key=lambda row: (row["at"], row["id"], row["n"]))
    return {**found, "sorted": [(row["id"], row["n"]) for row in ordered]}


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("apart", ["together", "apart"])
@pytest.mark.parametrize("rows_per_step", [5, 150])
def test_time_and_order_go_on_behind_keyed_operators(rows_per_step: int, apart: str, tmp_path: Path) -> None:
    program.main(str(rows_per_step), apart, str(tmp_path))
    assert results(tmp_path) == expected()


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("apart", ["together", "apart"])
def test_after_kills_they_are_the_same(apart: str, tmp_path: Path) -> None:
    kills = ["step.end=kill@12", "ckpt.op.put_done=kill@5", "drain.all_acked=kill"]
    killed_and_finished(FILE, tmp_path, kills, "11", apart)
    assert results(tmp_path) == expected()


def test_the_number_of_partitions_does_not_matter(tmp_path: Path) -> None:
    program.main("31", "together", str(tmp_path), partitions=5)
    assert results(tmp_path) == expected()


# --- what is refused ---


class Tables(hf.KeyedOperator):
    def process_batch(self, table: pa.Table, key: Any) -> Any:
        return table


def declared(topology: hf.Topology, rows_per_step: int = 20) -> hf.Stream:
    source = topology.source(
        hf.Rows(program.rows(), events.SCHEMA, rows_per_step=rows_per_step), name="numbers"
    )
    return source.event_time("at", delay=0)


def quiet_rows(stream: hf.Stream) -> hf.Stream:
    return stream.keyed("k", events.Quiet, "k long, seen long, at timestamp", name="quiet")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (
            lambda s: s.keyed("k", Tables, events.SCHEMA, name="t").sort(),
            r"keyed 't' has process_batch\(\)",
        ),
        (
            lambda s: s.keyed("k", Tables, events.SCHEMA, name="t").dedup("id", name="d"),
            "keyed 't' does not keep positions",
        ),
        (lambda s: quiet_rows(s).dedup("k", name="d"), "what 'quiet' makes comes in no order"),
        (
            lambda s: s.keyed("k", events.Late, "id long, late boolean", name="l").sort(),
            "is not among those of its rows",
        ),
        (
            lambda s: s.keyed("k", events.Late, "id long, late boolean", schemas={"a": "id long"}),
            "was given schema and schemas",
        ),
        (lambda s: s.keyed("k", events.Late, schemas={}), "has no schema"),
        (
            lambda s: s.keyed("k", events.Late, schemas={"errors": "id long"}),
            "cannot have an output called 'errors'",
        ),
        (
            lambda s: s.keyed("k", events.Late, schemas={"a": "id long"}, name="l")["b"],
            "There is no output 'b'",
        ),
    ],
)
def test_what_has_no_order_or_no_name_is_refused(write: Any, says: str, tmp_path: Path) -> None:
    topology = hf.Topology("t")
    with pytest.raises(TopologyError, match=says) as caught:
        write(declared(topology)).sink(MemorySink("unused"), name="out")
        run_local(topology, store=f"file:{tmp_path}/store")
    assert caught.value.cure


def test_what_timers_make_can_be_sorted_and_then_has_an_order(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    last = quiet_rows(declared(topology)).sort(name="sorted").dedup("k", name="first")
    last.sink(MemorySink(f"{tmp_path}/first"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    assert sorted(row["k"] for row in MemorySink.rows(f"{tmp_path}/first")) == list(range(7))


class Misspelt(hf.KeyedOperator):
    def process(self, row: Any, key: Any) -> None:
        self.submit({"id": row.id}, port="lat")


def test_an_output_that_is_not_there_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    schemas = {"main": "id long", "late": "id long"}
    made = declared(topology).keyed("k", Misspelt, schemas=schemas, name="m")
    made["main"].sink(MemorySink("unused"), name="out")
    with pytest.raises(TopologyError, match=r"submitted to port 'lat'.*Did you mean 'late'"):
        run_local(topology, store=f"file:{tmp_path}/store")


def test_submit_needs_a_topology_that_runs() -> None:
    with pytest.raises(RuntimeError, match="only while the topology runs"):
        Misspelt().submit({"id": 1})
