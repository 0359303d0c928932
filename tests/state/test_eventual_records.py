"""Records of windows without windows: which are due, what a backward scan finds, what cannot be true. Pure, by the thousand."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import DamagedError, StateError
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.columns.hashing import HASH_COLUMN, key_hash
from holdfast.state.eventual import records
from holdfast.state.eventual.books import OpenWindows, Pace
from holdfast.state.eventual.records import KIND, NEW, NUMBER, ORDINAL, ROW, Kind, Note, Standing
from holdfast.state.eventual.scan import BackwardScan, Restored, Units, takes
from holdfast.state.values import codec

SUMS = Aggregation.plan(("k",), (("n", "count", None),), pa.schema([("k", pa.int64())]))


@dataclass(frozen=True)
class PlainUnits(Units):
    """A window per key, whose state is a number."""

    @property
    def aggregation(self) -> Aggregation:
        return SUMS

    def begun(self, marks: pa.Table) -> pa.Table:
        return SUMS.state_schema.empty_table()


UNITS = PlainUnits()


def marks_of(told: list[tuple[int, Kind, bool, int, int]]) -> pa.Table:
    """Of (key, kind, new, row, number)."""
    keys = pa.array([key for key, *_ in told], pa.int64())
    columns: dict[str, Any] = {
        KIND: pa.array([kind for _, kind, *_ in told], pa.int8()),
        NEW: pa.array([new for _, _, new, *_ in told], pa.bool_()),
        ORDINAL: pa.array([0] * len(told), pa.int64()),
        ROW: pa.array([row for *_, row, _ in told], pa.int64()),
        NUMBER: pa.array([number for *_, number in told], pa.int64()),
        HASH_COLUMN: pa.array(key_hash([keys])),
        "k": keys,
    }
    return pa.table(columns).select(UNITS.marks.names).cast(UNITS.marks)


def checks_of(states: dict[int, int]) -> pa.Table:
    keys = pa.array(states, pa.int64())
    counts = pa.array(states.values(), pa.int64())
    table = pa.Table.from_arrays([pa.array(key_hash([keys])), keys, counts], schema=SUMS.state_schema)
    return table.sort_by(HASH_COLUMN)


@dataclass
class Writer:
    """A window per key that takes rows one by one; closes after `size` of them. A note per step."""

    size: int
    parts: list[bytes] = field(default_factory=list)
    state: dict[int, int] = field(default_factory=dict)
    """Rows of the open window by key; a closed one is not there."""
    opened: dict[int, int] = field(default_factory=dict)
    known: dict[int, int] = field(default_factory=dict)
    row: int = 0
    notes: list[tuple[dict[int, int], dict[int, int], int]] = field(default_factory=list)
    """What should be found after each note."""
    windows: OpenWindows = field(default_factory=lambda: OpenWindows(Pace(None)))

    def step(self, keys: list[int], checked: set[int], at_once: int = 1 << 16) -> None:
        before, told = self.row, {}
        for key in keys:
            new = key not in self.known
            was_new = told[key][2] if key in told else new
            if key not in self.state:
                self.state[key], self.opened[key] = 0, self.row
                told[key] = (key, Kind.OPENED, was_new, self.row, self.known.setdefault(key, 0))
            self.state[key] += 1
            self.row += 1
            if self.state[key] == self.size:
                self.known[key] += self.size
                told[key] = (key, Kind.CLOSED, was_new, self.row, self.known[key])
                del self.state[key], self.opened[key]
        marks = marks_of(list(told.values()))
        states = {key: self.state[key] for key in checked if key in self.state and key not in told}
        checks = checks_of(states)
        number = len(self.notes) + 1
        hashes = checks.column(HASH_COLUMN).to_numpy()
        self.windows.note(marks, hashes, self.row, number)
        assert self.windows.n_open == len(self.known)
        stands = (Standing(before), Standing(self.row))
        note = Note(number, "", self.windows.n_open, *stands, (0, self.row - 1), {}, self.row, marks, checks)
        self.parts += records.encode(note, at_once)
        self.notes.append((dict(self.state), dict(self.opened), self.row))


def scanned(parts: list[bytes]) -> tuple[Restored | None, int]:
    scan, read = BackwardScan(UNITS), 0
    for data in reversed(parts):
        part = records.decode(data)
        assert part is not None
        read += 1
        if scan.feed(part):
            break
    return scan.result(), read


def check(found: Restored, state: dict[int, int], rows: list[int]) -> None:
    """What was found and the replayed rows give the state again."""
    stored = dict(zip(found.state.column("k").to_pylist(), found.state.column(2).to_pylist(), strict=True))
    upto = found.newest.after.source
    begin = upto if found.start is None else found.start.source
    keys = pa.array(rows[begin:upto], pa.int64())
    windows = found.windows.select([HASH_COLUMN, "k", ORDINAL, ROW])
    positions = (np.zeros(upto - begin, dtype=np.int64), np.arange(begin, upto, dtype=np.int64))
    taken = takes(windows, [pa.array(key_hash([keys])), keys], positions, found.newest.upto)
    again: dict[int, int] = dict(stored)
    for key in keys.filter(pa.array(taken)).to_pylist():
        again[key] = again.get(key, 0) + 1
    assert again == state


def random_life(seed: int) -> tuple[Writer, list[int]]:
    """One of the document's regimes: fast, slow, mixed."""
    chance = random.Random(seed)
    match chance.choice(("fast", "slow", "mixed")):
        case "fast":
            writer, keys = Writer(1), list(range(chance.choice((1, 5, 30))))
        case "slow":
            writer, keys = Writer(1000), [0, 1]
        case _:
            writer, keys = Writer(10), [*list(range(100)) * 10, *range(100, 110)]
    rows: list[int] = []
    for _ in range(chance.randint(1, 12)):
        some = chance.choices(keys, k=chance.randint(1, 40))
        rows += some
        checked = set(
            chance.sample(sorted(writer.known), min(len(writer.known), chance.choice((0, 0, 3, 50))))
        )
        writer.step(some, checked, chance.choice((1, 3, 1 << 16)))
    return writer, rows


