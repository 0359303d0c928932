"""What every `Source` must pass. Subclass `SourceConformance` in a test module and say how to make the source.

    class TestMySource(SourceConformance):
        def make(self, rows_per_step):
            return MySource(..., rows_per_step=rows_per_step)

`make` must return sources over the same input each time; `rows_per_step` is a wish (None: the source's default).
Nothing here needs Spark; give `session` to compare the Spark reader with the Arrow reader too.
"""

from __future__ import annotations

import itertools
import pickle
from abc import ABC, abstractmethod
from typing import Any

import msgpack
import pyarrow as pa

from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS, Declined, Slice, Source, Stamp

STAMP = Stamp(7)
LIMITS = (1, 2, 3, 7, 1000, None)


def read_all(source: Source, limit: int = 100_000) -> list[Slice]:
    """Every slice from the current position on, until None."""
    slices: list[Slice] = []
    while (piece := source.next_slice()) is not None:
        slices.append(piece)
        assert len(slices) < limit, "the source does not end"
    return slices


def rows_of(source: Source, pieces: list[Slice], stamp: Stamp | None = None) -> list[tuple[Any, ...]]:
    return [row for piece in pieces for row in as_tuples(source.read_arrow(piece, stamp))]


def as_tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class SourceConformance(ABC):
    """The suite. Each test is a sentence about sources."""

    @abstractmethod
    def make(self, rows_per_step: int | None) -> Source:
        """A fresh source over the same input."""

    def expected(self) -> list[tuple[Any, ...]] | None:
        """All rows in position order, if the test knows them."""
        return None

    def opened(self, rows_per_step: int | None = None, state: Any = None) -> Source:
        source = self.make(rows_per_step)
        source.bound()
        source.seek(state)
        return source

    def test_bounded_source_ends_and_stays_ended(self) -> None:
        source = self.opened()
        assert read_all(source)
        assert source.next_slice() is None
        assert source.next_slice() is None

    def test_slices_partition_the_input_whatever_the_limits(self) -> None:
        whole = self.opened()
        wanted = self.expected() or rows_of(whole, read_all(whole))
        for limit in LIMITS:
            source = self.opened(limit)
            pieces = read_all(source)
            assert rows_of(source, pieces) == wanted, f"with {limit} rows per step"
            for before, after in itertools.pairwise(pieces):
                assert before.end == after.start

    def test_replay_from_every_snapshot_gives_the_same_rows(self) -> None:
        for limit in (2, 5, None):
            source = self.opened(limit)
            states, pieces = [source.snapshot()], []
            while (piece := source.next_slice()) is not None:
                pieces.append(piece)
                states.append(source.snapshot())
            parts = [rows_of(source, [piece], STAMP) for piece in pieces]
            for number, state in enumerate(states):
                again = self.opened(limit, state)
                rest = rows_of(again, read_all(again), STAMP)
                assert rest == [row for part in parts[number:] for row in part], f"from snapshot {number}"

    def test_the_last_slice_can_be_read_again_from_behind_it(self) -> None:
        for limit in (2, 5, 7, None):
            source = self.opened(limit)
            pieces, states = [], []
            while (piece := source.next_slice()) is not None:
                pieces.append(piece)
                states.append(source.snapshot_with(piece))
            parts = [rows_of(source, [piece], STAMP) for piece in pieces]
            for number, state in enumerate(states):
                again = self.opened(limit, state)
                assert rows_of(again, [pieces[number]], STAMP) == parts[number], f"slice {number}"
                rest = rows_of(again, read_all(again), STAMP)
                assert rest == [row for part in parts[number + 1 :] for row in part], f"behind slice {number}"

    def test_seek_in_the_same_object_goes_back(self) -> None:
        source = self.opened(3)
        source.next_slice()
        state = source.snapshot()
        first = rows_of(source, read_all(source), STAMP)
        source.seek(state)
        assert rows_of(source, read_all(source), STAMP) == first

    def test_positions_strictly_increase_and_do_not_depend_on_limits(self) -> None:
        seen = []
        for limit in (1, 4, None):
            source = self.opened(limit)
            rows = rows_of(source, read_all(source), STAMP)
            places = [row[-2:] for row in rows]
            assert {row[-3] for row in rows} == {STAMP.source_index}
            assert all(a < b for a, b in itertools.pairwise(places))
            seen.append(rows)
        assert seen[0] == seen[1] == seen[2]

    def test_reading_a_slice_twice_gives_the_same_rows(self) -> None:
        source = self.opened(3)
        pieces = read_all(source)
        assert rows_of(source, pieces, STAMP) == rows_of(source, pieces, STAMP)

    def test_tasks_read_what_the_driver_reads(self) -> None:
        source = self.opened(3)
        for piece, stamp in itertools.product(read_all(source), (None, STAMP)):
            reader = source.task_reader(piece, stamp)
            if reader is None:
                continue  # a source need not let tasks read
            wanted = source.read_arrow(piece, stamp)
            travelled = pickle.loads(pickle.dumps(reader))
            few = wanted.column_names[::-2]
            try:
                found = travelled(wanted.column_names)
            except Declined as declined:  # the slice is left to Spark as a whole
                found, by = None, declined.by
            if found is None:
                assert by == source.describe()
                continue
            assert found.equals(wanted)
            assert travelled(few).equals(wanted.select(few))

    def test_stamps_add_the_position_columns_and_change_nothing_else(self) -> None:
        source = self.opened(3)
        piece = source.next_slice()
        assert piece is not None
        plain, stamped = source.read_arrow(piece, None), source.read_arrow(piece, STAMP)
        assert plain.schema.equals(source.schema())
        assert stamped.column_names == [*plain.column_names, *POSITION_COLUMNS]
        assert stamped.select(list(POSITION_COLUMNS)).schema.types == POSITION_FIELDS.types
        assert stamped.select(plain.column_names).equals(plain)

    def test_slices_and_snapshots_are_plain_data(self) -> None:
        source = self.opened(2)
        for piece in read_all(source):
            for value in (piece.start, piece.end, source.snapshot()):
                assert_plain(value)
                assert msgpack.unpackb(msgpack.packb(value), strict_map_key=False) == value

    def test_snapshot_does_not_move_and_is_not_changed_by_going_on(self) -> None:
        source = self.opened(2)
        source.next_slice()
        first = source.snapshot()
        packed = msgpack.packb(first)
        assert msgpack.packb(source.snapshot()) == packed
        read_all(source)
        assert msgpack.packb(first) == packed

    def test_what_an_epoch_captures_is_the_snapshot_of_that_moment(self) -> None:
        source = self.opened(2)
        captures, snapshots = [source.capture()], [source.snapshot()]
        for _ in iter(source.next_slice, None):
            assert source.capture() == source.capture()
            captures.append(source.capture())
            snapshots.append(source.snapshot())
        assert [capture.plain() for capture in captures] == snapshots
        assert all(
            (a == b) == (state == other)
            for (a, state), (b, other) in itertools.pairwise(zip(captures, snapshots, strict=True))
        )

    def test_stored_schema_is_used(self) -> None:
        first = self.make(None)
        schema = first.schema()
        second = self.make(None)
        second.use_schema(schema)
        assert second.schema().equals(schema)

    def test_describes_itself(self) -> None:
        assert self.make(None).describe()


def compare_with_spark(session: Any, source: Source, stamp: Stamp | None = STAMP) -> int:
    """Read every slice by Spark and by Arrow and compare the rows (sorted by text). Returns the number of rows."""
    count = 0
    for piece in read_all(source):
        ours = as_tuples(source.read_arrow(piece, stamp))
        theirs = as_tuples(source.read_spark(session, piece, stamp).toArrow())
        assert sorted(map(repr, theirs)) == sorted(map(repr, ours))
        count += len(ours)
    return count


def assert_plain(value: Any) -> None:
    """Refuse anything but int, str, bool, None, list and dict with text keys."""
    if isinstance(value, dict):
        assert all(isinstance(key, str) for key in value)
        for item in value.values():
            assert_plain(item)
    elif isinstance(value, list):
        for item in value:
            assert_plain(item)
    else:
        assert value is None or isinstance(value, int | str), f"{value!r} is not plain data"
