"""Tables that somebody forged, with right checksums: an error of ours each time, never the end of the process, and no
memory for what is not there. Each file is read in a child process, so that a crash is seen as one."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from books import REGION, Books
from test_forged_manifests import body_of, sealed

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.look.epochs import newest_manifest
from holdfast.cli.main import run_command
from holdfast.durable import checksum_file
from holdfast.errors import DamagedError, HoldfastError
from holdfast.ids import Epoch, RegionName
from holdfast.state.keyed.segment import open_foreign
from holdfast.state.values import codec
from holdfast.state.values.plain_types import as_stream
from holdfast.store.base import SegmentRef
from holdfast.store.urls import open_store

MEMORY = 1 << 30
ZEROS = 200_000_000


def rows() -> pa.Table:
    """A column of each way that Arrow lays out memory."""
    return pa.table(
        {
            "__hf_hash": pa.array(range(20), pa.int64()),
            "k": [f"key {n}" for n in range(20)],
            "lists": [[n, n + 1] for n in range(20)],
            "named": pa.array(["a", "b"] * 10).dictionary_encode(),
            "pairs": pa.array([[("a", n)] for n in range(20)], pa.map_(pa.string(), pa.int32())),
            "views": pa.array(["a string that is too long for its view"] * 20, pa.string_view()),
            "nothing": pa.nulls(20),
        }
    )


def written(path: Path, table: pa.Table, compression: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)
    return path


def bomb(path: Path) -> Path:
    """Some kilobytes that Arrow would make gigabytes of."""
    return written(path, zeros(), "zstd")


def zeros() -> pa.Table:
    return pa.table(
        {"__hf_hash": pa.Array.from_buffers(pa.int64(), ZEROS // 8, [None, pa.py_buffer(bytes(ZEROS))])}
    )


def in_a_child(work: Callable[[], None]) -> int:
    """What `work` ended with in a process that may have only so much memory: 0, or 7 after an error of ours."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work()
            code = 0
        except HoldfastError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def used(path: Path) -> None:
    """Read a segment as one that comes from a store, and touch every value."""
    table = open_foreign(path)
    for column in table.columns:
        column.to_pylist()


def test_what_holdfast_writes_is_read(tmp_path: Path) -> None:
    assert open_foreign(written(tmp_path / "a", rows())).equals(rows())
    assert codec.decode(codec.encode(rows())).equals(rows())


@pytest.mark.fault("U07", "SR04")
def test_each_byte_of_a_segment_may_be_anything(tmp_path: Path) -> None:
    """Every third byte, each with other values, in some hundred files; before there was a look, 85 of 3,402 ended the reader."""
    data = written(tmp_path / "good", rows()).read_bytes()
    here = tmp_path / "bad"

    def work() -> None:
        for place in range(0, len(data), 3):
            for value in {0xFF, 0x7F, data[place] ^ 1} - {data[place]}:
                here.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
                try:
                    used(here)
                except HoldfastError:
                    continue

    assert in_a_child(work) == 0


def test_each_length_of_a_segment_is_refused(tmp_path: Path) -> None:
    data = written(tmp_path / "good", rows()).read_bytes()
    here = tmp_path / "short"
    for length in (0, 1, 7, 20, len(data) // 2, len(data) - 1):
        here.write_bytes(data[:length])
        with pytest.raises(DamagedError):
            open_foreign(here)


@pytest.mark.fault("U07", "SR04")
def test_a_compressed_segment_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb")
    assert path.stat().st_size < ZEROS // 1000
    with pytest.raises(DamagedError, match="compressed"):
        open_foreign(path)


def test_a_compressed_value_is_refused_before_it_takes_memory() -> None:
    good = codec.encode(pa.table({"k": [1, 2, 3]}))
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, zeros().schema, options=options) as writer:
        writer.write_table(zeros())
    plain, bad = as_stream(pa.table({"k": [1, 2, 3]})), bytes(sink.getvalue())
    assert plain in good
    head, _, tail = good.partition(plain)
    assert not tail
    swapped = head.replace(len(plain).to_bytes(2, "big"), len(bad).to_bytes(2, "big")) + bad
    with pytest.raises(HoldfastError, match=r"compressed|not an encoded"):
        codec.decode(swapped)


