"""Large values are packed in pieces, to the same bytes; what is large in them is copied once, and later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

from holdfast.state.values import codec, packing

PIECE = packing.PIECE
SIZES = [4 * PIECE + 1, 5 * PIECE, 4 * PIECE + PIECE // 2 + 7, 5 * PIECE + 16]


@pytest.mark.parametrize("size", SIZES)
def test_pieces_make_the_bytes_that_one_call_makes(size: int) -> None:
    for value in ({n: f"text {n}" for n in range(size)}, [n * 0.5 for n in range(size)]):
        assert codec.encode(value) == b"\x01" + msgpack.packb(value, use_bin_type=True)
        assert codec.decode(codec.encode(value)) == value


def test_values_of_other_types_in_pieces_come_back() -> None:
    value = {(n, str(n)): {n} for n in range(4 * PIECE + 3)}
    assert codec.decode(codec.encode(value)) == value


def test_keys_of_other_types_are_told_apart_by_their_bytes() -> None:
    nan = float("nan")
    value = {(nan, 1): "one", (float("nan"), 1): "other", (2, (3,)): "third"}
    again = codec.decode(codec.encode(value))
    assert [repr(key) for key in again] == [repr(key) for key in value]


LEAVES = st.one_of(
    st.binary(max_size=40), st.text(max_size=20), st.integers(), st.floats(allow_nan=False), st.none()
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=20),
        st.lists(inner, max_size=6).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=5), st.tuples(st.integers(), st.text(max_size=3))), inner, max_size=20),
    ),
    max_leaves=60,
)  # fmt: skip


@examples(200)
@given(tree=TREES, chance=st.randoms(use_true_random=False))
def test_however_it_is_cut_the_bytes_are_the_same(tree: Any, chance: random.Random) -> None:
    whole = codec.encode(tree)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packing, "HEAVY", chance.choice([0, 1, 20, 200]))
        patched.setattr(packing, "LARGE", chance.choice([1, 10, 100]))
        patched.setattr(packing, "PIECE", chance.choice([1, 2, 7, PIECE]))
        assert codec.encode(tree) == whole
    assert codec.decode(whole) == tree


def test_large_bytes_are_parts_of_their_own() -> None:
    images = [bytes([n]) * (1 << 17) for n in range(20)]
    found = packing.parts({"camera": 1, "images": images})
    assert [part for part in found if len(part) >= 1 << 16] == images
    assert all(
        part is image for part, image in zip([p for p in found if len(p) > 1 << 16], images, strict=True)
    )


def later_changes(value: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> tuple[bytes, bytes]:
    before, frozen = codec.encode(value), codec.freeze(value)
    change(value)
    return before, frozen.encoded()


def test_what_is_frozen_stays_as_it_was() -> None:
    inner: dict[str, Any] = {
        "list": [1, [2, b"x" * 100_000]],
        "array": np.arange(5),
        "tuple": (1, [2]),
        "set": {1},
    }

    def change(value: dict[str, Any]) -> None:
        value["list"][1].append(3)
        value["array"][0] = 9
        value["tuple"][1].append(9)
        value["set"].add(9)
        value["new"] = 1

    before, after = later_changes(inner, change)
    assert before == after
    assert codec.encode(inner) != after
