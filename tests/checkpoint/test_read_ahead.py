"""Reading ahead: the same bytes and errors as without it, within bounds, and every pair once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, put_blobs
from holdfast.checkpoint.chain import Chain, Taken
from holdfast.checkpoint.parts import OperatorPart
from holdfast.checkpoint.read_ahead import Key, ReadAhead, SeenPairs, keys_of
from holdfast.errors import DamagedError, StoreError
from holdfast.ids import Epoch
from holdfast.state.values import codec
from holdfast.store.base import Store
from holdfast.store.urls import open_store


class Counted:
    """Pairs in memory that count who asks, and may fail."""

    url = "counted:"

    def __init__(self, pairs: dict[Key, bytes]) -> None:
        self.pairs = pairs
        self.reads: Counter[Key] = Counter()
        self.broken: set[Key] = set()

    def get(self, entry: str, key: str) -> bytes | None:
        self.reads[entry, key] += 1
        if (entry, key) in self.broken:
            raise StoreError("away.", cure="Wait.")
        return self.pairs.get((entry, key))

    def describe(self, entry: str, key: str) -> str:
        return f"{entry}/{key}"


def some(count: int, size: int = 10) -> dict[Key, bytes]:
    return {("e", f"k{n}"): bytes([n % 256]) * size for n in range(count)}


def wanted(pairs: dict[Key, bytes]) -> list[tuple[Key, int]]:
    return [(key, len(data)) for key, data in pairs.items()]


def test_pairs_are_there_before_anybody_asks_and_are_read_once() -> None:
    pairs = some(20)
    store = Counted(pairs)
    with ReadAhead(store, wanted(pairs), slow_s=0) as ahead:
        assert ahead.get("e", "k0") == pairs["e", "k0"]
        for future in list(ahead._begun.values()):
            future.result(60)
        assert set(store.reads) == set(pairs)
        del pairs["e", "k0"]
        assert {key: ahead.get(*key) for key in pairs} == pairs
    assert set(store.reads.values()) == {1}


@pytest.mark.parametrize("seed", range(5))
def test_any_order_gives_the_same_bytes_each_read_once(seed: int) -> None:
    pairs = some(60, 7)
    store, order = Counted(pairs), list(pairs)
    random.Random(seed).shuffle(order)
    with ReadAhead(store, wanted(pairs), slow_s=0, bytes_max=21) as ahead:
        assert [ahead.get(*key) for key in order] == [pairs[key] for key in order]
    assert set(store.reads.values()) == {1}


def test_no_more_bytes_are_fetched_ahead_than_allowed() -> None:
    pairs = some(50, 100)
    store = Counted(pairs)
    with ReadAhead(store, wanted(pairs), slow_s=0, bytes_max=350) as ahead:
        ahead.get("e", "k0")
        for future in list(ahead._begun.values()):
            future.result(60)
        assert sum(store.reads.values()) == 4
    assert sum(store.reads.values()) == 4, "what nobody asked for is not fetched when it is over"


def test_a_store_that_answers_at_once_is_read_without_threads() -> None:
    pairs = some(20)
    store = Counted(pairs)
    with ReadAhead(store, wanted(pairs), slow_s=600) as ahead:
        assert {key: ahead.get(*key) for key in pairs} == pairs
        assert ahead._pool is None
    assert set(store.reads.values()) == {1}


def test_one_pair_larger_than_the_bound_is_read_when_asked_for() -> None:
    pairs = some(3, 100)
    with ReadAhead(Counted(pairs), wanted(pairs), slow_s=0, bytes_max=50) as ahead:
        assert {key: ahead.get(*key) for key in pairs} == pairs


def test_an_error_is_raised_where_the_pair_is_asked_for_and_only_there() -> None:
    pairs = some(6)
    store = Counted(pairs)
    store.broken.add(("e", "k4"))
    with ReadAhead(store, wanted(pairs), slow_s=0) as ahead:
        assert ahead.get("e", "k0") == pairs["e", "k0"]
        with pytest.raises(StoreError, match="away"):
            ahead.get("e", "k4")
        store.broken.clear()
        assert ahead.get("e", "k4") == pairs["e", "k4"], "asked again it is read again"
        assert ahead.get("e", "k5") == pairs["e", "k5"]


def test_a_missing_pair_is_missing() -> None:
    with ReadAhead(Counted({}), [(("e", "a"), 1), (("e", "b"), 1)], slow_s=0) as ahead:
        assert ahead.get("e", "a") is None


def test_what_was_seen_is_not_read_again_and_is_kept_once() -> None:
    pairs = some(5)
    store = Counted(pairs)
    seen = SeenPairs(store)
    for key in pairs:
        assert seen.get(*key) == seen.get(*key) == pairs[key]
    with ReadAhead(store, wanted(pairs), seen, slow_s=0) as ahead:
        assert {key: ahead.get(*key) for key in pairs} == pairs
    assert set(store.reads.values()) == {1}
    assert seen.take("e", "k0") is None


def test_what_is_seen_is_bounded() -> None:
    pairs = some(5, 100)
    store = Counted(pairs)
    seen = SeenPairs(store, bytes_max=250)
    assert [seen.get(*key) for key in pairs] == list(pairs.values())
    assert [seen.take(*key) is not None for key in pairs] == [True, True, False, False, False]
    seen.get("e", "k4")
    seen.forget()
    assert seen.take("e", "k4") is None


# --- a chain ---------------------------------------------------------------------------------------------------------------


DESCRIBED = {"line": "list(int)", "counts": "map(str,int)"}
EPOCHS = 12


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    made = open_store(f"memory:{request.node.name.replace('[', '-').strip(']')}")
    made.open("t")
    made.acquire()
    made.create_entry("e")
    yield made
    made.close()


def stored(store: Store) -> tuple[BlobRef, ...]:
    """The pairs of a chain: a base and deltas of two variables."""
    now, listed = Chain({}), ()
    for epoch in range(1, EPOCHS + 1):
        taken: dict[str, Taken] = {
            "line": ("base", codec.encode(list(range(300)))),
            "counts": ("base", codec.encode({f"key {n}": n for n in range(200)})),
        }
        if epoch > 1:
            line = [codec.encode(part) for part in ([0, 298 + epoch], [], [], [epoch])]
            counts = [codec.encode([]), codec.encode({"key 1": epoch, f"new {epoch}": epoch})]
            taken = {"line": ("delta", codec.encode(line)), "counts": ("delta", codec.encode(counts))}
        link = chain.add(now, Epoch(epoch), taken, DESCRIBED, epoch)
        keys = {f"e{epoch}-a1-op~{kind}": data for kind, data in link.data.items()}
        new = tuple(put_blobs(store, "e", keys).values())
        listed, now = (*link.older, *new), link.stored(new)
    return listed


@pytest.mark.parametrize("limit", [50, 1 << 20])
@pytest.mark.parametrize("bytes_max", [0, 200, 1 << 20])
def test_a_chain_read_ahead_is_the_same_chain_and_every_chunk_is_read_once(
    limit: int, bytes_max: int, store: Store
) -> None:
    store.value_limit = limit
    pairs = stored(store)
    plain = chain.restore(store, pairs)
    counted = Counted({("e", key): store.get("e", key) or b"" for ref in pairs for key in ref.keys})
    planned = list(keys_of([None, OperatorPart(pairs=pairs)]))
    assert sorted(key for key, _ in planned) == sorted(counted.pairs)
    with ReadAhead(counted, planned, bytes_max=bytes_max, slow_s=0) as ahead:
        assert chain.restore(ahead, pairs) == plain
    assert set(counted.reads) == set(counted.pairs)
    assert set(counted.reads.values()) == {1}


def test_what_is_stored_whole_is_read_of_the_newest_epoch_only(store: Store) -> None:
    pairs = stored(store)
    whole = [ref.key for ref in pairs if ref.key.endswith("~non")]
    assert whole == [f"e{EPOCHS}-a1-op~non"]
    counted = Counted({("e", key): store.get("e", key) or b"" for ref in pairs for key in ref.keys})
    assert chain.rest_of(counted, pairs) == EPOCHS
    assert dict(counted.reads) == {("e", whole[0]): 1}


def test_a_damaged_chunk_that_was_read_ahead_is_refused(store: Store) -> None:
    pairs = stored(store)
    held = {("e", key): store.get("e", key) or b"" for ref in pairs for key in ref.keys}
    for key in held:
        wrong = bytearray(held[key])
        wrong[len(wrong) // 2] ^= 1
        counted = Counted({**held, key: bytes(wrong)})
        with (
            ReadAhead(counted, keys_of([OperatorPart(pairs=pairs)]), slow_s=0) as ahead,
            pytest.raises(DamagedError),
        ):
            chain.restore(ahead, pairs)
