"""Bytes of a log: every flipped byte is found, a torn tail is cut, a damaged middle is refused, names and index say the truth."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DamagedError, HoldfastError, MismatchError
from holdfast.log.format import frame as frames
from holdfast.log.format import index as indexes
from holdfast.log.format import names
from holdfast.log.format.frame import NO_EPOCH, Frame, Kind
from holdfast.log.format.index import Index, Place
from holdfast.log.format.names import SegmentName, Stretch, gap, lay_out
from holdfast.log.segments import read_range
from holdfast.log.upkeep import plan_merges
from holdfast.testing.log_interface import numbers, some

FRAME = Frame(Kind.ROWS, bytes(range(16)), 7, 2**40, 5, 3, "wérk", 9, 11, NO_EPOCH, -5, 6, 7, 8, 24, 99)


def tail_of(root: Path) -> Path:
    return max((root / "p00000").glob("*.tail"))


def opened(root: Path, **settings: Any) -> hf.Log:
    return hf.Log(root, upkeep_every=None, **settings)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five frames of four rows, written by somebody who died."""
    log = opened(tmp_path / "log")
    for start in range(0, 20, 4):
        log.append(some(start, 4))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "log", copy)
    log.close()
    return copy


def offsets(root: Path) -> list[int]:
    """Where the frames of the tail begin, and where the last one ends."""
    data = tail_of(root).read_bytes()
    found = []
    at = data.find(frames.MAGIC)
    while at < len(data):
        found.append(at)
        frame = frames.unpack(memoryview(data)[at:])
        assert frame is not None
        at += frame.bytes
    return [*found, at]


# --- frames ---


def test_a_frame_comes_back() -> None:
    data = frames.pack(FRAME)
    assert len(data) == FRAME.head_bytes
    assert len(data) % frames.ALIGN == 0
    assert frames.unpack(memoryview(data)) == FRAME


def test_every_flipped_bit_of_a_header_is_found() -> None:
    data = frames.pack(FRAME)
    end = frames.HEADER_BYTES + len("wérk".encode())
    for at in range(end):
        for bit in range(8):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            assert frames.unpack(memoryview(broken)) is None, f"byte {at}"


def test_a_header_is_of_the_size_that_the_page_tells() -> None:
    page = (Path(__file__).parents[2] / "docs/formats/log.md").read_text()
    assert f"{frames.HEADER_BYTES} bytes" in page


# --- torn and damaged tails ---


@pytest.mark.fault("C05")
def test_a_tail_cut_at_any_byte_keeps_its_whole_frames(root: Path, tmp_path: Path) -> None:
    path, ends = tail_of(root), offsets(root)
    data = path.read_bytes()
    dice = random.Random(3)
    cuts = {ends[0], *ends, *(end - 1 for end in ends[1:]), *dice.sample(range(ends[0], ends[-1]), 40)}
    for cut in sorted(cuts):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert numbers(opened(root).reader()) == list(range(4 * whole)), f"cut at {cut}"
    path.write_bytes(data[: ends[3] + 50])
    with opened(root) as log:
        assert log.append(some(12, 1)).position == 12
        assert numbers(log.reader()) == list(range(13))
    with opened(root) as log:
        assert numbers(log.reader()) == list(range(13))


def test_zeros_and_rubbish_behind_the_last_frame_do_not_count(root: Path) -> None:
    path = tail_of(root)
    data = path.read_bytes()
    for rubbish in (bytes(5000), os.urandom(999), data[offsets(root)[0] :][:200]):
        path.write_bytes(data + rubbish)
        assert numbers(opened(root).reader()) == list(range(20))


@pytest.mark.parametrize("where", ["header", "payload"])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.fault("C05", "O06")
def test_a_damaged_middle_is_refused_with_its_position(root: Path, where: str, number: int) -> None:
    path, ends = tail_of(root), offsets(root)
    data = bytearray(path.read_bytes())
    data[ends[number] + 20 if where == "header" else ends[number + 1] - 9] ^= 4
    path.write_bytes(data)
    if number == 4:  # nothing proves that the last one was ever durable
        assert numbers(opened(root).reader()) == list(range(16))
        return
    with pytest.raises(DamagedError, match=f"position {4 * number} "):
        numbers(opened(root).reader())
    with pytest.raises(DamagedError, match=f"position {4 * number} "), opened(root) as log:
        log.append(some(90, 1))
    assert path.read_bytes() == data


