"""The index of stored variables: small, exact, and refused when it is not as written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.checkpoint.index import Entry, Place, decode, encode
from holdfast.errors import DamagedError
from holdfast.ids import Epoch

EPOCH = Epoch(1000)
PREVIOUS = st.none() | st.builds(Place, st.integers(1, EPOCH - 1).map(Epoch), st.integers(0, 1 << 20))


def laid_out(parts: list[tuple[int, Place | None]]) -> list[Entry]:
    ends = [sum(size for size, _ in parts[:number]) for number in range(len(parts))]
    return [Entry(offset, size, before) for offset, (size, before) in zip(ends, parts, strict=True)]


@examples(150)
@given(st.lists(st.tuples(st.integers(0, 1 << 40), PREVIOUS), max_size=30))
def test_what_is_encoded_comes_back(parts: list[tuple[int, Place | None]]) -> None:
    entries = laid_out(parts)
    assert decode(encode(entries, EPOCH), EPOCH, "it") == entries


def test_a_few_variables_take_a_few_bytes() -> None:
    before = Place(Epoch(EPOCH - 1), 1)
    entries = laid_out([(200_000, None), (120, before), (0, before)])
    assert len(encode(entries, EPOCH)) == 12
    assert [entry.form for entry in entries] == ["base", "delta", "delta"]


@examples(150)
@given(st.binary(max_size=30))
def test_other_bytes_are_damage_or_a_proper_index(data: bytes) -> None:
    try:
        entries = decode(data, EPOCH, "it")
    except DamagedError:
        return
    assert all(entry.previous is None or 0 < entry.previous.epoch < EPOCH for entry in entries)


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_cut_index_is_refused(cut: int) -> None:
    data = encode(laid_out([(300, None), (5, Place(Epoch(3), 0)), (700, None)]), EPOCH)
    with pytest.raises(DamagedError):
        decode(data[:-cut], EPOCH, "it")
