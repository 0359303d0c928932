"""The two encodings of an index: the shorter one is written, both are read, and damage is told."""

from __future__ import annotations

import random

import pytest

from holdfast.checkpoint import index
from holdfast.checkpoint.index import BY_ENTRY, BY_FIELD, Entry, Place
from holdfast.errors import DamagedError
from holdfast.ids import Epoch

EPOCH = Epoch(1000)


def some(rng: random.Random, count: int) -> list[Entry]:
    """Bases, deltas and idle deltas, whose rows lie in any order."""
    entries, offset, rows = [], 0, list(range(2 * count))
    rng.shuffle(rows)
    for row in rows[:count]:
        size = rng.choice([0, 1, rng.randrange(1 << 30)])
        previous = rng.choice([None, Place(Epoch(rng.randrange(1, EPOCH)), row)])
        entries.append(Entry(offset, size, previous))
        offset += size
    return entries


@pytest.mark.parametrize("seed", range(30))
def test_both_encodings_hold_the_same_and_the_shorter_one_is_written(seed: int) -> None:
    rng = random.Random(seed)
    entries = some(rng, rng.choice([0, 1, 2, 10, 300]))
    by_entry, by_field = index._by_entry(entries, EPOCH), index._by_field(entries, EPOCH)
    assert (by_entry[0], by_field[0]) == (BY_ENTRY, BY_FIELD)
    for data in (by_entry, by_field):
        assert index.decode(data, EPOCH, "it") == entries
    assert len(index.encode(entries, EPOCH)) == min(len(by_entry), len(by_field))


def test_few_variables_are_written_as_ever_and_many_by_field() -> None:
    def deltas(count: int) -> list[Entry]:
        return [Entry(7 * n, 7, Place(Epoch(999), n)) for n in range(count)]

    assert index.encode(deltas(3), EPOCH)[0] == BY_ENTRY
    many = index.encode(deltas(200), EPOCH)
    assert many[0] == BY_FIELD
    assert len(many) * 10 < len(index._by_entry(deltas(200), EPOCH))


@pytest.mark.parametrize("encoding", ["_by_entry", "_by_field"])
def test_no_cut_or_lengthened_index_is_taken_for_a_whole_one(encoding: str) -> None:
    entries = some(random.Random(5), 20)
    data: bytes = getattr(index, encoding)(entries, EPOCH)
    for length in range(len(data)):
        with pytest.raises(DamagedError):
            index.decode(data[:length], EPOCH, "it")
    with pytest.raises(DamagedError):
        index.decode(data + b"\x01", EPOCH, "it")
    with pytest.raises(DamagedError, match="another version"):
        index.decode(b"\x03" + data[1:], EPOCH, "it")


@pytest.mark.fault("SR04", "U07")
def test_an_index_that_inflates_beyond_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = index._by_field(some(random.Random(6), 50), EPOCH)
    monkeypatch.setattr(index, "_BYTES_MAX", 20)
    with pytest.raises(DamagedError, match="too long"):
        index.decode(data, EPOCH, "it")