def test_a_tail_that_was_closed_in_order_has_no_torn_end(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log:
        log.append(some(0, 4))
    path = tail_of(tmp_path / "log")
    data = bytearray(path.read_bytes())
    data[offsets(tmp_path / "log")[1] - 9] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match="position 0 "):
        opened(tmp_path / "log").reader().read_all()


@pytest.mark.fault("S03")
def test_a_group_that_reached_the_disk_in_pieces_is_torn_not_damaged(root: Path) -> None:
    """The first of two frames that were written together is lost in a power cut, the second is not: nobody had either."""
    path, ends = tail_of(root), offsets(root)
    data = bytearray(path.read_bytes())
    last = frames.unpack(memoryview(data)[ends[4] :])
    assert last is not None
    assert last.stable == ends[4]
    together = frames.pack(replace(last, stable=ends[3]))
    path.write_bytes(
        bytes(data[: ends[3]]) + bytes(ends[4] - ends[3]) + together + data[ends[4] + len(together) :]
    )
    assert numbers(opened(root).reader()) == list(range(12))


@pytest.mark.fault("C06")
def test_a_frame_of_another_log_partition_or_owner_does_not_belong(root: Path) -> None:
    path, ends = tail_of(root), offsets(root)
    data = path.read_bytes()
    last = frames.unpack(memoryview(data)[ends[4] :])
    assert last is not None
    for other in ({"log": bytes(16)}, {"partition": 1}, {"token": 9}, {"position": 17}):
        path.write_bytes(
            data[: ends[4]] + frames.pack(replace(last, **other)) + data[ends[4] + last.head_bytes :]
        )  # type: ignore[arg-type]
        assert numbers(opened(root).reader()) == list(range(16)), other


def test_every_damaged_byte_of_a_tails_beginning_is_refused(root: Path) -> None:
    path, begin = tail_of(root), offsets(root)[0]
    data = path.read_bytes()
    for at in range(0, begin, 7):
        broken = bytearray(data)
        broken[at] ^= 8
        path.write_bytes(broken)
        with pytest.raises((DamagedError, MismatchError)):
            opened(root).reader().read_all()


def test_a_damaged_segment_of_the_middle_is_refused_and_the_rest_can_be_read(tmp_path: Path) -> None:
    root = tmp_path / "log"
    with opened(root, segment_bytes=1) as log:
        for start in range(0, 20, 4):
            log.append(some(start, 4))
    path = sorted((root / "p00000").glob("*.tail"))[2]
    path.write_bytes(path.read_bytes()[:-9])
    reader = opened(root).reader()
    assert [reader.next().position for _ in range(2)] == [0, 4]
    with pytest.raises(DamagedError, match="position 8 "):
        reader.next()
    assert numbers(opened(root).reader(12)) == list(range(12, 20))
    path.unlink()
    with pytest.raises(DamagedError, match="position 8 "):
        opened(root).reader().read_all()


# --- Parquet ---


@pytest.mark.fault("C01")
def test_every_damaged_stretch_of_a_parquet_segment_is_found(tmp_path: Path) -> None:
    from holdfast.log.look.verify import verify

    root = tmp_path / "log"
    with opened(root) as log:
        for start in range(0, 400, 40):
            log.append(some(start, 40))
    with opened(root) as log:
        log.compact()
    (path,) = (root / "p00000").glob("*.parquet")
    data = path.read_bytes()
    facts = opened(root).facts
    assert verify(facts).problems == []
    for at in range(4, len(data), 61):
        broken = bytearray(data)
        broken[at] ^= 16
        path.write_bytes(broken)
        assert verify(facts).problems, f"byte {at}"
        try:
            found = numbers(opened(root).reader())
        except (HoldfastError, OSError, ValueError):
            continue
        assert found == list(range(400)), f"byte {at} was read as something else"


def test_a_range_is_read_without_the_log_in_another_process(tmp_path: Path) -> None:
    import pickle

    root = tmp_path / "log"
    with opened(root) as log:
        for start in range(0, 40, 4):
            log.append(some(start, 4))
    with opened(root) as log:
        log.compact()
        log.append(some(40, 10))
        ranges = log.ranges(3, 44)
        assert [Path(each.path).suffix for each in ranges] == [".parquet", ".tail"]
        again = pickle.loads(pickle.dumps(ranges))
        assert [
            n for each in again for b in read_range(each) for n in b.rows.column("n").to_pylist()
        ] == list(range(3, 44))
        assert [b.rows.schema.names for b in read_range(again[1], ["word"])] == [["word"]]
        assert {tuple(b.rows.schema.names) for b in read_range(again[0], ["word"])} == {("word",)}


