"""Sources that receive rows by themselves wake their element. Rests last for an hour here: whoever waits for one fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.language.connectors import POSITION_FIELDS, Slice, Source, Stamp
from holdfast.testing import MemorySink, Rows, submit_local

REST_S = 3600.0
PATIENCE_S = 60.0


class Pushed(Source):
    """Rows that other threads push; kept for good, so that they can be read again."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._lock = threading.Lock()
        self._next = 0
        self._wake: Callable[[], None] = lambda: None
        self.asked = threading.Event()
        """Set when the source had nothing."""
        self.opened = self.closed = 0
        self.seeks_before_open = 0

    def push(self, *rows: int) -> None:
        with self._lock:
            self._rows += rows
        self._wake()

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def seek(self, state: Any | None) -> None:
        self.seeks_before_open += not self.opened
        self._next = state or 0

    def next_slice(self) -> Slice | None:
        with self._lock:
            start, self._next = self._next, len(self._rows)
        if start == self._next:
            self.asked.set()
            return None
        return Slice(start, self._next, self._next - start)

    def snapshot(self) -> Any:
        return self._next

    def read_spark(self, session: Any, piece: Slice, stamp: Stamp | None) -> Any:
        raise NotImplementedError

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        table = pa.table({"n": self._rows[piece.start : piece.end]}, schema=self.schema())
        if stamp is not None:
            places = (
                [stamp.source_index] * table.num_rows,
                [0] * table.num_rows,
                range(piece.start, piece.end),
            )
            for field, values in zip(POSITION_FIELDS, places, strict=True):
                table = table.append_column(field, pa.array(values, field.type))
        return table


def wait_for(condition: Callable[[], bool], what: str) -> None:
    patience = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < patience, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.005)


def numbers(shelf: str) -> list[int]:
    return sorted(row["n"] for row in MemorySink.rows(shelf))


def test_a_row_that_is_pushed_wakes_an_element_that_rests(shelf: str) -> None:
    source = Pushed()
    made = hf.Topology("pushed")
    made.source(source, name="pushed").sink(MemorySink(shelf), name="out")
    job = submit_local(made, rest_s=REST_S)
    try:
        for n in range(5):
            assert source.asked.wait(PATIENCE_S)
            loop = next(iter(job.loops.values()))
            wait_for(lambda loop=loop: loop.resting, "the rest")  # type: ignore[misc]
            source.asked.clear()
            threading.Thread(target=source.push, args=(n,)).start()
            wait_for(lambda n=n: numbers(shelf) == list(range(n + 1)), f"row {n}")  # type: ignore[misc]
    finally:
        job.stop(timeout=PATIENCE_S)
    assert (source.opened, source.closed, source.seeks_before_open) == (1, 1, 0)


def test_no_push_is_missed_between_the_question_and_the_rest(shelf: str) -> None:
    """Rows are pushed by the thread that asks, at the worst moment: after the source said that it has nothing."""

    class AtTheWorstMoment(Pushed):
        def next_slice(self) -> Slice | None:
            found = super().next_slice()
            if found is None and len(self._rows) < 50:
                self.push(len(self._rows))
            return found

    made = hf.Topology("pushed")
    made.source(AtTheWorstMoment(), name="pushed").sink(MemorySink(shelf), name="out")
    job = submit_local(made, rest_s=REST_S)
    try:
        wait_for(lambda: len(numbers(shelf)) == 50, "all rows")
    finally:
        job.stop(timeout=PATIENCE_S)
    assert numbers(shelf) == list(range(50))


def test_in_a_region_rows_that_are_pushed_become_visible_with_the_epoch(tmp_path: Path, shelf: str) -> None:
    source = Pushed()
    made = hf.Topology("pushed")
    pushed = made.source(source, name="pushed").consistent("r", trigger="manual", period=None)
    pushed.isolate().sink(MemorySink(shelf), name="out")
    job = submit_local(made, f"file:{tmp_path}/store", rest_s=REST_S)
    try:
        assert source.asked.wait(PATIENCE_S)
        threading.Thread(target=source.push, args=(1, 2, 3)).start()
        wait_for(
            lambda: sum(loop.metrics.rows for loop in job.loops.values()) >= 6, "the rows in both elements"
        )
        job.trigger_epoch()
        wait_for(lambda: numbers(shelf) == [1, 2, 3], "the epoch")
    finally:
        job.stop(timeout=PATIENCE_S)
    assert source.closed == 1


def test_sources_that_are_asked_again_and_again_need_no_wake(shelf: str) -> None:
    class Silent(Pushed):
        def open(self, wake: Callable[[], None]) -> None:
            super().open(lambda: None)

    source = Silent()
    made = hf.Topology("polled")
    made.source(source, name="polled").sink(MemorySink(shelf), name="out")
    job = submit_local(made)
    try:
        assert source.asked.wait(PATIENCE_S)
        source.push(7)
        wait_for(lambda: numbers(shelf) == [7], "the row")
    finally:
        job.stop(timeout=PATIENCE_S)


def test_a_source_that_cannot_be_opened_refuses_the_run_and_the_others_are_closed(shelf: str) -> None:
    class Taken(Pushed):
        def open(self, wake: Callable[[], None]) -> None:
            raise ConfigError("port 80 is taken.", cure="Choose another.")

    first = Pushed()
    made = hf.Topology("pushed")
    made.source(first, name="a").sink(MemorySink(shelf), name="out")
    made.source(Taken(), name="b").sink(MemorySink(shelf), name="out2")
    with pytest.raises(ConfigError, match="port 80"):
        submit_local(made)
    assert first.closed == 1


def test_a_source_that_cannot_be_closed_does_not_fail_the_run(
    shelf: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(Rows):
        def close(self) -> None:
            raise OSError("not now")

    made = hf.Topology("pushed")
    made.source(Stubborn([(1,)], "n long"), name="stubborn").sink(MemorySink(shelf), name="out")
    job = submit_local(made, until="available")
    assert job.await_termination(timeout=PATIENCE_S)
    assert numbers(shelf) == [1]
    assert "'stubborn' could not be closed" in caplog.text
