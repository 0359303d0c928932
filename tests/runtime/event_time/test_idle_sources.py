"""Sources that fall silent: the watermark goes on without them, step by step as a loop over rows says."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from driven import Driven

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.language.operators.joins import (
    asof_match,
    interval_match,
    join_schema,
    join_spec,
    right_names,
    window_match,
)
from holdfast.language.operators.values import Latest
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.joins.asof import AsofJoin
from holdfast.operators.joins.interval import IntervalJoin
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.joins.ordered_join import OrderedJoin
from holdfast.operators.rows.ranked import TopOfWindows
from holdfast.operators.rows.sorting import Sort
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.windows.time_windows import END, START, Windows

UTC = pa.timestamp("us", tz="UTC")
INPUT = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
OUTPUT = pa.schema([(START, UTC), (END, UTC), ("k", pa.string()), ("n", pa.int64()), ("total", pa.int64())])
SECOND = 1_000_000
IDLE = 3 * SECOND
SIZE = 10

Row = tuple[int, str, int, int]
"""(source, key, event second, value)."""

Step = tuple[int | None, list[Row]]
"""(seconds since the last step, or None if a new run begins with it; rows in the order of positions)."""


# --- the model ---


@dataclass
class Port:
    """How far the sources of a port have come, and for how long each has been silent."""

    delays: dict[int, int]
    reached: dict[int, int] = field(default_factory=dict)
    silent: dict[int, int] = field(default_factory=dict)
    mark: int | None = None

    def take(self, passed: int | None, rows: Sequence[Row]) -> list[tuple[Row, int]]:
        """The rows of a step, each with the watermark at its position."""
        passed = passed or 0
        self.silent = {s: self.silent.get(s, -passed) + passed for s in self.delays}
        found = []
        for row in rows:
            source, _, second, _ = row
            self.silent[source] = 0
            self.reached[source] = max(self.reached.get(source, second), second)
            mark = max(self.reached[source] - self.delays[source], -1000 if self.mark is None else self.mark)
            found.append((row, mark))
        return found

    def found(self) -> tuple[bool, int | None]:
        """(whether all are idle, the watermark of the others)."""
        active = [s for s in self.delays if self.silent[s] * SECOND < IDLE]
        if not active or any(s not in self.reached for s in active):
            return not active, None
        return False, min(self.reached[s] - self.delays[s] for s in active)

    def rise(self, mark: int | None) -> None:
        if mark is not None:
            self.mark = mark if self.mark is None else max(self.mark, mark)


def drawn(chance: random.Random, sources: int) -> list[Step]:
    """Sources that run beside each other, fall silent, and come back with rows old and new."""
    steps: list[Step] = []
    now, idle_steps, silent_until = 0, 0, dict.fromkeys(range(sources), 0)
    for _ in range(25):
        passed = chance.choice([0, 1, 1, 2, 5])
        now += passed
        rows: list[Row] = []
        for source in range(sources):
            if silent_until[source] > now:
                continue
            if chance.random() < 0.25:
                silent_until[source] = now + chance.randrange(8)
                continue
            for _ in range(chance.randrange(1, 5)):
                second = 3 * now - chance.choice([0, 0, 1, 2, 9, 20])
                rows.append((source, chance.choice("abc"), second, chance.randrange(100)))
        if rows:
            steps.append((None if chance.random() < 0.2 else passed + idle_steps, rows))
            idle_steps = 0
        else:
            idle_steps += passed  # nothing arrived, no step: the time passes before the next one
    return steps


# --- the operators, driven by hand ---


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([key for _, key, _, _ in rows], pa.string()),
            "at": pa.array([second * SECOND for _, _, second, _ in rows], pa.int64()).cast(UTC),
            "v": pa.array([value for *_, value in rows], pa.int64()),
            "__hf_source": pa.array([source for source, *_ in rows], pa.int32()),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def driven_through(
    logic: KeyedLogic, steps: list[Step], ports: int, chance: random.Random, at: Path
) -> Driven:
    """All steps, with the driver's clock; the state is dealt out anew, and a new run begins, now and then."""
    driven = Driven(logic, chance.randint(1, 3), at)
    now, done = 1_700_000_000, 0
    for passed, rows in steps:
        if passed is None:
            driven.meta = logic.resumed(driven.meta)
        now += 1000 if passed is None else passed
        by_port = {
            port: table_of([row for row in rows if ports == 1 or row[0] == port], done)
            for port in range(ports)
        }
        driven.meta = logic.at(driven.meta, now * SECOND)
        filled = {port: table for port, table in by_port.items() if table.num_rows}
        driven.step(filled, chance.randint(0, 3))
        done += len(rows)
        if chance.random() < 0.2:
            driven.rescale(chance.randint(1, 3))
    return driven


