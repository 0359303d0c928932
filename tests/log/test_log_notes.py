"""Notes in the bytes of a log: torn and damaged at every byte, written anew, merged, carried along; read as little as is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DamagedError, InputError
from holdfast.log.format import frame as frames
from holdfast.log.format.frame import NO_EPOCH, Frame, Kind
from holdfast.log.format.note import NewestNotes, Note
from holdfast.log.look.printer import print_segment
from holdfast.log.look.verify import verify
from holdfast.log.notes import in_segment
from holdfast.testing.log_interface import SCHEMA, noted, numbers, some


def opened(root: Path, **settings: Any) -> hf.Log:
    return hf.Log(root, upkeep_every=None, schema=SCHEMA, **settings)


def tail_of(root: Path) -> Path:
    return max((root / "p00000").glob("*.tail"))


def frames_of(data: bytes) -> list[tuple[int, Frame]]:
    """Of a tail: where each frame ends, and the frame."""
    at, found = data.find(frames.MAGIC), []
    while at < len(data):
        frame = frames.unpack(memoryview(data)[at:])
        assert frame is not None
        at += frame.bytes
        found.append((at, frame))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Rows with notes and notes alone, written by somebody who died."""
    log = opened(tmp_path / "log")
    writer = log.writer("w")
    writer.append(some(0, 2), note=b"with rows", wait=True)
    writer.note(b"alone", wait=True)
    log.append(some(2, 1))
    writer.note(b"last", wait=True)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    log.close()
    return tmp_path / "copy"


def expected(whole: list[Frame]) -> tuple[list[int], list[int]]:
    """(numbers of rows, sequences of notes, the newest first) that these frames hold."""
    rows = [n for frame in whole for n in range(frame.position, frame.next)]
    return rows, [frame.sequence for frame in whole if frame.kind is Kind.NOTE][::-1]


def test_a_payload_holds_a_note_and_rows() -> None:
    for size in range(20):
        note = bytes(range(size))
        head = frames.note_head(note)
        assert len(head) % frames.ALIGN == 0
        frame = Frame(Kind.NOTE, bytes(16), 0, 5, 2, 3, "w", 9, 0, NO_EPOCH, 0, 0, 0, 0, len(head) + 4, 0)
        payload = memoryview(head + b"rows")
        assert Note.of(frame, payload) == Note(5, 9, note, 2)
        assert bytes(frames.rows_of(frame, payload)) == b"rows"
        assert Note.decode(Note.of(frame, payload).encode()) == Note(5, 9, note, 2)


def test_a_tail_cut_at_every_byte_has_notes_and_their_rows_or_neither(root: Path) -> None:
    path = tail_of(root)
    data = path.read_bytes()
    ends = frames_of(data)
    for cut in range(ends[0][0] - 40, len(data) + 1):
        path.write_bytes(data[:cut])
        log = opened(root)
        found = numbers(log.reader()), [sequence for _, sequence, _ in noted(log, "w")]
        assert found == expected([frame for end, frame in ends if end <= cut]), f"cut at {cut}"
    for cut in range(ends[0][0] - 3, len(data), 53):
        path.write_bytes(data[:cut])
        shutil.copytree(root, root.with_name("taken"))
        rows, sequences = expected([frame for end, frame in ends if end <= cut])
        with opened(root.with_name("taken")) as log:  # who takes over finds the same, and goes on
            assert log.writer("w").note(b"next").result().sequence == max(sequences, default=0) + 1
            assert [sequence for _, sequence, _ in noted(log, "w")][1:] == sequences
            assert numbers(log.reader()) == rows
        shutil.rmtree(root.with_name("taken"))


def test_every_flipped_byte_is_refused_or_torn_off(root: Path) -> None:
    path = tail_of(root)
    data = path.read_bytes()
    ends = frames_of(data)
    starts = [ends[0][0] - ends[0][1].bytes, *(end for end, _ in ends)]
    for at in range(starts[0], len(data), 11):
        broken = bytearray(data)
        broken[at] ^= 16
        path.write_bytes(broken)
        number = sum(end <= at for end, _ in ends)
        padding = starts[number] + frames.HEADER_BYTES + len(ends[number][1].writer)
        if padding <= at < starts[number] + ends[number][1].head_bytes:
            continue  # zeros in front of a payload: nobody reads them
        if number == len(ends) - 1:
            assert len(noted(opened(root), "w")) == 2
            continue
        with pytest.raises(DamagedError, match=f"position {ends[number][1].position} "):
            noted(opened(root), "w")
        assert verify(opened(root).facts).problems