# --- names ---


def tail_name(first: int, token: int) -> str:
    return str(SegmentName(first, token))


def sealed(first: int, end: int, token: int = 1) -> str:
    return str(SegmentName(first, token, end, 5, 6))


def test_names_come_back() -> None:
    for name in (SegmentName(5, 7), SegmentName(5, 7, 9, 0xABC, 0xDEF)):
        assert names.parse(str(name)) == name
    assert names.parse("5-7.tail") is None


@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ([], []),
        ([tail_name(0, 1)], [(0, None)]),
        ([tail_name(0, 1), tail_name(10, 1), tail_name(10, 2)], [(0, 10), (10, None)]),
        ([tail_name(0, 1), tail_name(10, 1), tail_name(7, 2)], [(0, 7), (7, None)]),  # a zombie's second tail
        ([sealed(0, 10), tail_name(0, 1), tail_name(10, 1)], [(0, 10), (10, None)]),
        ([sealed(0, 20), sealed(0, 10), sealed(10, 20), tail_name(20, 3)], [(0, 20), (20, None)]),
        (
            [sealed(0, 10), tail_name(10, 1), tail_name(20, 1), "low", "x.index"],
            [(0, 10), (10, 20), (20, None)],
        ),
    ],
)
def test_the_segments_that_count(listed: list[str], wanted: list[tuple[int, int | None]]) -> None:
    assert [(each.start, each.end) for each in lay_out(listed)] == wanted
    assert gap(lay_out(listed), 0) is None


@pytest.mark.fault("S19")
def test_a_missing_segment_is_a_gap_unless_it_was_trimmed() -> None:
    found = lay_out([sealed(10, 20), tail_name(30, 1)])
    assert gap(found, 0) == (0, 10)
    assert gap(found, 15) == (20, 30)
    assert gap(found, 30) is None
    assert gap([Stretch(SegmentName(10, 1), 10, None)], 10) is None


def test_what_a_merge_replaced_is_superfluous() -> None:
    listed = [sealed(0, 20), tail_name(0, 1), tail_name(20, 1), names.live_name(SegmentName(0, 1)), "low"]
    assert names.superfluous(listed, lay_out(listed)) == sorted(
        [tail_name(0, 1), names.live_name(SegmentName(0, 1))]
    )


# --- index ---


def test_an_index_finds_places() -> None:
    index = Index([Place(0, 100, -9), Place(10, 300, 5), Place(20, 500, 5), Place(30, 900, 8)])
    assert [index.of_position(p).offset for p in (0, 9, 10, 25, 30, 99)] == [100, 100, 300, 500, 900, 900]
    assert [index.of_time(t).offset for t in (-9, 5, 6, 8, 9)] == [100, 100, 500, 500, 900]
    name = SegmentName(0, 1)
    data = indexes.encode(index, "ab" * 16, name)
    assert indexes.decode(data, "ab" * 16, name) == Index(index.places, 8)
    assert indexes.decode(data, "cd" * 16, name) is None
    assert indexes.decode(data, "ab" * 16, SegmentName(0, 2)) is None
    assert all(
        indexes.decode(data[:at] + b"\xff" + data[at + 1 :], "ab" * 16, name) is None
        for at in range(len(data))
        if data[at] != 255
    )


# --- which segments are merged ---


@pytest.mark.parametrize(
    ("sizes", "target", "wanted"),
    [
        ([], 100, []),
        ([(True, 10)], 100, [(0, 1)]),
        ([(False, 90)], 100, []),
        ([(True, 10)] * 3, 100, [(0, 3)]),
        ([(True, 60), (True, 60), (True, 60)], 100, [(0, 1), (1, 2), (2, 3)]),
        ([(False, 30), (True, 10)], 100, [(0, 2)]),
        ([(False, 80), (True, 10)], 100, [(1, 2)]),  # too much to be written again for so little
        ([(False, 10), (False, 10)], 100, []),
        ([(True, 500)], 100, [(0, 1)]),
    ],
)
def test_which_segments_are_merged(
    sizes: list[tuple[bool, int]], target: int, wanted: list[tuple[int, int]]
) -> None:
    assert [(plan.start, plan.stop) for plan in plan_merges(sizes, target)] == wanted