def port_of(delays: dict[int, int], by: tuple[str, ...] = ("k",), idle: int | None = IDLE) -> TimedPort:
    return TimedPort(by, "at", {s: f"s{s}" for s in delays}, {s: d * SECOND for s, d in delays.items()}, idle)


def windowed(idle: int | None = IDLE) -> WindowedAggregate:
    aggregates = (("n", "count", None), ("total", "sum", "v"))
    windows = Windows.plan(SIZE * SECOND, SIZE * SECOND, 0, ("k",), aggregates, INPUT)
    return WindowedAggregate(port_of({0: 1, 1: 0, 2: 2}, idle=idle), INPUT, OUTPUT, False, None, windows)


@pytest.mark.parametrize("seed", range(8))
def test_windows_are_complete_when_the_sources_that_are_not_idle_say_so(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    steps = drawn(chance, 3)
    driven = driven_through(windowed(), steps, 1, chance, tmp_path)
    port = Port({0: 1, 1: 0, 2: 2})
    groups: dict[Any, list[int]] = defaultdict(list)
    late = 0
    for passed, rows in steps:
        for (_, key, second, value), mark in port.take(passed, rows):
            start = second // SIZE * SIZE
            if start + SIZE > mark:
                groups[start, key].append(value)
            else:
                late += 1
        port.rise(port.found()[1])
    done = {
        place: values
        for place, values in groups.items()
        if port.mark is not None and place[0] + SIZE <= port.mark
    }
    found = {(round(row[START].timestamp()), row["k"]): (row["n"], row["total"]) for row in driven.emitted}
    assert len(found) == len(driven.emitted), "each window once"
    assert found == {place: (len(values), sum(values)) for place, values in done.items()}
    assert driven.counts.get("late", 0) == late


@pytest.mark.parametrize("seed", range(4))
def test_sorted_rows_do_not_wait_for_idle_sources(seed: int, tmp_path: Path) -> None:
    chance = random.Random(100 + seed)
    steps = drawn(chance, 3)
    driven = driven_through(Sort(port_of({0: 1, 1: 0, 2: 2}, by=()), INPUT, 9), steps, 1, chance, tmp_path)
    port, late, number = Port({0: 1, 1: 0, 2: 2}), 0, 0
    waiting: list[tuple[int, int, int, int]] = []
    left: list[tuple[int, int, int, int]] = []
    for passed, rows in steps:
        for (source, _, second, value), mark in port.take(passed, rows):
            late += second < mark
            waiting += [(second, source, number, value)] if second >= mark else []
            number += 1
        port.rise(port.found()[1])
        ready = [row for row in waiting if port.mark is not None and row[0] < port.mark]
        left += sorted(ready)
        waiting = [row for row in waiting if row not in ready]
    assert [row["v"] for row in driven.emitted] == [value for *_, value in left]
    assert driven.counts.get("late", 0) == late


def joined(kind: str) -> KeyedLogic:
    right = pa.schema([("k", pa.string()), ("at", UTC), ("v", pa.int64())])
    ports = (port_of({0: 1}), port_of({1: 2}))
    if kind == "asof":
        spec = join_spec(asof_match(None, True), "k", "at", how="left", idle=3)
        shape = PairShape(join_schema(INPUT, right, spec), right_names(right, spec))
        return AsofJoin(ports, (INPUT, right), shape, True, None, True)
    if kind == "ordered":
        keeps = (Latest(3, None, True), Latest(2, None, True))
        spec = join_spec(window_match(*keeps), "k", "at", idle=3)
        shape = PairShape(join_schema(INPUT, right, spec), right_names(right, spec))
        return OrderedJoin(ports, (INPUT, right), shape, False, keeps)
    spec = join_spec(interval_match((2, 4)), "k", "at", how="left", idle=3)
    shape = PairShape(join_schema(INPUT, right, spec), right_names(right, spec))
    return IntervalJoin(ports, (INPUT, right), shape, True, 2 * SECOND, 4 * SECOND)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["asof", "interval", "ordered"])