def test_a_scan_finds_every_window_whatever_was_lost_of_the_end() -> None:
    for seed in range(300):
        writer, rows = random_life(seed)
        lost = random.Random(-seed).randrange(len(writer.parts) + 1)
        left = writer.parts[: len(writer.parts) - lost]
        whole = [part.note for data in left if (part := records.decode(data)) and part.note]
        found, _ = scanned(left)
        if not whole:
            assert found is None
            continue
        assert found is not None
        assert found.newest.number == whole[-1].number, f"seed {seed}"
        check(found, writer.notes[whole[-1].number - 1][0], rows)


def test_a_scan_stops_when_all_windows_are_found() -> None:
    writer = Writer(1000)
    for key in range(50):
        writer.step([key], set())
    for _ in range(100):
        writer.step([1], set(range(50)))
    found, read = scanned(writer.parts)
    assert found is not None
    assert read == 1
    assert found.start is None  # all were checked in the last step


def test_the_worked_example_of_the_document() -> None:
    """100 windows of 10 000 rows, 90 % full, rows of 100 bytes: 10 KB of records are read, 90 MB replayed."""
    writer = Writer(10_000)
    writer.step(list(range(100)), set())
    writer.state = dict.fromkeys(range(100), 9_000)
    found, _ = scanned(writer.parts)
    assert found is not None
    assert found.newest.n_open == 100
    assert found.bytes <= 10_000
    replayed = 100 * 9_000 - found.start.source  # type: ignore[union-attr]
    assert replayed * 100 <= 90_000_000
    assert found.start == Standing(0)


def test_fewer_windows_than_there_should_be_are_damage() -> None:
    writer = Writer(1000)
    for key in range(9):
        writer.step([key], set())
    with pytest.raises(DamagedError, match="9 open windows, and 6 are found"):
        scanned(writer.parts[3:])


def test_parts_whose_note_was_never_written_count_for_nothing() -> None:
    writer = Writer(1000)
    writer.step([1, 2, 3], set(), at_once=1)
    torn = writer.parts[:2]
    writer.parts = [*torn, *writer.parts]  # a life that died in the middle, and the next one
    writer.step([4], set())
    found, _ = scanned(writer.parts)
    assert found is not None
    assert found.newest.n_open == 4
    assert scanned(torn)[0] is None


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ((1, Kind.OPENED, False, 5, 0), "opened"),
        ((2, Kind.OPENED, False, 5, 0), "never opened"),
        ((1, Kind.CLOSED, False, 5, -3), "result"),
    ],
)
def test_records_that_cannot_be_true_are_refused(second: tuple[Any, ...], why: str) -> None:
    windows = OpenWindows(Pace(None))
    none = np.zeros(0, dtype=np.int64)
    windows.note(marks_of([(1, Kind.OPENED, True, 0, 0)]), none, 0, 1)
    with pytest.raises(StateError, match=why):
        windows.note(marks_of([second]), none, 0, 2)
    with pytest.raises(StateError, match="not open"):
        windows.note(marks_of([]), np.array([77], dtype=np.int64), 0, 2)
    windows.note(marks_of([(1, Kind.CLOSED, False, 9, 5)]), none, 0, 2)
    with pytest.raises(StateError, match="has no rows"):
        windows.note(marks_of([]), key_hash([pa.array([1])]), 0, 3)


