"""Event time through Python operators in the driver: what comes behind them is compared with loops over rows, for several
cuts into steps, in one element and in several, and after kills; and what has no place in time is refused."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import event_time_program as events
import hosted_time_program as program
import pyarrow as pa
import pytest
from killed import killed_and_finished, lived, written

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import MemorySink, run_local

FILE = Path(program.__file__)
Row = tuple[int, int, dt.datetime]
Made = Iterable[tuple[Row, dt.datetime]]
"""Rows, with the watermark at each."""


def marked() -> list[tuple[Row, dt.datetime]]:
    mark, found = dt.datetime.min.replace(tzinfo=dt.UTC), []
    for row in program.rows():
        mark = max(mark, row[2] - dt.timedelta(seconds=events.DELAY))
        found.append((row, mark))
    return found


def some(rows: Made) -> Iterator[tuple[Row, dt.datetime]]:
    for row, mark in rows:
        if row[0] % 3:
            yield from [(row, mark)] * (2 if row[0] % 5 == 0 else 1)


def held() -> Iterator[tuple[Row, dt.datetime]]:
    rows = marked()
    for (row, _), (_, mark) in zip(rows, rows[program.HELD :], strict=False):
        yield row, mark


def counted(rows: Made, size: int = 20, later: int = 0) -> list[tuple[dt.datetime, int]]:
    """Rows by window; without those that came after its end. `later`: what is added to a row's time."""
    found: Counter[dt.datetime] = Counter()
    for row, mark in rows:
        at = row[2] + dt.timedelta(seconds=later)
        start = at - dt.timedelta(seconds=(at - events.BEGIN).total_seconds() % size)
        if start + dt.timedelta(seconds=size) > mark:
            found[start] += 1
    return sorted(found.items())


def again() -> list[tuple[Row, dt.datetime]]:
    """The rows that are held back, behind which time is declared again, with another delay."""
    mark, found = dt.datetime.min.replace(tzinfo=dt.UTC), []
    for row, _ in held():
        mark = max(mark, row[2] - dt.timedelta(seconds=30))
        found.append((row, mark))
    return found


def expected() -> dict[str, list[Any]]:
    rows, given = marked(), list(some(marked()))
    first = rows[:7]
    minutes: Counter[dt.datetime] = Counter()
    for start, count in counted(rows):
        minutes[start - dt.timedelta(seconds=(start - events.BEGIN).total_seconds() % 60)] += count
    in_time = [row for row, mark in given if row[2] >= mark]
    return {
        "counted": counted(given),
        "sorted": [row[0] for row in sorted(in_time, key=lambda row: (row[2], row[0]))],
        "twice": counted(some(given)),
        "late": sorted((row[0], row[2] < mark) for row, mark in given),
        "held": counted(held()),
        "declared": counted(again()),
        "dropped": counted(first, 60),
        "even": counted((row, mark) for row, mark in rows if row[0] % 2 == 0 and row[0] % 7),
        "odd": counted((row, mark) for row, mark in rows if row[0] % 2 and row[0] % 7),
        "ends": counted(rows, later=10),
        "calls": counted((row, mark) for row, mark in rows if row[0] % 3),
        "nested": sorted(minutes.items()),
    }


def results(here: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        name: sorted((row["window_start"], row["n"]) for row in written(here, name))
        for name in expected()
        if name not in ("sorted", "late")
    }
    found["sorted"] = [row["id"] for row in sorted(written(here, "sorted"), key=lambda r: (r["at"], r["id"]))]
    found["late"] = sorted((row["id"], row["late"]) for row in written(here, "late"))
    return found


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("apart", ["together", "apart"])
@pytest.mark.parametrize("rows_per_step", [5, 150])
def test_time_goes_on_behind_python_operators(rows_per_step: int, apart: str, tmp_path: Path) -> None:
    program.main(str(rows_per_step), apart, str(tmp_path))
    assert results(tmp_path) == expected()


@pytest.mark.sampled(keep=1)
@pytest.mark.parametrize("apart", ["together", "apart"])
def test_after_kills_time_is_the_same(apart: str, tmp_path: Path) -> None:
    kills = ["step.end=kill@40", "ckpt.op.put_done=kill@5", "sink.commit.applied=kill@2"]
    killed_and_finished(FILE, tmp_path, kills, "11", apart)
    assert results(tmp_path) == expected()


def test_a_kill_while_time_ends_leaves_nothing_open(tmp_path: Path) -> None:
    # The last epoch drains: everything has been read, and time has come to its end or is about to.
    for number, kill in enumerate(["drain.begin=kill", "drain.all_acked=kill"]):
        here = tmp_path / str(number)
        assert lived(FILE, here, kill, "11", "together") != 0, f"{kill} did not fire"
        assert lived(FILE, here, "", "11", "together") == 0
        assert results(here) == expected(), f"killed at {kill}"


# --- several inputs ---


class Both:
    def process(self, row: Any, port: int) -> Any:
        return row