def test_a_damaged_note_of_a_segment_of_the_middle_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "log", segment_bytes=1) as log:
        for n in range(5):
            log.writer("w").append(some(n, 1), note=b"note %d" % n, wait=True)
    path = sorted((tmp_path / "log/p00000").glob("*.tail"))[2]
    path.write_bytes(path.read_bytes().replace(b"note 2", b"note 3"))
    found = opened(tmp_path / "log").notes("w")
    assert [next(found).payload for _ in range(2)] == [b"note 4", b"note 3"]
    with pytest.raises(DamagedError, match="position 2 "):
        next(found)


@pytest.mark.parametrize("harm", ["missing", "damaged", "footer", "other"])
def test_notes_of_a_merged_segment_are_proven(tmp_path: Path, harm: str) -> None:
    root = tmp_path / "log"
    for n in range(3):
        with opened(root) as log:
            log.writer("w").append(some(n, 1), note=b"note %d" % n * 50, wait=True)
    with opened(root) as log:
        log.append(some(3, 1))
        log.compact()
    (path,) = (root / "p00000").glob("*.notes")
    assert len(noted(opened(root), "w")) == 3
    (segment,) = (root / "p00000").glob("*.parquet")
    assert print_segment(segment, opened(root).facts)["head"]["notes"] == 3
    data = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "other":
        shutil.copy(segment, path)
    else:
        data[12 if harm == "damaged" else -20] ^= 1
        path.write_bytes(data)
    with pytest.raises(DamagedError, match=r"\.notes|files with their notes"):
        noted(opened(root), "w")
    assert verify(opened(root).facts).problems
    assert numbers(opened(root).reader()) == list(range(4))


@pytest.mark.parametrize("index", ["kept", "lost", "stale"])
def test_a_backward_scan_that_stops_early_reads_little(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "log"
    log = opened(root, segment_bytes=1 << 20)
    writer = log.writer("w", window=16)
    big = [{"n": 1, "word": "x" * 3000}]
    for n in range(1500):
        writer.append(big, note=b"%d" % n)
    writer.flush()
    indexes = sorted((root / "p00000").glob("*.index"))
    assert len(indexes) >= 3
    if index == "lost":
        for path in indexes:
            path.unlink()
    elif index == "stale":  # of another segment, under this one's name
        for path in indexes[1:]:
            shutil.copy(indexes[0], path)
    looked: list[str] = []
    real = in_segment._in_tail

    def counted(path: Path, *rest: Any) -> Any:
        looked.append(path.name)
        return real(path, *rest)

    monkeypatch.setattr(in_segment, "_in_tail", counted)
    found = log.notes("w")
    assert next(found).payload == b"1499"
    assert len(looked) == 1
    assert [next(found).payload for _ in range(400)] == [b"%d" % n for n in range(1498, 1098, -1)]
    assert len(looked) < 5
    assert [note.payload for note in found] == [b"%d" % n for n in range(1098, -1, -1)]
    log.close()


def test_the_newest_notes_follow_seals_and_withdrawals() -> None:
    def frame(kind: Kind, sequence: int, epoch: int) -> Frame:
        return Frame(kind, bytes(16), 0, 5, 1, 3, "w", sequence, 0, epoch, 0, 0, 0, 0, 0, 0)

    notes = NewestNotes()

    def apply(kind: Kind, sequence: int, epoch: int) -> int:
        notes.apply(frame(kind, sequence, epoch), memoryview(frames.note_head(b"x")))
        assert NewestNotes.decode(notes.encode()) == notes.copied() == notes
        return notes.decided["w"].sequence if notes.decided else 0

    steps = [
        (Kind.NOTE, 1, 1, 0), (Kind.NOTE, 2, 2, 0), (Kind.SEAL, 0, 1, 1), (Kind.WITHDRAW, 0, 1, 1),
        (Kind.NOTE, 3, 2, 1), (Kind.SEAL, 0, 2, 3), (Kind.NOTE, 4, NO_EPOCH, 4), (Kind.ROWS, 5, 3, 4),
    ]  # fmt: skip
    for kind, sequence, epoch, newest in steps:
        assert apply(kind, sequence, epoch) == newest


def test_a_note_that_is_too_large_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    with pytest.raises(InputError, match="note of"):
        log.writer("w").note(bytes(frames.NOTE_BYTES_MAX + 1))
    assert log.writer("w").note(bytes(frames.NOTE_BYTES_MAX)).result().sequence == 1
    log.close()


def test_many_notes_without_a_row_go_along_with_every_owner(tmp_path: Path) -> None:
    for life in range(4):
        with opened(tmp_path / "log", segment_bytes=1000) as log:
            writer = log.writer("w")
            for n in range(50):
                writer.note(b"%d" % (50 * life + n))
            writer.flush()
            assert [note.payload for note in log.notes("w")] == [
                b"%d" % n for n in range(50 * life + 49, -1, -1)
            ]
    assert len(list((tmp_path / "log/p00000").glob("*.tail"))) == 1