def test_joins_do_not_wait_for_an_idle_stream(kind: str, seed: int, tmp_path: Path) -> None:
    chance = random.Random(200 + seed)
    steps = drawn(chance, 2)
    driven = driven_through(joined(kind), steps, 2, chance, tmp_path)
    ports, late = (Port({0: 1}), Port({1: 2})), 0
    kept: tuple[list[Row], list[Row]] = ([], [])
    waiting: list[Row] = []
    in_order: list[list[Row]] = []
    wanted: Counter[Any] = Counter()
    padded: Counter[Any] = Counter()
    for passed, rows in steps:
        for side, port in enumerate(ports):
            taken = port.take(passed, [row for row in rows if row[0] == side])
            in_time = [row for row, mark in taken if row[2] >= mark]
            kept[side].extend(in_time)
            late += len(taken) - len(in_time)
            if side == 0 and kind != "ordered":
                padded.update((row[1:], (None, None)) for row, mark in taken if row[2] < mark)
            waiting += in_time if side == 0 or kind == "ordered" else []
        found = [port.found() for port in ports]
        for side, port in enumerate(ports):
            port.rise(found[1 - side][1] if found[side][0] else found[side][1])
        passed_by = ports[1].mark
        if kind == "asof" and passed_by is not None:
            for row in [row for row in waiting if row[2] < passed_by]:
                waiting.remove(row)
                known = [other for other in kept[1] if other[1] == row[1] and other[2] <= row[2]]
                best = max((other[2] for other in known), default=None)
                last = [other for other in known if other[2] == best]
                wanted[row[1:], last[-1][2:] if last else (None, None)] += 1
        if kind == "ordered" and None not in (ports[0].mark, ports[1].mark):
            upto = min(port.mark for port in ports if port.mark is not None)
            ready = [row for row in waiting if row[2] < upto]
            waiting = [row for row in waiting if row[2] >= upto]
            in_order.append(sorted(ready, key=lambda row: (row[2], row[0])))  # stable: then by position
    if kind == "interval":
        wanted = _pairs(kept, ports[1].mark)
    if kind == "ordered":
        wanted = _through_windows([row for rows in in_order for row in rows])
    got = Counter(
        ((r["k"], _second(r["at"]), r["v"]), (_second(r["at_right"]), r["v_right"])) for r in driven.emitted
    )
    assert got == wanted + padded
    assert driven.counts.get("late", 0) == late


def _pairs(kept: tuple[list[Row], list[Row]], mark: int | None) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row in kept[0]:
        met = [o for o in kept[1] if o[1] == row[1] and row[2] - 2 <= o[2] <= row[2] + 4]
        found.update((row[1:], other[2:]) for other in met)
        if not met and mark is not None and row[2] + 4 < mark:
            found[row[1:], (None, None)] += 1
    return found


def _through_windows(rows: list[Row]) -> Counter[Any]:
    """Each row meets what the other stream keeps of its key, then enters its own window."""
    found: Counter[Any] = Counter()
    windows: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        for other in windows[1 - row[0], row[1]]:
            left, right = (row, other) if row[0] == 0 else (other, row)
            found[left[1:], right[2:]] += 1
        windows[row[0], row[1]] = [*windows[row[0], row[1]], row][-(3 - row[0]) :]
    return found


def _second(at: Any) -> int | None:
    return None if at is None else round(at.timestamp())


# --- single cases ---


def stepped(driven: Driven, second: int, rows: list[Row]) -> list[dict[str, Any]]:
    driven.meta = driven.logic.at(driven.meta, second * SECOND)
    before = len(driven.emitted)
    driven.step(table_of(rows, second * 100), 0)
    return driven.emitted[before:]


@pytest.mark.fault("I15")
def test_without_idle_a_silent_source_is_waited_for_for_ever(tmp_path: Path) -> None:
    driven = Driven(windowed(None), 2, tmp_path)
    assert [stepped(driven, s, [(0, "a", s, 1), (2, "a", s, 1)]) for s in range(0, 100, 5)] == [[]] * 20


def test_a_source_that_never_had_a_row_is_waited_for_from_the_first_step_on(tmp_path: Path) -> None:
    driven = Driven(windowed(), 2, tmp_path)
    assert stepped(driven, 50, [(0, "a", 1, 1), (2, "a", 2, 2)]) == []
    assert stepped(driven, 52, [(0, "a", 90, 1), (2, "a", 90, 2)]) == [], (
        "two seconds: source 1 may still come"
    )
    (row,) = stepped(driven, 53, [(0, "a", 91, 1), (2, "a", 91, 2)])
    assert (row["n"], row["total"]) == (2, 3)


