"""The suite every log passes. An implementation inherits it and says how to open one:

    class TestMyLog(LogConformance):
        def make_log(self, path: Path, **settings: Any) -> LogLike:
            return MyLog(path, **settings)

`make_log` is called several times per test and gives a new object for the same place: that is how a restart, a second reader
and a second writer look. Crashes, full disks and damage depend on how bytes are kept, and are tested beside it.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import ConfigError, FencedError, InputError, MismatchError, OwnedError, StoreError
from holdfast.testing.log_interface import BEGIN, SCHEMA, LogLike, numbers, some
from holdfast.testing.log_notes_conformance import LogNotes


class LogConformance(LogNotes):
    """Inherit, supply `make_log`, and keep the tests green."""

    # --- append and read ---
    def test_rows_come_back_in_order_with_their_positions(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        assert [log.append(some(start, 3)).position for start in (0, 3, 6)] == [0, 3, 6]
        batches = list(log.reader())
        assert [batch.position for batch in batches] == [0, 3, 6]
        assert [row for batch in batches for row in batch.rows.to_pylist()] == some(0, 9)

    @pytest.mark.parametrize("merged", [False, True])
    def test_rows_are_there_after_a_restart(self, tmp_path: Path, merged: bool) -> None:
        log = self.open(tmp_path)
        for start in range(0, 50, 5):
            log.append(some(start, 5))
        log.close()
        again = self.open(tmp_path)
        if merged:
            again.compact()
        assert numbers(again.reader()) == list(range(50))
        assert again.append(some(50, 1)).position == 50
        assert numbers(again.reader(17)) == list(range(17, 51))

    def test_values_of_many_types_come_back_exactly(self, tmp_path: Path) -> None:
        table = pa.table({
            "i": pa.array([1, None, -3], pa.int32()), "f": pa.array([0.1, None, float("inf")]),
            "s": pa.array(["é", "", None]), "b": pa.array([b"\0", None, b""], pa.binary()),
            "t": pa.array([0, None, 10**15], pa.timestamp("us", "UTC")), "d": pa.array(["1.20", None, "-3.00"]).cast(pa.decimal128(9, 2)),
            "l": pa.array([[1, 2], None, []], pa.list_(pa.int64())), "g": pa.array(["x", "y", "x"]).dictionary_encode(),
            "r": pa.array([{"a": 1, "b": None}, None, {"a": 2, "b": "z"}], pa.struct([("a", pa.int8()), ("b", pa.string())])),
            "o": pa.array([True, None, False]), "big": pa.array(["q", "r", None], pa.large_string()),
        })  # fmt: skip
        log = self.open(tmp_path)
        log.append(table)
        before = log.reader().read_all()
        assert before.to_pylist() == table.to_pylist()
        log.close()
        again = self.open(tmp_path)
        again.compact()
        after = again.reader().read_all()
        assert after.equals(before)
        assert after.schema.equals(before.schema)

    def test_readers_at_different_places_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        for start in range(0, 20, 2):
            log.append(some(start, 2))
        first, second = log.reader(), log.reader(7)
        assert first.next().position == 0
        assert second.next().position == 7
        log.append(some(20, 2))
        assert numbers(first) == list(range(2, 22))
        assert numbers(second) == list(range(8, 22))

    def test_a_reader_that_has_caught_up_gets_what_comes(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 2))
        reader = log.reader("now")
        assert reader.next() is None
        log.append(some(2, 1))
        assert reader.next(5).rows.to_pylist() == some(2, 1)
        assert reader.next() is None
        assert reader.is_live

    def test_a_place_outside_of_the_log_is_refused(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 2))
        for place in (3, -1, "yesterday", True, {7: 0}):
            with pytest.raises(ConfigError):
                log.reader(place)

    # --- schema ---
    @pytest.mark.parametrize(
        ("rows", "named"),
        [
            (pa.table({"n": [1]}), "'word'"),
            (pa.table({"n": [1], "word": ["a"], "more": [2]}), "'more'"),
            (pa.table({"n": [1.5], "word": ["a"]}), "'n'"),
            ([{"n": 1, "other": 2}], "'other'"),
            ([{"n": "no number", "word": "x"}], "'n'"),
        ],
    )
    def test_rows_of_another_schema_are_refused_by_column(
        self, tmp_path: Path, rows: Any, named: str
    ) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 1))
        with pytest.raises(InputError, match=named):
            log.append(rows)
        assert log.append(some(1, 1)).position == 1
        assert numbers(log.reader()) == [0, 1]

    def test_a_log_opened_with_another_schema_is_refused_by_column(self, tmp_path: Path) -> None:
        self.open(tmp_path, schema=SCHEMA)
        with pytest.raises(MismatchError, match="'word'"):
            self.open(tmp_path, schema=pa.schema([("n", pa.int64()), ("word", pa.int64())]))

    def test_columns_in_another_order_fit(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        log.append(pa.table({"word": ["a"], "n": [4]}))
        assert log.reader().read_all().to_pylist() == [{"n": 4, "word": "a"}]

    # --- writers ---
    def test_a_window_of_appends_is_acknowledged_in_order(self, tmp_path: Path) -> None:
        writer = self.open(tmp_path).writer("w", window=4)
        pending = [writer.append(some(n, 1)) for n in range(40)]
        assert [each.result().position for each in pending] == list(range(40))
        assert [each.result().sequence for each in pending] == list(range(1, 41))

    def test_a_sequence_is_stored_once(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        writer = log.writer("w")
        for sequence in (1, 2, 5):
            assert writer.append(some(sequence, 1), sequence=sequence).result().is_new
        again = [writer.append(some(s, 1), sequence=s).result() for s in (5, 2, 1)]
        assert [each.is_new for each in again] == [False] * 3
        assert again[0].position == 2
        log.close()
        reopened = self.open(tmp_path)
        reopened.compact()
        writer = reopened.writer("w")
        assert writer.last_sequence == 5
        assert not writer.append(some(5, 1), sequence=5).result().is_new
        assert writer.append(some(6, 1)).result().sequence == 6
        assert reopened.writer("other").append(some(9, 1), sequence=1).result().is_new
        assert numbers(reopened.reader()) == [1, 2, 5, 6, 9]

    def test_threads_append_and_nothing_is_lost_or_doubled(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, schema=SCHEMA)

        def work(name: int) -> None:
            writer = log.writer(f"w{name}", window=3)
            for n in range(50):
                writer.append(some(1000 * name + n, 1))
            writer.flush()

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = numbers(log.reader())
        assert sorted(found) == [1000 * name + n for name in range(4) for n in range(50)]
        for name in range(4):
            mine = [n for n in found if n // 1000 == name]
            assert mine == sorted(mine)

    def test_a_second_writer_is_refused_and_a_reader_is_not(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 1))
        other = self.open(tmp_path)
        with pytest.raises(OwnedError, match="take_over"):
            other.append(some(1, 1))
        assert numbers(other.reader()) == [0]

    def test_a_writer_that_takes_over_fences_the_other(self, tmp_path: Path) -> None:
        old = self.open(tmp_path)
        old.append(some(0, 2))
        new = self.open(tmp_path, take_over=True)
        new.append(some(2, 2))
        with pytest.raises(FencedError, match="newer writer"):
            old.append(some(90, 1))
        with pytest.raises(FencedError):
            old.append(some(91, 1))
        new.append(some(4, 1))
        assert numbers(self.open(tmp_path).reader()) == [0, 1, 2, 3, 4]

    # --- partitions ---
    def test_partitions_have_their_own_order(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, partitions=3)
        for n in range(12):
            log.append(some(n, 1), partition=n % 3)
        for partition in range(3):
            assert numbers(log.reader(partitions=[partition])) == list(range(partition, 12, 3))
        reader = log.reader({0: 1, 1: 2, 2: 4})
        assert sorted(numbers(reader)) == sorted([3, 6, 9, 7, 10])
        assert reader.position == {0: 4, 1: 4, 2: 4}
        with pytest.raises(ConfigError, match="partitions"):
            log.reader(2)
        with pytest.raises(ConfigError, match="no partition 3"):
            log.append(some(0, 1), partition=3)

    # --- time ---
    @pytest.mark.parametrize("merged", [False, True])
    def test_a_reader_begins_at_a_time(self, tmp_path: Path, merged: bool) -> None:
        log = self.open(tmp_path)
        for minute in (0, 1, 5, 3, 6, 7):  # one comes late: it does not move the place of others
            log.append(some(minute, 1), time=BEGIN + timedelta(minutes=minute))
        if merged:
            log.close()
            log = self.open(tmp_path)
            log.compact()
        starts = {minute: numbers(log.reader(BEGIN + timedelta(minutes=minute))) for minute in range(9)}
        assert starts[0] == [0, 1, 5, 3, 6, 7]
        assert starts[2] == starts[3] == starts[5] == [5, 3, 6, 7]
        assert starts[6] == [6, 7]
        assert starts[8] == []
        assert numbers(log.reader(BEGIN - timedelta(days=1))) == starts[0]

    @pytest.mark.parametrize("merged", [False, True])
    def test_a_time_column_decides_within_a_batch(self, tmp_path: Path, merged: bool) -> None:
        schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("ms"))])
        log = self.open(tmp_path, schema=schema, time="at")
        for start in (0, 10):
            at = [BEGIN.replace(tzinfo=None) + timedelta(seconds=start + n) for n in range(10)]
            log.append(
                pa.table({"n": list(range(start, start + 10)), "at": pa.array(at, pa.timestamp("ms"))})
            )
        if merged:
            log.close()
            log = self.open(tmp_path)
            log.compact()
        assert numbers(log.reader(BEGIN + timedelta(seconds=4))) == list(range(4, 20))
        assert numbers(log.reader(BEGIN + timedelta(seconds=10))) == list(range(10, 20))
        with pytest.raises(ConfigError, match="'at'"):
            log.append(pa.table({"n": [1], "at": pa.array([0], pa.timestamp("ms"))}), time=BEGIN)

    # --- epochs ---
    def test_rows_of_an_epoch_count_when_it_is_sealed(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 2), epoch=1)
        assert numbers(log.reader()) == []
        assert numbers(log.reader(committed=False)) == [0, 1]
        log.append(some(2, 2), epoch=2)  # the next epoch may begin before this one is sealed
        reader = log.reader()
        log.seal_epoch(1)
        assert numbers(reader) == [0, 1]
        log.seal_epoch(1)
        assert (log.sealed_epoch, numbers(reader)) == (1, [])
        log.seal_epoch(2)
        assert numbers(reader) == [2, 3]
        with pytest.raises(ConfigError, match="epoch"):
            log.append(some(9, 1), epoch=2)
        assert self.open(tmp_path).sealed_epoch == 2

    @pytest.mark.parametrize("merged", [False, True])
    def test_rows_that_were_withdrawn_never_count(self, tmp_path: Path, merged: bool) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 2), epoch=1)
        log.seal_epoch(1)
        log.append(some(50, 3), epoch=2)
        log.close()
        log = self.open(tmp_path)
        waiting = log.reader()
        assert numbers(waiting) == [0, 1]
        log.withdraw_after(1)
        log.withdraw_after(1)
        log.append(some(2, 2), epoch=2)
        log.seal_epoch(2)
        log.close()
        log = self.open(tmp_path)
        if merged:
            log.compact()
        assert numbers(log.reader()) == [0, 1, 2, 3]
        assert numbers(log.reader(1)) == [1, 2, 3]
        assert numbers(self.open(tmp_path).reader()) == [0, 1, 2, 3]

    def test_seals_reach_all_partitions(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, partitions=2)
        log.append(some(0, 1), partition=0, epoch=1)
        log.append(some(1, 1), partition=1, epoch=1)
        log.seal_epoch(1)
        assert sorted(numbers(log.reader())) == [0, 1]
        assert log.sealed_epoch == 1

    # --- consumers, retention, merging ---
    def filled(self, tmp_path: Path, segments: int = 5, **settings: Any) -> LogLike:
        """Ten rows per segment: each object that opens a log and writes leaves one."""
        for number in range(segments):
            log = self.open(tmp_path, **settings)
            log.append(some(10 * number, 10), time=BEGIN + timedelta(minutes=number))
            log.close()
        return self.open(tmp_path, **settings)

    def test_merging_changes_no_row_and_no_position(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path)
        behind = log.reader(13)
        assert behind.next().position == 13
        done = log.compact()
        assert (done.before, done.after) == (5, 1)
        assert numbers(behind) == list(range(20, 50))
        assert log.compact().before == 0
        log.append(some(50, 5))
        assert numbers(log.reader(7)) == list(range(7, 55))

    def test_what_all_consumers_have_behind_them_goes(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path)
        assert [each.low for each in log.retain()] == [0]
        log.consumer("fast", 45)
        log.consumer("slow", 25)
        (found,) = log.retain()
        assert (found.low, found.because, found.held_by) == (20, "consumers", "consumer slow")
        assert numbers(log.reader(25)) == list(range(25, 50))
        log.consumer("slow", 45)
        assert [each.low for each in log.retain()] == [40]
        assert log.reader().position == {0: 40}

    def test_a_reader_behind_is_told_what_was_trimmed(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path)
        late, other = log.reader(5), self.open(tmp_path).reader(5)
        assert log.trim(30) == {0: 30}
        for reader in (late, other):
            with pytest.raises(InputError, match=r"position 5 to 30 .* were trimmed"):
                reader.next()
        assert numbers(log.reader()) == list(range(30, 50))
        with pytest.raises(InputError, match="trimmed"):
            log.reader(29).next()

    def test_pins_and_consumers_hold_rows(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path)
        log.consumer("slow", 12)
        log.pin("savepoint", 8)
        with pytest.raises(StoreError, match="pin savepoint"):
            log.trim(20, force=True)
        log.unpin("savepoint")
        with pytest.raises(StoreError, match="consumer slow"):
            log.trim(20)
        assert log.trim(20, force=True) == {0: 20}
        with pytest.raises(InputError, match="trimmed"):
            log.consumer("slow", 12)
        log.forget_consumer("slow")
        with pytest.raises(StoreError, match="no consumer 'slow'"):
            log.forget_consumer("slow")

    def test_limits_of_size_and_time(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path, schema=SCHEMA, keep_bytes=1)
        log.consumer("slow", 22)
        assert [(each.low, each.because) for each in log.retain()] == [(20, "size")]
        log.forget_consumer("slow")
        assert [each.low for each in log.retain()] == [50]
        assert numbers(log.reader()) == []

    def test_trimming_by_time(self, tmp_path: Path) -> None:
        log = self.filled(tmp_path)
        assert log.trim(BEGIN + timedelta(minutes=2)) == {0: 20}
        assert numbers(log.reader()) == list(range(20, 50))

    def test_a_closed_log_takes_nothing(self, tmp_path: Path) -> None:
        log = self.open(tmp_path)
        log.append(some(0, 1))
        log.close()
        with pytest.raises(StoreError, match="closed"):
            log.append(some(1, 1))

    def test_there_is_no_log_where_nobody_appended(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="there is no log"):
            self.open(tmp_path).reader()
