"""An operator with eventual checkpoints driven by hand: its log is a list, its source a table, and kills lose all but the log."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.operators.aggregates.eventual import (
    BEYOND,
    END,
    End,
    Replay,
    TellingLogic,
)
from holdfast.operators.aggregates.eventual_rows import EventualCounted, EventualRuns
from holdfast.operators.aggregates.eventual_times import EventualSessions, EventualWindowed
from holdfast.operators.aggregates.recording import WindowRecorder
from holdfast.operators.shared.logic import KeyedLogic, Place, Segments
from holdfast.operators.shared.timed import TimedPort
from holdfast.state.eventual.books import Pace
from holdfast.state.eventual.records import Standing
from holdfast.state.eventual.scan import Restored
from holdfast.state.keyed.segment import OPENED, write_segment
from holdfast.state.windows.attributes import Attribute
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.row_windows import RowWindows
from holdfast.state.windows.run_windows import RunWindows
from holdfast.state.windows.session_windows import Sessions
from holdfast.state.windows.time_windows import Windows

SECOND = 1_000_000
UTC = pa.timestamp("us", "UTC")
INPUT = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("at", UTC), ("s", pa.int64()), ("even", pa.bool_())]
)
AGGREGATES = (("n", "count", None), ("total", "sum", "v"), ("top", "max", "v"))
RESULTS = [("n", pa.int64()), ("total", pa.int64()), ("top", pa.int64())]

Row = tuple[str, int, int]
"""Key, value, second."""


def counted(size: int, every: int) -> EventualCounted:
    windows = CountWindows.plan(size, every, ("k",), AGGREGATES, INPUT)
    output = pa.schema([("k", pa.string()), ("window_rows", pa.int64()), *RESULTS])
    return EventualCounted.over(windows, output, False, ("k",))


def timed(size: int, slide: int, delay: int) -> EventualWindowed:
    windows = Windows.plan(size * SECOND, slide * SECOND, 0, ("k",), AGGREGATES, INPUT)
    port = TimedPort(("k",), "at", {0: "s"}, {0: delay * SECOND}, schema=INPUT)
    output = pa.schema([("window_start", UTC), ("window_end", UTC), ("k", pa.string()), *RESULTS])
    return EventualWindowed(port, INPUT, output, False, None, windows)


def in_sessions(gap: int, delay: int) -> EventualSessions:
    sessions = Sessions.plan(gap * SECOND, ("k",), AGGREGATES, INPUT)
    port = TimedPort(("k",), "at", {0: "s"}, {0: delay * SECOND}, schema=INPUT)
    output = pa.schema([("window_start", UTC), ("window_end", UTC), ("k", pa.string()), *RESULTS])
    return EventualSessions(port, INPUT, output, False, None, sessions)


def parted(windows: RowWindows) -> EventualRuns:
    output = pa.schema([("k", pa.string()), ("window_rows", pa.int64()), *RESULTS])
    return EventualRuns.over(windows, output, False, ("k",))


def marked() -> EventualRuns:
    """Until a row with an even value."""
    return parted(RunWindows.plan("even", ("k",), AGGREGATES, INPUT))


def apart(delta: int) -> EventualRuns:
    """Until the second is later than that of the first row by more than so many."""
    return parted(RunWindows.plan(Attribute("s", delta, pa.int64()), ("k",), AGGREGATES, INPUT))


def near(delta: int, every: int) -> EventualRuns:
    """The rows that are at most so many seconds behind the newest."""
    return parted(DeltaWindows.plan(Attribute("s", delta, pa.int64()), every, ("k",), AGGREGATES, INPUT))


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    """Rows with positions: every seventh row begins a new part of the source."""
    numbers = np.arange(first, first + len(rows), dtype=np.int64)
    return pa.table(
        {
            "k": pa.array([key for key, _, _ in rows], pa.string()),
            "v": pa.array([value for _, value, _ in rows], pa.int64()),
            "at": pa.array([second * SECOND for *_, second in rows], pa.int64()).cast(UTC),
            "s": pa.array([second for *_, second in rows], pa.int64()),
            "even": pa.array([value % 2 == 0 for _, value, _ in rows], pa.bool_()),
            POSITION_COLUMNS[0]: pa.array(np.zeros(len(rows), dtype=np.int32)),
            POSITION_COLUMNS[1]: pa.array(numbers // 7),
            POSITION_COLUMNS[2]: pa.array(numbers % 7),
        }
    )


@dataclass
class SimulatedLog:
    """Frames: results, and the note that stands with them."""

    frames: list[tuple[list[dict[str, Any]], bytes]] = field(default_factory=list)
    read: int = 0
    """Bytes of notes that scans have read."""

    def notes(self) -> Iterator[bytes]:
        for _, note in reversed(self.frames):
            self.read += len(note)
            yield note

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for rows, _ in self.frames for row in rows]


class SimulatedOperator:
    """One life of the operator, until it is killed. The source's snapshot is the number of its next row."""

    def __init__(
        self, logic: TellingLogic, rows: Sequence[Row], log: SimulatedLog, pace: Pace, partitions: int = 2
    ) -> None:
        self.logic, self.source, self.log, self.partitions = logic, rows, log, partitions
        self.directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.recorder = WindowRecorder(logic, pace, "test")
        self.state: list[Segments] = [()] * partitions
        self.meta: Any = None
        self.next = 0
        self.steps = 0
        self.replayed = 0

    def die(self) -> None:
        shutil.rmtree(self.directory)
        OPENED.clear()

    # --- steps ---

    def step(self, count: int, now_us: int) -> None:
        before = Standing(self.next, self.logic.to_store(self.meta))
        rows = table_of(self.source[self.next : self.next + count], self.next)
        self.next += rows.num_rows
        asked = self.recorder.asking(self.meta, now_us)
        self.state, self.meta, outputs, _ = self._applied(self.logic, self.state, asked, rows)
        results, told, checks = (pa.concat_tables(port) for port in outputs)
        after = Standing(self.next, self.meta)
        parts = self.recorder.noted((told, checks), bool(results.num_rows), (before, after), {}, now_us)
        for part in parts[:-1]:
            self.log.frames.append(([], part))
        if parts:
            self.log.frames.append((results.to_pylist(), parts[-1]))
        else:
            assert not results.num_rows

    def _applied(
        self, logic: KeyedLogic, state: Sequence[Segments], meta: Any, rows: pa.Table
    ) -> tuple[list[Segments], Any, list[list[pa.Table]], Counter[str]]:
        self.steps += 1
        versions, after = list(state), self.meta if logic is self.logic else meta
        outputs = [[schema.empty_table()] for schema in logic.outputs]
        counts: Counter[str] = Counter()
        needed = rows.select(list(logic.needed(0)))
        for partition, share in sorted(logic.shares(0, needed, self.partitions).items()):
            place = Place(self.directory, f"p{partition}-s{self.steps}")
            applied = logic.apply(state[partition], meta, logic.gather([(0, share)]), place)
            versions[partition], after = applied.segments, applied.meta
            counts.update(applied.counts)
            for port, table in enumerate(applied.outputs):
                outputs[port].append(table)
        return versions, after, outputs, counts

    # --- restores ---

    def restore(self, cut: int) -> Restored | None:
        """Find out from the log where to go on. `cut`: so many rows are replayed at once."""
        found = self.recorder.scan(self.log.notes())
        self.recorder.resume(found)
        if found is None:
            return None
        state = [self._written(found, partition) for partition in range(self.partitions)]
        newest = found.newest
        if found.start is not None:
            state = self._replay(found, state, cut)
        kept = [segments[1:] for segments in state]
        self.state, self.meta, self.next = kept, newest.after.meta, newest.after.source
        return found

    def _written(self, found: Restored, partition: int) -> Segments:
        state, windows = self.recorder.dealt_out(found, partition, self.partitions)
        made = [write_segment(self.directory, f"taking-{partition}", windows)]
        if state.num_rows:
            made.append(write_segment(self.directory, f"restored-{partition}", state))
        return tuple(made)

    def _replay(self, found: Restored, state: list[Segments], cut: int) -> list[Segments]:
        assert found.start is not None
        end = End(found.newest.upto, found.newest.after.meta)
        meta = {**(found.start.meta or {}), END: end.encode()}
        replay, at = Replay(self.logic), found.start.source
        while at < len(self.source):
            rows = table_of(self.source[at : at + cut], at)
            at += rows.num_rows
            self.replayed += rows.num_rows
            state, meta, outputs, counts = self._applied(replay, state, meta, rows)
            assert not any(table.num_rows for port in outputs for table in port)
            if counts[BEYOND] or at == found.newest.after.source:
                break
        return state


