"""Files that tasks wrote by themselves: their checksums are taken while they are written, and hold until they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.durable import checksum_file
from holdfast.errors import DamagedError
from holdfast.ids import Attempt, Epoch
from holdfast.language.connectors import StepId
from holdfast.sinks import FileSink, merge
from holdfast.testing.sink_conformance import opened_sink, rows


def opened(out: Path, *given: Any, **settings: Any) -> FileSink:
    return opened_sink(FileSink(str(out), "parquet"), *given, **settings)


def write(sink: FileSink, step: int, partitions: int = 2) -> None:
    """A step whose tasks write."""
    name = StepId(Attempt(0), step)
    writer = sink.task_writer(name)
    assert writer is not None
    answers = [writer(rows(10 * step + p), p, 5) for p in range(partitions)]
    sink.adopt(name, [[list(one) for one in answer] for answer in answers])  # as they arrive


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads a staged file to find its checksum, or whether it has rows."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(merge, "checksum_file", refuse)
    monkeypatch.setattr(merge, "has_rows", refuse)


@pytest.mark.usefixtures("unread")
def test_a_file_that_stays_one_is_not_read_again(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write(sink, 1)
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    staged = [(tmp_path / ".holdfast/out" / path, crc, size) for path, _, size, crc in prepared["files"]]
    assert len(staged) == 2
    for path, crc, size in staged:
        assert checksum_file(path) == (crc, size)
    opened(tmp_path, 2, 1, prepared)
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [f[1] for f in prepared["files"]]


def test_what_is_written_during_a_prepare_belongs_to_the_next(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write(sink, 1)
    sealed = sink.seal(Epoch(1))
    write(sink, 2)
    sink.commit(Epoch(1), sink.prepare(Epoch(1), sealed))
    write(sink, 3)
    prepared = sink.prepare(Epoch(2), sink.seal(Epoch(2)))  # steps 2 and 3, joined
    opened(tmp_path, 2, 2, prepared)
    assert len(list(tmp_path.glob("*.parquet"))) == 4


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write(sink, 1)
    (path, *_) = sorted(tmp_path.glob(".holdfast/out/t1/a0/s1/part-*"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="its writer wrote"):
        sink.prepare(Epoch(1), sink.seal(Epoch(1)))


def test_a_byte_that_changed_since_is_found_before_the_file_is_shown_again(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write(sink, 1)
    prepared = sink.prepare(Epoch(1), sink.seal(Epoch(1)))
    path = tmp_path / ".holdfast/out" / prepared["files"][0][0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="checksum differs"):
        opened(tmp_path, 2, 1, prepared)


def test_nothing_is_remembered_of_steps_that_were_withdrawn_or_are_final(tmp_path: Path) -> None:
    sink = opened(tmp_path / "region")
    write(sink, 1)
    sink.restore(Epoch(0), None)
    assert not sink._sums
    free = opened(tmp_path / "free", region=None)
    write(free, 1)
    assert not free._sums
