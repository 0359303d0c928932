"""A window join with eventual checkpoints driven by hand: its log is a list, its streams are lists, and kills lose all but the log."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from simulated import SimulatedLog

from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.values import Latest
from holdfast.operators.joins.eventual import ROWS, UNTIL, Entering, rows_of
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.joins.recording import JoinRecorder
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.shared.logic import KeyedLogic, Place, Segments
from holdfast.state.eventual.books import Pace
from holdfast.state.eventual.joins import FoundJoin
from holdfast.state.eventual.records import Standing
from holdfast.state.keyed.segment import OPENED

SIDES = pa.schema([("k", pa.string()), ("l", pa.int64())]), pa.schema([("k", pa.string()), ("r", pa.int64())])
OUTPUT = pa.schema([*SIDES[0], SIDES[1].field("r")])

Row = tuple[str | None, int]
Streams = tuple[Sequence[Row], Sequence[Row]]
Cut = tuple[int, int]
"""Where both streams stand between two steps."""


def join_of(left: int, right: int) -> WindowJoin:
    windows = Latest(left, None), Latest(right, None)
    return WindowJoin((("k",), ("k",)), SIDES, windows, PairShape(OUTPUT, ("r",)), group_rows=16)


def table_of(rows: Sequence[Row], side: int, first: int) -> pa.Table:
    """With positions: every seventh row begins a new part of the source."""
    numbers = np.arange(first, first + len(rows), dtype=np.int64)
    columns = [
        pa.array([key for key, _ in rows], pa.string()),
        pa.array([value for _, value in rows], pa.int64()),
    ]
    columns += [
        pa.array(np.full(len(rows), side, dtype=np.int32)),
        pa.array(numbers // 7),
        pa.array(numbers % 7),
    ]
    return pa.table(columns, names=[*SIDES[side].names, *POSITION_COLUMNS])


@dataclass
class SimulatedJoin:
    """One life of the join, until it is killed. A source's snapshot is the number of its next row."""

    logic: WindowJoin
    streams: Streams
    log: SimulatedLog
    pace: Pace
    partitions: int = 2
    steps: int = 0
    replayed: int = 0
    meta: Any = None
    next: Cut = (0, 0)
    directory: Path = field(init=False)

    def __post_init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.recorder = JoinRecorder(self.logic, self.pace, "test")
        self.state: list[Segments] = [()] * self.partitions

    def die(self) -> None:
        shutil.rmtree(self.directory)
        OPENED.clear()

    def step(self, counts: Cut, now_us: int) -> None:
        before, begin = Standing(list(self.next), self.meta), self.next
        left, right = (min(begin[side] + counts[side], len(self.streams[side])) for side in (0, 1))
        self.next = left, right
        rows = {
            side: table_of(self.streams[side][begin[side] : self.next[side]], side, begin[side])
            for side in (0, 1)
            if self.next[side] > begin[side]
        }
        if not rows:
            return
        asked = self.recorder.asking(self.meta, now_us)
        results = self._applied(self.logic, asked, rows)
        after = Standing(list(self.next), self.meta)
        for note in self.recorder.noted((), bool(results.num_rows), (before, after), {}, now_us):
            self.log.frames.append((results.to_pylist(), note))

    def _applied(self, logic: KeyedLogic, meta: Any, rows: dict[int, pa.Table]) -> pa.Table:
        self.steps += 1
        outputs = [OUTPUT.empty_table()]
        shares = {side: logic.shares(side, table, self.partitions) for side, table in rows.items()}
        for partition in range(self.partitions):
            place = Place(self.directory, f"p{partition}-s{self.steps}")
            arrived = logic.gather([(side, of[partition]) for side, of in shares.items()])
            applied = logic.apply(self.state[partition], meta, arrived, place)
            self.state[partition], self.meta = applied.segments, applied.meta
            outputs.append(applied.outputs[0])
        return pa.concat_tables(outputs)

    def restore(self, cut: int) -> FoundJoin | None:
        """Find out from the log where to go on. `cut`: so many rows are replayed at once."""
        found = self.recorder.scan(self.log.notes())
        self.recorder.resume(found)
        if found is None:
            return None
        until = rows_of(found.newest.after.meta)
        for side, (window, _, _) in found.windows.items():
            assert window.source == window.rows
            at, had = window.source, [window.rows if of == side else 0 for of in (0, 1)]
            self.meta = {ROWS: had, UNTIL: list(until)}
            while self.meta[ROWS][side] < until[side]:
                rows = table_of(self.streams[side][at : at + cut], side, at)
                at += rows.num_rows
                self.replayed += rows.num_rows
                assert not self._applied(Entering(self.logic), self.meta, {side: rows}).num_rows
        left, right = found.newest.after.source
        self.meta, self.next = found.newest.after.meta, (left, right)
        return found


def naive(streams: Streams, cuts: Sequence[Cut], sizes: tuple[int, int]) -> Counter[tuple[Any, ...]]:
    """Row by row: who meets whom if the streams come in these steps, in each of which their rows alternate evenly."""
    windows = deque[Row](maxlen=sizes[0]), deque[Row](maxlen=sizes[1])
    found: Counter[tuple[Any, ...]] = Counter()
    for begin, end in zip([(0, 0), *cuts], cuts, strict=False):
        counts = [end[side] - begin[side] for side in (0, 1)]
        moments = [
            ((2 * number + 1) / (2 * counts[side]), side, begin[side] + number)
            for side in (0, 1)
            for number in range(counts[side])
        ]
        for _, side, number in sorted(moments):
            row = streams[side][number]
            for other in windows[1 - side]:
                if row[0] is not None and row[0] == other[0]:
                    found[(row[0], row[1], other[1]) if side == 0 else (row[0], other[1], row[1])] += 1
            windows[side].append(row)
    return found


def told(log: SimulatedLog) -> Counter[tuple[Any, ...]]:
    return Counter((row["k"], row["l"], row["r"]) for row in log.rows)


def run_with_kills(
    logic: WindowJoin, streams: Streams, pace: Pace, seed: int, kills: int = 4
) -> tuple[SimulatedLog, list[Cut], int]:
    """(the log after all rows, the steps that count, how many restores found something). Steps, kills, lost frames and partitions by
    the seed."""
    chance, log, found, now = random.Random(seed), SimulatedLog(), 0, 0
    cuts: list[Cut] = []
    left = kills
    ends = len(streams[0]), len(streams[1])
    while True:
        join = SimulatedJoin(logic, streams, log, pace, chance.choice((1, 2, 3)))
        try:
            found += join.restore(chance.choice((9, 40, 300))) is not None
            cuts = cuts[: cuts.index(join.next) + 1] if join.next in cuts else []
            steps = 10_000 if not left else chance.randint(0, 15)
            for _ in range(steps):
                if join.next == ends:
                    break
                now += chance.randint(0, 3_000)
                join.step((chance.choice((0, 1, 7, 30)), chance.choice((0, 0, 3, 11))), now)
                if join.next != (cuts[-1] if cuts else (0, 0)):
                    cuts.append(join.next)
        finally:
            join.die()
        if not left:
            return log, cuts, found
        left -= 1
        for _ in range(chance.choice((0, 0, 1, 2, 5))):  # the last frames never became durable
            if log.frames:
                log.frames.pop()