# --- the naive model ---


def naive_counted(rows: Sequence[Row], size: int, every: int) -> Counter[tuple[Any, ...]]:
    had: dict[str, list[int]] = defaultdict(list)
    found: Counter[tuple[Any, ...]] = Counter()
    for key, value, _ in rows:
        had[key].append(value)
        if len(had[key]) % every == 0:
            inside = had[key][-size:]
            found[key, len(had[key]), len(inside), sum(inside), max(inside)] += 1
    return found


def naive_timed(rows: Sequence[Row], size: int, slide: int, delay: int) -> Counter[tuple[Any, ...]]:
    inside: dict[tuple[int, str], list[int]] = defaultdict(list)
    reached = -(10**9)
    for key, value, second in rows:
        reached = max(reached, second)
        for number in range((second - size) // slide + 1, second // slide + 1):
            if number * slide + size > reached - delay:
                inside[number, key].append(value)
    done = {each: of for each, of in inside.items() if each[0] * slide + size <= reached - delay}
    return Counter((number * slide, key, len(of), sum(of), max(of)) for (number, key), of in done.items())


def naive_sessions(rows: Sequence[Row], gap: int, delay: int) -> Counter[tuple[Any, ...]]:
    """Rows in time, all at once, in the order of time."""
    of: dict[str, list[tuple[int, int]]] = defaultdict(list)
    reached = -(10**9)
    for key, value, second in rows:
        reached = max(reached, second)
        if second >= reached - delay:
            of[key].append((second, value))
    found: Counter[tuple[Any, ...]] = Counter()
    for key, events in of.items():
        events.sort()
        begins = [n for n, (second, _) in enumerate(events) if not n or second - events[n - 1][0] >= gap]
        for begin, end in itertools.pairwise([*begins, len(events)]):
            inside = [value for _, value in events[begin:end]]
            if events[end - 1][0] + gap <= reached - delay:
                found[events[begin][0], key, len(inside), sum(inside), max(inside)] += 1
    return found


def naive_marked(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return _runs(rows, lambda window, row: False, lambda row: row[1] % 2 == 0)


def naive_apart(rows: Sequence[Row], delta: int) -> Counter[tuple[Any, ...]]:
    return _runs(rows, lambda window, row: row[2] > window[0][2] + delta, lambda row: False)


def _runs(
    rows: Sequence[Row], breaks: Callable[[list[Row], Row], bool], ends: Callable[[Row], bool]
) -> Counter[tuple[Any, ...]]:
    inside: dict[str, list[Row]] = defaultdict(list)
    had: Counter[str] = Counter()
    found: Counter[tuple[Any, ...]] = Counter()

    def close(key: str) -> None:
        values = [value for _, value, _ in inside.pop(key)]
        found[key, had[key], len(values), sum(values), max(values)] += 1

    for row in rows:
        key = row[0]
        if inside[key] and breaks(inside[key], row):
            close(key)
        inside[key].append(row)
        had[key] += 1
        if ends(row):
            close(key)
    return found


def naive_near(rows: Sequence[Row], delta: int, every: int) -> Counter[tuple[Any, ...]]:
    """A row is as far as the largest second up to it."""
    had: dict[str, list[tuple[int, int]]] = defaultdict(list)
    found: Counter[tuple[Any, ...]] = Counter()
    for key, value, second in rows:
        of = had[key]
        of.append((max(second, of[-1][0] if of else second), value))
        if len(of) % every == 0:
            inside = [value for far, value in of if far >= of[-1][0] - delta]
            found[key, len(of), len(inside), sum(inside), max(inside)] += 1
    return found


def told(log: SimulatedLog, is_timed: bool) -> Counter[tuple[Any, ...]]:
    if is_timed:
        return Counter(
            (int(row["window_start"].timestamp()), row["k"], row["n"], row["total"], row["top"])
            for row in log.rows
        )
    return Counter((row["k"], row["window_rows"], row["n"], row["total"], row["top"]) for row in log.rows)


def run_with_kills(
    logic: TellingLogic, rows: Sequence[Row], pace: Pace, seed: int, kills: int = 3, cut: int = 40
) -> tuple[SimulatedLog, int]:
    """(the log after all rows, how many restores found something). Steps, kills, lost frames and partitions by the seed."""
    chance, log, found, now = random.Random(seed), SimulatedLog(), 0, 0
    left = kills
    while True:
        operator = SimulatedOperator(logic, rows, log, pace, chance.choice((1, 2, 3)))
        try:
            found += operator.restore(chance.choice((9, 40, 300))) is not None
            until = len(rows) if not left else chance.randint(operator.next, len(rows))
            while operator.next < until:
                now += chance.randint(0, 3_000)
                operator.step(min(chance.randint(1, cut), until - operator.next), now)
        finally:
            operator.die()
        if not left:
            return log, found
        left -= 1
        for _ in range(chance.choice((0, 0, 1, 2, 5))):  # the last frames never became durable
            if log.frames:
                log.frames.pop()