def test_of_several_inputs_the_earliest_watermark_counts(tmp_path: Path) -> None:
    """One input ends ten minutes before the other: without an end of the input its windows are the last to close."""
    topology, n = hf.Topology("t"), 600
    early = [(i, 0, events.BEGIN + dt.timedelta(seconds=i)) for i in range(n // 2)]
    later = [(i, 1, events.BEGIN + dt.timedelta(seconds=2 * i)) for i in range(n // 2)]
    sources = [
        topology.source(hf.Rows(rows, program.SCHEMA, rows_per_step=50), name=name)
        .event_time("at", delay=n)
        .consistent(period=0.05)
        for name, rows in (("early", early), ("later", later))
    ]
    both = topology.operator(Both(), inputs=sources, schema=program.SCHEMA, name="both")
    made = both.aggregate("k", window=hf.tumbling(20), n=hf.count(), name="counted")
    made.sink(MemorySink(f"{tmp_path}/open"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    assert (
        MemorySink.rows(f"{tmp_path}/open") == []
    )  # the early one has come to 299 s, 301 s before the beginning
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    found: Counter[int] = Counter()
    for row in MemorySink.rows(f"{tmp_path}/open"):
        found[row["k"]] += row["n"]
    assert found == {0: n // 2, 1: n // 2}


# --- what has no place in time ---


class Tables:
    def process_batch(self, table: pa.Table, port: int) -> Any:
        return table


class Drained(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return row

    def drain(self) -> None:
        """It might submit here."""


def windowed(stream: hf.Stream) -> hf.Stream:
    return stream.aggregate("k", window=hf.tumbling(60), n=hf.count(), name="window")


def refused(topology: hf.Topology, stream: hf.Stream, says: str, tmp_path: Path) -> None:
    windowed(stream).sink(MemorySink("unused"), name="out")
    with pytest.raises(TopologyError, match=says) as caught:
        run_local(topology, store=f"file:{tmp_path}/store")
    assert caught.value.cure


def declared(topology: hf.Topology) -> hf.Stream:
    source = topology.source(hf.Rows(program.rows(), program.SCHEMA, rows_per_step=20), name="numbers")
    return source.event_time("at", delay=0)


@pytest.mark.parametrize(
    ("operator", "schema", "says"),
    [
        (Tables, program.SCHEMA, r"hosted 'odd' has process_batch\(\)"),
        (Drained, program.SCHEMA, r"hosted 'odd' has drain\(\)"),
        (program.Ends, "k long, until timestamp", "is not among those of its rows"),
        (program.Through, "id long, k long, at long", "is not among those of its rows"),
    ],
)
def test_where_rows_have_no_place_in_time_it_is_refused(
    operator: Any, schema: str, says: str, tmp_path: Path
) -> None:
    topology = hf.Topology("t")
    refused(topology, declared(topology).apply(operator, schema, name="odd"), says, tmp_path)


def test_calls_that_leave_as_they_end_have_no_place_in_time(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    calls = declared(topology).async_map(program.called, program.SCHEMA, ordered=False, name="ask")
    refused(topology, calls, "has ordered=False", tmp_path)


def test_an_input_without_event_time_leaves_none_behind(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    other = topology.source(hf.Rows(program.rows(), program.SCHEMA), name="other")
    made = topology.operator(Both(), inputs=[declared(topology), other], schema=program.SCHEMA, name="both")
    refused(topology, made, "hosted 'both' has an input without event time", tmp_path)


class Threaded(hf.Operator):
    def process(self, row: Any, port: int) -> None:
        thread = threading.Thread(target=self._give, args=(row,), daemon=True)
        thread.start()
        thread.join()

    def _give(self, row: Any) -> None:
        try:
            self.submit(row)
        except TopologyError:
            pass  # whoever swallows it hears of it all the same


def test_a_row_from_a_thread_has_no_place_in_time(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    rows = declared(topology).apply(Threaded, program.SCHEMA, name="threads")
    refused(topology, rows, "'threads' submitted a row from a thread of its own", tmp_path)


@pytest.mark.parametrize("operator", [Tables, Drained, Threaded])
def test_time_that_is_declared_again_has_no_such_bounds(operator: Any, tmp_path: Path) -> None:
    topology = hf.Topology("t")
    rows = declared(topology).apply(operator, program.SCHEMA, name="odd").event_time("at", delay=60)
    windowed(rows).sink(MemorySink(f"{tmp_path}/again"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    assert sum(row["n"] for row in MemorySink.rows(f"{tmp_path}/again")) == len(program.rows())


def test_an_operator_that_needs_no_time_goes_on_without_it(tmp_path: Path) -> None:
    """Behind rows that do not have the declared column a keyed operator that does not ask for time still works."""
    topology = hf.Topology("t")
    ends = declared(topology).apply(program.Ends, "k long, until timestamp", name="ends")
    seen = ends.map_state("k", lambda row, state: (row.k,), "k long", {}, name="seen")
    seen.sink(MemorySink(f"{tmp_path}/seen"), name="out")
    run_local(topology, store=f"file:{tmp_path}/store")
    assert len(MemorySink.rows(f"{tmp_path}/seen")) == len(program.rows())


def test_rows_that_are_held_back_too_long_are_late_and_counted(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    held = declared(topology).apply(program.Held, program.SCHEMA, name="held")
    windowed(held).sink(MemorySink(f"{tmp_path}/held"), name="out")
    done = run_local(topology, store=f"file:{tmp_path}/store", close=True)
    counts = {name: of for element in done["elements"].values() for name, of in element["counts"].items()}
    kept = sum(row["n"] for row in MemorySink.rows(f"{tmp_path}/held"))
    assert counts["window"]["late"] == len(program.rows()) - program.HELD - kept > 0
