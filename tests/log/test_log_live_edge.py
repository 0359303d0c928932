"""Readers and a writer cross at the live edge, for real: threads of one process, other processes, merges and trims meanwhile."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import forked
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.log.machines.reader_machine import FromDisk, FromMemory, ReaderMachine
from holdfast.log.reader import TrimmedError
from holdfast.testing.log_interface import SCHEMA, numbers, some

CROSSINGS = 1000


def opened(root: Path, **settings: Any) -> hf.Log:
    return hf.Log(root / "log", **{"upkeep_every": None, "schema": SCHEMA, **settings})


def test_a_reader_crosses_from_disk_to_memory_a_thousand_times(tmp_path: Path, monkeypatch: Any) -> None:
    """Memory holds two of the three appends of a round: each round begins on disk and ends in memory."""
    crossed: list[str] = []
    delivered = ReaderMachine.delivered

    def note(machine: ReaderMachine, action: FromDisk | FromMemory, start: int, end: int) -> None:
        crossed.append("disk" if isinstance(action, FromDisk) else "memory")
        delivered(machine, action, start, end)

    monkeypatch.setattr(ReaderMachine, "delivered", note)
    payload = pa.RecordBatch.from_pylist(some(CROSSINGS, 1), SCHEMA).serialize().size
    log = opened(tmp_path, memory_bytes=2 * payload, segment_bytes=40_000)
    reader = log.reader()
    found: list[int] = []
    for n in range(CROSSINGS):
        for more in range(3):
            log.append(some(3 * n + more, 1))
        found += numbers(reader)
    assert found == list(range(3 * CROSSINGS))
    assert sum(a == "disk" and b == "memory" for a, b in pairwise(crossed)) >= CROSSINGS
    log.close()


def follow(reader: hf.Log, start: int, end: int, out: list[int], errors: list[BaseException]) -> None:
    try:
        for batch in reader.reader(start).follow():
            if batch is not None:
                out += batch.rows.column("n").to_pylist()
            if len(out) >= end - start:
                return
    except BaseException as error:
        errors.append(error)


def test_many_readers_follow_a_writer_that_rolls_and_merges(tmp_path: Path) -> None:
    total = 1500
    log = opened(tmp_path, memory_bytes=3000, segment_bytes=5000)
    log.append(some(0, 1))
    other = opened(tmp_path)
    outs: list[list[int]] = [[] for _ in range(4)]
    errors: list[BaseException] = []
    starts = [(log, 0), (log, 1), (other, 0), (other, 1)]
    threads = [
        threading.Thread(target=follow, args=(where, start, total, out, errors))
        for (where, start), out in zip(starts, outs, strict=True)
    ]
    for thread in threads:
        thread.start()
    writer = log.writer("w", window=8)
    dice, n = random.Random(5), 1
    while n < total:
        count = min(dice.randint(1, 7), total - n)
        writer.append(some(n, count))
        n += count
        if dice.random() < 0.03:
            writer.flush()
            log.compact()
    writer.flush()
    for thread in threads:
        thread.join(60)
    assert errors == []
    for (_, start), out in zip(starts, outs, strict=True):
        assert out == list(range(start, total))
    log.close()


def append_in_a_child(root: Path, total: int) -> None:
    log = opened(root, segment_bytes=4000)
    writer = log.writer("w", window=4)
    for n in range(total):
        writer.append(some(n, 1))
    writer.flush()
    log.close()


def test_a_reader_follows_a_writer_of_another_process(tmp_path: Path) -> None:
    opened(tmp_path)
    child = forked.start(append_in_a_child, tmp_path, 600)
    out: list[int] = []
    errors: list[BaseException] = []
    follow(opened(tmp_path), 0, 600, out, errors)
    assert errors == []
    assert out == list(range(600))
    assert forked.finish(child) == 0


@pytest.mark.fault("S15")
def test_trimming_races_readers_and_never_leaves_a_gap(tmp_path: Path) -> None:
    log = opened(tmp_path, segment_bytes=1500, memory_bytes=1000)
    for n in range(0, 400, 4):
        log.append(some(n, 4))
    stop = threading.Event()
    wrong: list[str] = []
    told = [0]

    def read(where: hf.Log, seed: int) -> None:
        dice = random.Random(seed)
        while not stop.is_set():
            start = dice.randint(0, 400)
            seen: list[int] = []
            try:
                for batch in where.reader(start):
                    seen += batch.rows.column("n").to_pylist()
            except TrimmedError:
                told[0] += 1
            except BaseException as error:
                wrong.append(repr(error))
                return
            if seen != list(range(start, start + len(seen))):
                wrong.append(f"from {start}: {seen[:20]}")

    threads = [threading.Thread(target=read, args=(log if n % 2 else opened(tmp_path), n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for step in range(1, 20):
        if step % 3 == 0:
            log.compact(3000)
        log.trim(20 * step)
        log.append(some(400 + 4 * step - 4, 4))
    stop.set()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert told[0] > 0
    log.close()
