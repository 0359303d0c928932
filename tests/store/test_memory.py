"""The store in memory: the suite, and what a restart in the same process sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import OwnedError
from holdfast.store import memory
from holdfast.store.base import Store
from holdfast.store.memory import MemoryStore
from holdfast.testing.store_conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    def make_store(self, tmp_path: Path) -> Store:
        return MemoryStore(tmp_path.name.strip("_") + "-store")


def test_a_name_is_shared_and_can_be_forgotten() -> None:
    first = MemoryStore("shared")
    first.open("t")
    first.acquire()
    first.save_record("r", b"1")
    assert MemoryStore("shared").load_record("r") == b"1"
    assert MemoryStore().load_record("r") is None
    memory.forget("shared")
    assert MemoryStore("shared").load_record("r") is None


def test_an_owner_nobody_refers_to_counts_as_dead() -> None:
    owner = MemoryStore("dropped")
    owner.open("t")
    owner.acquire()
    other = MemoryStore("dropped")
    with pytest.raises(OwnedError):
        other.acquire()
    del owner
    assert other.acquire() == 2
    memory.forget("dropped")
