"""Every name in a store can be read in one way only, whatever operators and regions are called."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from holdfast.checkpoint import stored_names
from holdfast.checkpoint.blobs import get_blob, put_blobs
from holdfast.checkpoint.retention import Collector
from holdfast.checkpoint.stored_names import batch_key, entry_of, own_entries, own_key, region_of, state_key
from holdfast.ids import Epoch, RegionName, is_safe_name
from holdfast.store.memory import MemoryStore
from holdfast.store.names import check_name

NAMES = (
    "a", "b", "c", "a.b", "b.c", "a-b", "a.b.c", "a.0", "a.1", "a.0.0", "0", "1", "autonomous", "a-autonomous", "state",
    "controller", "controller.a", "schema.a", "savepoints", "probe", "identity", "e1-a1", "e1-a1-a", "e1-a1-a.0", "e1",
    "a-p0-a1-s1-e0-delta", "e1-a1-a-p0-a1-s1-e0-delta", "a-a1-s1.parquet", "x" * 100, "x" * 99,
)  # fmt: skip
REGIONS = (None, *map(RegionName, NAMES))


def test_an_entry_belongs_to_one_operator_of_one_region() -> None:
    assert all(map(is_safe_name, NAMES))
    entries = {entry_of(region, operator): region for region, operator in product(REGIONS, NAMES)}
    assert len(entries) == len(REGIONS) * len(NAMES)
    for entry, region in entries.items():
        assert region_of(check_name("entry", entry)) == region


def store_of_small_values(limit: int, entry: str) -> MemoryStore:
    store = MemoryStore()
    store.value_limit = limit
    store.open("t")
    store.acquire()
    store.create_entry(entry)
    return store


def test_the_chunks_of_a_blob_are_not_another_operators_blob() -> None:
    store = store_of_small_values(10, "op@r")
    blobs = {"e1-a1-op": bytes(25), "e1-a1-op.0": b"another", "e1-a1-op.2": b"a third"}
    refs = put_blobs(store, "op@r", blobs)
    assert {key: get_blob(store, ref) for key, ref in refs.items()} == blobs
    store.close()


def test_a_key_belongs_to_one_piece() -> None:
    store = store_of_small_values(4, "entry")
    epochs = [(Epoch(1), 1), (Epoch(1), 11), (Epoch(11), 1)]
    state = [state_key(*epoch, name) for epoch in epochs for name in NAMES]
    own = [own_key(number, wall, name) for number in (1, 11) for wall in (1.0, 11.5) for name in NAMES]
    variables = [f"{key}~{kind}" for key in state + own for kind in ("non", "incr", "index")]
    blobs = {key: bytes(size) for size, keys in ((9, state + variables), (1, own)) for key in keys}
    stored = [key for ref in put_blobs(store, "entry", blobs).values() for key in ref.keys]
    batches = [batch_key(*epoch, f"{name}.0-a1-s1.parquet") for epoch in epochs for name in NAMES]
    segments = [f"{name}-p{p}-a1-s1-e0{end}" for name in NAMES for p in (0, 1) for end in ("", "-delta")]
    everything = [*stored, *batches, *segments]
    assert (
        len(set(everything)) == len(everything) == 3 * len(state + variables) + len(own + batches + segments)
    )
    store.close()


def test_a_record_belongs_to_one_thing() -> None:
    kinds = get_args(stored_names.RecordOf)
    assert len(kinds) == 8
    records = [check_name("record", stored_names.record_name(of, name)) for of in kinds for name in NAMES]
    assert len({*records, stored_names.BOOKS}) == len(records) + 1


@pytest.mark.parametrize("region", ["autonomous", "main"])
def test_a_sweep_leaves_what_is_not_the_regions(region: str) -> None:
    store = MemoryStore()
    store.open("t")
    store.acquire()
    own, before = own_entries("loose")
    theirs = [
        own,
        "op@x",
        f"op@x@{region}",
        f"op@{region}.x",
        f"op@x.{region}",
        *([before] * (region == "autonomous")),
    ]
    for entry in (*theirs, f"op@{region}"):
        store.create_entry(entry)
        store.put(entry, {"piece": b"needed by somebody"})
    store.save_record(stored_names.record_name("state", "loose"), b'{"number": 1}')
    Collector(store, RegionName(region)).collect()
    assert [entry for entry in store.entries() if not store.keys(entry)] == [f"op@{region}"]
    store.close()
