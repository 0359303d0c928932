"""Large maps and lists are packed in pieces, to the same bytes."""

from __future__ import annotations

import msgpack
import pytest

from holdfast.state.values import codec

SIZES = [4 * codec.PIECE + 1, 5 * codec.PIECE, 4 * codec.PIECE + codec.PIECE // 2 + 7, 5 * codec.PIECE + 16]


@pytest.mark.parametrize("size", SIZES)
def test_pieces_make_the_bytes_that_one_call_makes(size: int) -> None:
    for value in ({n: f"text {n}" for n in range(size)}, [n * 0.5 for n in range(size)]):
        assert codec.encode(value) == b"\x01" + msgpack.packb(value, use_bin_type=True)
        assert codec.decode(codec.encode(value)) == value


def test_values_of_other_types_in_pieces_come_back() -> None:
    value = {(n, str(n)): {n} for n in range(4 * codec.PIECE + 3)}
    assert codec.decode(codec.encode(value)) == value