# --- in a store -------------------------------------------------------------------------------------------------------


def forged(books: Books, make: Callable[[Path], Path]) -> Path:
    """Epoch 1 published anew with another table in the place of its first segment; returns the file in the store."""
    store = open_store(books.store)
    newest = newest_manifest(store, RegionName(REGION))
    part = newest.operators()["totals"]
    old = next(ref for chain in part.segments for ref in chain)
    local = make(books.root / "forged")
    crc, size = checksum_file(local)
    path = store.segment_path(old.entry, old.key)  # type: ignore[attr-defined]
    path.write_bytes(local.read_bytes())
    told = body_of(manifests.encode(newest))
    assert refer(told, old, size, crc)
    store.acquire()
    store.delete_epoch(RegionName(REGION), Epoch(newest.epoch))
    store.publish(RegionName(REGION), Epoch(newest.epoch), sealed(told, 3))
    store.release()
    return Path(path)


def refer(told: Any, old: SegmentRef, size: int, crc: int) -> int:
    """Let all references to a segment tell another size and checksum; returns how many there were."""
    if isinstance(told, dict):
        return sum(refer(each, old, size, crc) for each in told.values())
    if not isinstance(told, list):
        return 0
    if told == [old.entry, old.key, old.size, old.crc]:
        told[2:] = [size, crc]
        return 1
    return sum(refer(each, old, size, crc) for each in told)


def wild(path: Path) -> Path:
    """A string column whose offsets lead far out of the file."""
    table = pa.table({"__hf_hash": pa.array([1, 2], pa.int64()), "user": ["u0", "u1"]})
    data = bytearray(written(path, table).read_bytes())
    offsets = (0).to_bytes(4, "little") + (2).to_bytes(4, "little") + (4).to_bytes(4, "little")
    place = data.index(offsets)
    data[place + 4 : place + 8] = (0x7FFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("make", [wild, bomb])
@pytest.mark.fault("U07", "SR04")
def test_a_forged_segment_in_a_store_is_damage_to_whoever_reads_it(
    books: Books, make: Callable[[Path], Path]
) -> None:
    books.add(20)
    books.run()
    path = forged(books, make)
    books.add(5)

    def restore() -> None:
        books.run()

    def look(*arguments: str) -> Callable[[], None]:
        def work() -> None:
            code = run_command(["checkpoints", *arguments])
            os._exit(code)

        return work

    assert in_a_child(look("verify", books.store)) == 1
    assert in_a_child(look("show", books.store, "--operator", "totals", "--rows", "5")) == 7
    assert in_a_child(look("show", books.store)) == 0
    assert in_a_child(look("show", str(path))) == 7
    assert in_a_child(restore) == 7


def test_a_batch_on_its_way_is_never_compressed(tmp_path: Path) -> None:
    from holdfast.state.columns import parquet_frames

    path = tmp_path / "batch.parquet"
    pq.write_table(pa.table({"a": [0] * 1000}), path, compression="none")
    parquet_frames.check(path)
    pq.write_table(pa.table({"a": [0] * 1000}), path, compression="zstd")
    parquet_frames.check(path, compressed=True)
    with pytest.raises(ValueError, match="compressed"):
        parquet_frames.check(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="footer"):
        parquet_frames.check(path)


@pytest.mark.fault("U07", "SR04")
def test_a_file_of_gigabytes_is_not_read_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.write(b"holdfast record 1 ")
        file.truncate(8 << 30)  # takes no space
    assert run_command(["checkpoints", "show", str(path)]) == 3
    assert "bytes" in capsys.readouterr().err