def test_what_a_source_brings_back_is_late_where_the_watermark_has_passed_it(tmp_path: Path) -> None:
    driven = Driven(windowed(), 2, tmp_path)
    stepped(driven, 0, [(0, "a", 1, 1), (1, "a", 1, 1), (2, "a", 1, 1)])
    stepped(driven, 4, [(0, "a", 50, 1), (2, "a", 50, 1)])
    stepped(driven, 5, [(1, "a", 30, 1), (1, "a", 41, 10)])
    assert driven.counts["late"] == 1
    assert stepped(driven, 6, [(0, "a", 99, 1), (2, "a", 99, 1)]) == [], "it holds the watermark again"
    rows = stepped(driven, 7, [(1, "a", 99, 1)])
    assert {(_second(row[START]), row["total"]) for row in rows} == {(40, 10), (50, 2)}


@pytest.mark.fault("T03")
def test_time_in_which_nothing_ran_makes_nobody_idle(tmp_path: Path) -> None:
    driven = Driven(windowed(), 1, tmp_path)
    stepped(driven, 0, [(0, "a", 1, 1), (1, "a", 1, 1), (2, "a", 1, 1)])
    stepped(driven, 2, [(0, "a", 50, 1), (2, "a", 50, 1)])
    driven.meta = driven.logic.resumed(driven.meta)
    assert stepped(driven, 5000, [(0, "a", 51, 1), (2, "a", 51, 1)]) == [], "silent for two seconds only"
    assert len(stepped(driven, 5001, [(0, "a", 52, 1), (2, "a", 52, 1)])) == 1


def test_a_step_that_brought_nobody_a_row_is_time_that_passed(tmp_path: Path) -> None:
    driven = Driven(windowed(), 1, tmp_path)
    stepped(driven, 0, [(0, "a", 1, 1), (1, "a", 1, 1), (2, "a", 1, 1)])
    for second in (2, 3):
        driven.meta = driven.logic.at(driven.meta, second * SECOND)
    assert len(stepped(driven, 4, [(0, "a", 50, 1), (2, "a", 50, 1)])) == 1


def test_the_best_rows_of_windows_do_not_wait_either(tmp_path: Path) -> None:
    output = pa.schema([(START, UTC), (END, UTC), ("rank", pa.int64()), *INPUT])
    window = hf.tumbling(SIZE, on="at", idle=3, delay=0)
    logic = TopOfWindows.plan(1, (("v", True),), window, port_of({0: 0, 1: 0}), INPUT, output)
    driven = Driven(logic, 2, tmp_path)
    assert stepped(driven, 0, [(0, "a", 1, 5), (1, "a", 1, 7)]) == []
    assert stepped(driven, 2, [(0, "a", 30, 1)]) == []
    driven.meta = logic.resumed(driven.meta)
    (row,) = stepped(driven, 100, [(0, "b", 31, 1)]) or stepped(driven, 101, [(0, "b", 31, 1)])
    assert (row["rank"], row["v"]) == (1, 7)


# --- mistakes ---


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hf.tumbling(rows=5, idle=3), "idle does not go with rows="),  # type: ignore[call-overload]
        (lambda: hf.sliding(rows=5, every=1, idle=3), "idle does not go with rows="),  # type: ignore[call-overload]
        (lambda: hf.tumbling(5, on="at", idle=0, delay=0), "idle"),
        (lambda: hf.sliding(5, 5, on="at", idle=-1, delay=0), "idle"),
    ],
)
def test_windows_refuse_an_idle_that_makes_no_sense(make: Any, says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        make()


def test_a_join_by_arrival_waits_for_nobody() -> None:
    topology = hf.Topology("t")
    one, other = (topology.source(hf.Rows([], "k string"), name=name) for name in "ab")
    with pytest.raises(TopologyError, match="idle= needs on="):
        one.join(other, by="k", keep=hf.latest(rows=3), idle=3)


def test_explain_tells_when_a_source_is_idle() -> None:
    topology = hf.Topology("t")
    one, other = (topology.source(hf.Rows([], "k string, at timestamp"), name=name) for name in "ab")
    both = one.union(other).aggregate(
        "k", window=hf.tumbling(60, on="at", idle=30, delay=0), n=hf.count(), name="w"
    )
    both.sink(hf.MemorySink("idle-explained"), name="out")
    one.sort("at", idle=5, name="s", delay=0).sink(hf.MemorySink("idle-sorted"), name="sorted")
    text = topology.explain()
    assert "60 s every 60 s of at, sources idle after 30 s" in text
    assert "in the order of at, sources idle after 5 s" in text
