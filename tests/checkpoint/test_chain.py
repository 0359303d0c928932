"""Base and delta checkpoints in a store: own chains per variable, read back over the chain, pairs listed while needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, put_blobs
from holdfast.checkpoint.chain import Chain, Link, Taken
from holdfast.checkpoint.index import Place
from holdfast.errors import DamagedError
from holdfast.ids import Epoch
from holdfast.state.values import codec
from holdfast.state.variables.variables import List, Map, Value
from holdfast.state.variables.versions import versions_of
from holdfast.state.variables.working_values import UNSET, Clock
from holdfast.store.memory import MemoryStore, forget

ENTRY = "op@r"
DESCRIBED = {"counts": "map(str,int)", "line": "list(int)", "title": "value(str)"}


class CountingStore(MemoryStore):
    """Counts what is fetched."""

    fetched: list[str]

    def get(self, entry: str, key: str) -> bytes | None:
        self.fetched.append(key)
        return super().get(entry, key)


@pytest.fixture
def store() -> Iterator[CountingStore]:
    made = CountingStore()
    made.fetched = []
    made.open("chain")
    made.acquire()
    made.create_entry(ENTRY)
    yield made
    made.close()
    forget(made.name)


def put(store: MemoryStore, link: Link) -> list[BlobRef]:
    refs = put_blobs(store, ENTRY, {f"e{link.epoch}-a1-op~{kind}": data for kind, data in link.data.items()})
    return list(refs.values())


def base(value: Any) -> Taken:
    return "base", codec.encode(value)


def added(removed: list[Any], changed: dict[Any, Any]) -> Taken:
    return "delta", codec.encode([codec.encode(removed), codec.encode(changed)])


def appended(kept: int, *values: int) -> Taken:
    return "delta", codec.encode([codec.encode(part) for part in ([0, kept], [], [], list(values))])


SAME: Taken = ("delta", b"")


def grow(store: MemoryStore, *checkpoints: dict[str, Taken]) -> tuple[list[list[BlobRef]], Chain]:
    """Epochs 1, 2, …; per epoch the pairs its manifest would list, and the chain at the end."""
    listed, now = [], Chain({})
    for number, taken in enumerate(checkpoints, 1):
        link = chain.add(now, Epoch(number), taken, DESCRIBED, {"epoch": number})
        new = put(store, link)
        listed.append([*link.older, *new])
        now = link.stored(new)
    return listed, now


CHECKPOINTS: tuple[dict[str, Taken], ...] = (
    {"counts": base({"a": 1, "b": 2}), "line": base([1, 2]), "title": base(["one"])},
    {"counts": added([], {"b": 3}), "line": base([9]), "title": SAME},
    {"counts": added(["a"], {"c": 4}), "line": appended(1, 8), "title": SAME},
    {"counts": base({"z": 0}), "line": SAME, "title": SAME},
    {"counts": SAME, "line": appended(2, 7), "title": base(["two"])},
)
HELD: tuple[dict[str, Any], ...] = (
    {"counts": {"a": 1, "b": 2}, "line": [1, 2], "title": "one"},
    {"counts": {"a": 1, "b": 3}, "line": [9], "title": "one"},
    {"counts": {"b": 3, "c": 4}, "line": [9, 8], "title": "one"},
    {"counts": {"z": 0}, "line": [9, 8], "title": "one"},
    {"counts": {"z": 0}, "line": [9, 8, 7], "title": "two"},
)


@pytest.mark.fault("R10", "O04")
def test_every_epoch_is_restored_from_the_pairs_it_lists(store: CountingStore) -> None:
    listed, _ = grow(store, *CHECKPOINTS)
    for number, (pairs, held) in enumerate(zip(listed, HELD, strict=True), 1):
        found = chain.restore(store, pairs)
        assert found.payloads == held
        assert found.rest == {"epoch": number}
        assert found.described == DESCRIBED


def test_a_restored_chain_goes_on_where_it_was(store: CountingStore) -> None:
    listed, _ = grow(store, *CHECKPOINTS[:3])
    found = chain.restore(store, listed[-1])
    link = chain.add(found.chain, Epoch(4), {"counts": added(["b"], {}), "line": SAME}, DESCRIBED, None)
    pairs = [*link.older, *put(store, link)]
    assert chain.restore(store, pairs).payloads == {"counts": {"c": 4}, "line": [9, 8]}


def test_variables_follow_chains_of_their_own(store: CountingStore) -> None:
    listed, now = grow(store, *CHECKPOINTS)
    assert now.versions == {
        "counts": (Place(Epoch(4), 0),),
        "line": (Place(Epoch(2), 1), Place(Epoch(3), 1), Place(Epoch(5), 1)),
        "title": (Place(Epoch(5), 2),),
    }
    keys = [{ref.key for ref in pairs} for pairs in listed]
    assert {key for key in keys[4] if "~non" in key} == {"e5-a1-op~non"}, "old ones are never needed"
    assert not any(key.startswith("e1-") for key in keys[4]), "nothing depends on the first epoch any more"
    assert {"e2-a1-op~incr", "e2-a1-op~index"} <= keys[4], "the line's base is still needed"
    assert {"e1-a1-op~incr", "e1-a1-op~index"} <= keys[3], "the title was not stored since"


@pytest.mark.fault("S15")
def test_deleting_what_is_not_listed_harms_nobody(store: CountingStore) -> None:
    listed, _ = grow(store, *CHECKPOINTS)
    needed = {key for ref in listed[-1] for key in ref.keys}
    store.delete(ENTRY, [key for key in store.keys(ENTRY) if key not in needed])
    assert chain.restore(store, listed[-1]).payloads == HELD[-1]


def test_large_versions_are_cut_into_chunks_and_each_is_fetched_once(store: CountingStore) -> None:
    store.value_limit = 100
    words = {f"word {n}": n for n in range(200)}
    line = list(range(500))
    checkpoints: list[dict[str, Taken]] = [
        {"counts": base(words), "line": base(line), "title": base(["x" * 300])}
    ]
    for n in range(5):
        words |= {f"new {n}.{m}": m for m in range(20)}
        changed = {key: value for key, value in words.items() if key.startswith(f"new {n}.")}
        checkpoints.append(
            {"counts": added([], changed), "line": appended(len(line), *range(60)), "title": SAME}
        )
        line += range(60)
    listed, _ = grow(store, *checkpoints)
    assert any(ref.chunks > 10 for ref in listed[-1])
    store.fetched = []
    assert chain.restore(store, listed[-1]).payloads == {"counts": words, "line": line, "title": "x" * 300}
    assert len(store.fetched) == len(set(store.fetched))
    assert set(store.fetched) == {key for ref in listed[-1] for key in ref.keys}


def test_variables_in_another_order_are_still_found(store: CountingStore) -> None:
    store.value_limit = 20
    first = {"counts": base({f"k{n}": n for n in range(30)}), "line": base(list(range(60)))}
    _, now = grow(store, first)
    link = chain.add(now, Epoch(2), {"line": SAME, "counts": SAME}, DESCRIBED, None)
    found = chain.restore(store, [*link.older, *put(store, link)])
    assert found.payloads == {"line": list(range(60)), "counts": {f"k{n}": n for n in range(30)}}


def test_a_flipped_bit_in_any_pair_is_damage(store: CountingStore) -> None:
    listed, _ = grow(store, *CHECKPOINTS[:3])
    chooser = random.Random(3)
    for ref in listed[-1]:
        (key,) = ref.keys
        good = store.get(ENTRY, key)
        assert good is not None
        place = chooser.randrange(len(good))
        store.put(ENTRY, {key: good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]})
        with pytest.raises(DamagedError):
            chain.restore(store, listed[-1])
        store.put(ENTRY, {key: good})
    assert chain.restore(store, listed[-1]).payloads == HELD[2]


@pytest.mark.parametrize("kind", ["non", "incr", "index"])
def test_a_missing_pair_is_damage_that_names_it(store: CountingStore, kind: str) -> None:
    listed, _ = grow(store, *CHECKPOINTS[:3])
    store.delete(ENTRY, [f"e3-a1-op~{kind}"])
    with pytest.raises(DamagedError, match=f"e3-a1-op~{kind}"):
        chain.restore(store, listed[-1])


def test_a_pair_that_is_not_listed_is_damage(store: CountingStore) -> None:
    listed, _ = grow(store, *CHECKPOINTS[:3])
    with pytest.raises(DamagedError, match="'incr' pair of epoch 2"):
        chain.restore(store, [ref for ref in listed[-1] if ref.key != "e2-a1-op~incr"])


def test_random_histories_are_restored_at_every_epoch(store: CountingStore) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chooser = random.Random(seed)
    store.value_limit = chooser.choice([30, 200, 1 << 20])
    variables = {"counts": Map(str, int), "line": List(int), "title": Value(str, default="")}
    lives: dict[str, Any] = {name: each.at_work(each, UNSET, Clock()) for name, each in variables.items()}
    now = Chain({})
    versions = {name: versions_of(variables[name], lives[name]) for name in variables}
    for number in range(1, 40):
        for _ in range(chooser.choice([0, 2, 20])):
            lives["counts"][f"k{chooser.randrange(40)}"] = number
            lives["line"].insert(chooser.randrange(len(lives["line"]) + 1), number)
            lives["counts"].pop(f"k{chooser.randrange(40)}", None)
            if chooser.random() < 0.1:
                lives["title"].set(str(number))
        taken: dict[str, Taken] = {}
        for name, each in versions.items():
            delta = each.delta() if chooser.random() < 0.8 and name in now.versions else None
            taken[name] = ("base", each.base()) if delta is None else ("delta", delta)
        link = chain.add(now, Epoch(number), taken, DESCRIBED, None)
        new = put(store, link)
        found = chain.restore(store, [*link.older, *new])
        held = {name: live.held() for name, live in lives.items()}
        assert found.payloads == {name: each for name, each in held.items() if each is not UNSET}
        assert found.chain == link.stored(new)
        now = found.chain
        for each in versions.values():
            each.follow()