def test_windows_that_are_gone_are_not_counted_and_those_that_took_over_others_are_checked() -> None:
    windows, none = OpenWindows(Pace(None)), np.zeros(0, dtype=np.int64)
    windows.note(marks_of([(key, Kind.OPENED, True, key, 0) for key in (1, 2, 3)]), none, 0, 1)
    took_over = [(1, Kind.GONE, False, 0, 0), (2, Kind.MERGED, False, 0, 0), (9, Kind.MERGED, True, 0, 0)]
    with pytest.raises(StateError, match="took over others and is not checked"):
        windows.note(marks_of(took_over), none, 0, 2)
    assert windows.n_open == 3
    windows.note(marks_of(took_over), key_hash([pa.array([2, 9])]), 0, 2)
    assert (windows.n_open, windows.oldest_noted) == (3, 1)
    windows.note(marks_of([(3, Kind.GONE, False, 0, 0)]), none, 0, 3)
    assert (windows.n_open, windows.oldest_noted) == (2, 2)
    for told, why in ((1, "never opened"), (3, "never opened")):
        with pytest.raises(StateError, match=why):
            windows.note(marks_of([(told, Kind.GONE, False, 0, 0)]), none, 0, 4)
    with pytest.raises(StateError, match="gone that was never opened"):
        windows.note(marks_of([(7, Kind.GONE, True, 0, 0)]), none, 0, 4)


# --- which are due ---


def opened_at(pace: Pace, times: dict[int, int]) -> OpenWindows:
    windows = OpenWindows(pace)
    none = np.zeros(0, dtype=np.int64)
    windows.due(0)
    for number, (key, time) in enumerate(times.items()):
        windows.note(marks_of([(key, Kind.OPENED, True, 0, 0)]), none, time, number + 1)
    return windows


def hashes(*keys: int) -> list[int]:
    return sorted(key_hash([pa.array(keys, pa.int64())]).tolist())


def test_slow_windows_are_due_oldest_first_in_shots() -> None:
    windows = opened_at(Pace(every_us=100, slow_us=50, shots=2), {1: 10, 2: 20, 3: 30, 4: 40, 5: 180})
    assert windows.due(40).tolist() == []
    assert windows.due(95).tolist() == hashes(1, 2)  # four are slow, in two shots
    assert windows.due(99).tolist() == []
    assert windows.due(100).tolist() == hashes(3, 4)
    assert windows.due(149).tolist() == []
    assert windows.due(150).tolist() == hashes(1, 2)


def test_a_single_slow_window_is_due_once_in_the_time() -> None:
    windows = opened_at(Pace(every_us=100, slow_us=0, shots=10), {1: 0})
    found = [now for now in range(0, 1000, 5) if len(windows.due(now))]
    assert found == list(range(100, 1000, 100))


def test_windows_that_are_not_slow_are_never_checked() -> None:
    windows = opened_at(Pace(every_us=10, slow_us=1000, shots=1), {1: 0})
    assert not any(len(windows.due(now)) for now in range(0, 1000, 7))
    assert opened_at(Pace(None), {1: 0}).due(10**9).tolist() == []


def test_each_slow_window_has_its_turn_within_the_time() -> None:
    """Random steps: in every stretch of `every` and two steps, each slow window was due."""
    for seed in range(50):
        chance = random.Random(seed)
        keys, every = chance.randint(1, 60), 1000
        windows = opened_at(Pace(every, 0, chance.randint(1, 12)), dict.fromkeys(range(keys), 0))
        last = dict.fromkeys(hashes(*range(keys)), 0)
        now = 0
        for _ in range(200):
            now += chance.randint(1, 120)
            for hash_ in windows.due(now).tolist():
                last[hash_] = now
            assert now - min(last.values()) <= every + 400, f"seed {seed}"


def test_the_page_tells_the_format() -> None:
    page = (Path(__file__).parents[2] / "docs/formats/eventual.md").read_text("utf-8")
    writer = Writer(10)
    writer.step([1], set())
    data = writer.parts[0]
    assert data[:4] == records.MAGIC
    assert f"{records.MAGIC.decode()} | version (1 byte, now {data[4]})" in page
    assert f"{records.RECORDS_PER_PART:,} records are written at once" in page
    found = codec.decode(data[5:])
    for name in (*found, *found["note"], KIND, NEW, ORDINAL, ROW, NUMBER, HASH_COLUMN):
        assert f"`{name}`" in page, name


def test_notes_of_others_are_passed_over_and_later_versions_refused() -> None:
    assert records.decode(b"anything else") is None
    with pytest.raises(DamagedError, match="version 9"):
        records.decode(records.MAGIC + bytes([9]) + b"x")
