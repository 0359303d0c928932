"""What the suite of all logs asks about notes; part of `LogConformance`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.testing.log_interface import SCHEMA, LogLike, noted, numbers, some


class LogSuite(ABC):
    """What the suite needs of whoever inherits it."""

    @abstractmethod
    def make_log(self, path: Path, **settings: Any) -> LogLike:
        """A new object for the log at `path`. Settings: schema, time, partitions, keep, keep_bytes, take_over, segment_bytes."""

    @pytest.fixture(autouse=True)
    def closed_behind(self) -> Iterator[None]:
        self._opened: list[LogLike] = []
        yield
        for log in self._opened:
            log.close()

    def open(self, tmp_path: Path, **settings: Any) -> LogLike:
        made = self.make_log(tmp_path / "log", **settings)
        self._opened.append(made)
        return made


class LogNotes(LogSuite):
    """Notes are found again, in order, once, with the rows they came with, whatever happens to segments."""

    def test_notes_are_found_from_the_newest_to_the_oldest_and_rows_do_not_show_them(
        self, tmp_path: Path
    ) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        writer, other = log.writer("w"), log.writer("other")
        writer.note(b"")
        writer.append(some(0, 2), note=b"first")
        other.note(b"other")
        writer.append(some(2, 1))
        assert writer.append(some(3, 2), note=b"second").result().position == 3
        assert writer.note(b"third").result().sequence == 5
        wanted = [(5, 5, b"third"), (3, 4, b"second"), (0, 2, b"first"), (0, 1, b"")]
        assert noted(log, "w") == noted(self.open(tmp_path), "w") == wanted
        assert noted(log, "w", backwards=False) == wanted[::-1]
        assert noted(log, "other") == [(2, 1, b"other")]
        assert noted(log, "nobody") == []
        assert numbers(log.reader()) == list(range(5))

    def test_a_note_is_stored_once(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        for number in (1, 2):
            writer = log.writer("w")
            assert writer.note(b"a", sequence=4).result().is_new == (number == 1)
            assert writer.append(some(0, 2), sequence=7, note=b"b").result().is_new == (number == 1)
            log.close()
            log = self.open(tmp_path)
        assert log.writer("w").last_sequence == 7
        assert noted(log, "w") == [(0, 7, b"b"), (0, 4, b"a")]

    @pytest.mark.parametrize("merged", [False, True])
    def test_notes_survive_owners_and_merges(self, tmp_path: Path, merged: bool) -> None:
        """Notes alone at the end of each segment, among them."""
        for number in range(6):
            log = self.open(tmp_path, schema=SCHEMA)
            if merged and number in (3, 5):
                log.compact()
            log.writer("w").append(some(2 * number, 2), note=b"rows %d" % number)
            log.writer("w").note(b"alone %d" % number)
            log.writer("w").note(b"alone again %d" % number)
            log.close()
        log = self.open(tmp_path)
        if merged:
            assert log.compact().after >= 1
        wanted = [
            (
                2 * n + 2 * bool(alone),
                3 * n + 1 + alone,
                (b"rows %d", b"alone %d", b"alone again %d")[alone] % n,
            )
            for n in range(5, -1, -1)
            for alone in (2, 1, 0)
        ]
        assert noted(log, "w") == noted(self.open(tmp_path), "w") == wanted
        assert numbers(log.reader()) == list(range(12))

    def test_notes_go_with_what_is_trimmed_but_for_the_newest(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        for number in range(4):
            log.writer("w").append(some(2 * number, 2), note=b"%d" % number)
            log.writer("w").note(b"behind %d" % number)
            log.close()
            log = self.open(tmp_path)
        log.writer("other").append(some(8, 2))
        log.trim(4)
        kept = [b"behind 3", b"3", b"behind 2", b"2", b"behind 1"]
        assert [payload for _, _, payload in noted(log, "w")] == kept
        log.trim(10)
        for _ in range(3):
            assert noted(log, "w") == [(8, 8, b"behind 3")]
            log.append(some(10, 1))
            log.close()
            log = self.open(tmp_path)
            log.compact()
            log.trim(10)
        log.writer("w").note(b"newer", wait=True)
        assert noted(log, "w")[0][2] == b"newer"

    @pytest.mark.parametrize("merged", [False, True])
    def test_a_note_counts_with_the_rows_it_came_with(self, tmp_path: Path, merged: bool) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        writer = log.writer("w")
        writer.append(some(0, 1), epoch=1, note=b"one")
        writer.note(b"alone")
        writer.append(some(1, 1), epoch=2, note=b"two")
        writer.flush()
        assert noted(log, "w") == [(1, 2, b"alone")]
        assert [p for _, _, p in noted(log, "w", committed=False)] == [b"two", b"alone", b"one"]
        log.seal_epoch(1)
        log.close()
        log = self.open(tmp_path)
        log.withdraw_after(1)
        log.writer("w").append(some(1, 1), epoch=2, note=b"two again")
        log.seal_epoch(2)
        log.close()
        log = self.open(tmp_path)
        if merged:
            log.compact()
        assert [p for _, _, p in noted(log, "w")] == [b"two again", b"alone", b"one"]
        log.trim(3)
        assert [p for _, _, p in noted(log, "w")] == [b"two again"]
        with pytest.raises(ConfigError, match="epoch"):
            log.writer("w").append([], epoch=3, note=b"no")

    def test_notes_are_read_while_segments_are_merged(self, tmp_path: Path) -> None:
        log = self.open(tmp_path, schema=SCHEMA)
        for number in range(8):
            log.writer("w").append(some(number, 1), note=b"%d" % number)
            log.close()
            log = self.open(tmp_path)
        found = log.notes("w")
        seen = [next(found).payload, next(found).payload]
        log.compact()
        log.writer("w").note(b"8")
        assert seen + [note.payload for note in found] == [b"%d" % n for n in range(7, -1, -1)]
