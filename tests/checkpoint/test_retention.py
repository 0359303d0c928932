"""What is kept and what goes; a collection that is killed anywhere is finished by a later one."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path

import fabricated
import pytest
from books import REGION as BOOKS
from books import Books
from fabricated import ENTRY, REGION
from killing import kill_at_every_call

from holdfast import failpoints
from holdfast.checkpoint import savepoints
from holdfast.checkpoint.change.offline import prune
from holdfast.checkpoint.retention import Collected, Collector, Retention, choose
from holdfast.checkpoint.savepoints import Savepoints
from holdfast.errors import DamagedError, OwnedError, TopologyError
from holdfast.ids import Epoch, RegionName
from holdfast.language.annotations import region_settings
from holdfast.store.base import Store
from holdfast.store.files.file_store import FileStore
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite import database
from holdfast.store.sqlite.sqlite_store import SqliteStore
from holdfast.store.urls import open_store


def epochs(*numbers: int) -> list[Epoch]:
    return [Epoch(number) for number in numbers]


def owned(store: Store | None = None) -> Store:
    store = store or MemoryStore()
    store.open("t")
    store.acquire()
    return store


def stored(store: Store) -> set[str]:
    return set(store.keys(ENTRY))


# --- the decision -----------------------------------------------------------------------------------------------------


def test_the_newest_epochs_are_kept() -> None:
    walls = {Epoch(e): 0.0 for e in (1, 2, 5, 9)}
    assert choose(walls, Retention(keep=2)) == epochs(1, 2)
    assert choose(walls, Retention(keep=9)) == []


def test_the_newest_epoch_is_kept_whatever_is_asked() -> None:
    assert choose({Epoch(4): 0.0, Epoch(7): 0.0}, Retention(keep=0), now=1e12) == epochs(4)


def test_young_epochs_are_kept_beyond_the_newest_ones() -> None:
    walls = {Epoch(e): 100.0 * e for e in range(1, 6)}
    assert choose(walls, Retention(1, keep_for_s=250.0), now=500.0) == epochs(1, 2)


@pytest.mark.fault("T01")
def test_a_clock_that_was_set_back_deletes_nothing_that_time_keeps() -> None:
    walls = {Epoch(e): 1000.0 * e for e in range(1, 6)}
    assert choose(walls, Retention(1, keep_for_s=10.0), now=0.0) == []


def test_named_epochs_are_kept() -> None:
    walls = {Epoch(e): 0.0 for e in range(1, 6)}
    assert choose(walls, Retention(1), named=epochs(2)) == epochs(1, 3, 4)


def test_settings_of_a_region_say_how_much_is_kept() -> None:
    settings = region_settings(keep=7, keep_for=timedelta(hours=2))
    assert (settings.keep, settings.keep_for_s) == (7, 7200.0)
    assert (region_settings().keep, region_settings().keep_for_s) == (3, None)
    for wrong in ({"keep": 0}, {"keep": True}, {"keep": 1.5}, {"keep_for": 0}, {"keep_for": "soon"}):
        with pytest.raises(TopologyError, match="keep"):
            region_settings(**wrong)  # type: ignore[arg-type]


# --- collecting -------------------------------------------------------------------------------------------------------


def test_pieces_go_with_the_last_epoch_that_needs_them() -> None:
    store = owned()
    fabricated.publish(store, 1, {"a", "b"})
    fabricated.publish(store, 2, {"b", "c"})
    fabricated.publish(store, 3, {"c", "d"})
    assert Collector(store, REGION, Retention(2)).collect() == Collected((Epoch(1),), 1)
    assert stored(store) == {"b", "c", "d"}
    assert store.epochs(REGION) == [2, 3]


def test_an_ordinary_collection_lists_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = owned()
    collector = Collector(store, REGION, Retention(1))
    fabricated.publish(store, 1, {"a"})
    collector.collect(0.0)
    fabricated.publish(store, 2, {"b"})
    monkeypatch.setattr(store, "keys", lambda entry: pytest.fail("listed an entry"))
    monkeypatch.setattr(store, "entries", lambda: pytest.fail("listed the store"))
    assert collector.collect(0.0) == Collected((Epoch(1),), 1)
    assert collector.collect(0.0) == Collected()


def test_what_an_abandoned_epoch_left_goes_after_the_reset() -> None:
    store = owned()
    collector = Collector(store, REGION)
    fabricated.publish(store, 1, {"a"})
    collector.collect(0.0)
    fabricated.put(store, {"half"})
    collector.sweep_next()
    assert collector.collect(0.0) == Collected((), 1)
    assert stored(store) == {"a"}


@pytest.mark.fault("S15")
def test_pieces_of_an_upload_under_way_stay() -> None:
    store = owned()
    fabricated.publish(store, 1, {"a"})
    fabricated.put(store, {"e2-a1-x", "e1-a1-old"})
    Collector(store, REGION).collect(under_way=["e2-a1-"])
    assert stored(store) == {"a", "e2-a1-x"}


def test_a_savepoint_outlives_retention_until_its_name_is_deleted() -> None:
    store = owned()
    names = Savepoints(store, REGION)
    fabricated.publish(store, 1, {"a"})
    names.add("kept", Epoch(1), 0.0)
    for epoch in (2, 3, 4):
        fabricated.publish(store, epoch, {f"p{epoch}"})
    Collector(store, REGION, Retention(1)).collect()
    assert (store.epochs(REGION), stored(store)) == ([1, 4], {"a", "p4"})
    names.remove("kept")
    Collector(store, REGION, Retention(1)).collect()
    assert (store.epochs(REGION), stored(store)) == ([4], {"p4"})


def test_other_regions_are_not_touched() -> None:
    store = owned()
    fabricated.publish(store, 1, {"a"})
    store.create_entry("op@another")
    store.put("op@another", {"x": b""})
    Collector(store, REGION).collect()
    assert store.keys("op@another") == ["x"]


@pytest.mark.fault("S17")
def test_a_damaged_manifest_stops_a_collection_before_it_deletes_anything() -> None:
    store = owned()
    for epoch in range(1, 6):
        fabricated.publish(store, epoch, {f"p{epoch}"})
    with store._db.changing() as connection:  # type: ignore[attr-defined]
        database.put(connection, "epochs", REGION, 3, value=b"holdfast-manifest 1 crc32=00000000\n{}")
    with pytest.raises(DamagedError, match="epoch 3"):
        Collector(store, REGION, Retention(1)).collect()
    assert len(store.epochs(REGION)) == len(stored(store)) == 5


def test_prune_refuses_a_store_that_a_run_owns_and_says_how_to_stop_it() -> None:
    store = owned()
    fabricated.publish(store, 1, {"a"})
    other = MemoryStore(store.name)  # type: ignore[attr-defined]
    with pytest.raises(OwnedError, match="holdfast stop"):
        prune(other, Retention(), None, 0.0)
    assert prune(other, Retention(), None, 0.0, dry_run=True) == {REGION: Collected()}


def test_a_run_keeps_what_its_region_says(books: Books) -> None:
    store = open_store(books.store)
    for settings, left in (({"keep": 1, "keep_for": 3600}, 3), ({"keep": 2}, 2), ({"keep": 1}, 1)):
        for _ in range(3):
            books.add(2)
            books.run(settings=settings)
        assert len(store.epochs(RegionName(BOOKS))) == left
    assert books.totals() == books.expected_totals()


# --- killed -----------------------------------------------------------------------------------------------------------


def make(kind: str, here: Path) -> Store:
    return FileStore(here / "store") if kind == "files" else SqliteStore(here / "store.db")


def killed_while_collecting(kind: str, here: Path, failpoint: str) -> None:
    """A child that collects and is killed at a failpoint, which must fire."""
    pid = os.fork()
    if pid == 0:
        try:
            failpoints.arm(failpoint)
            store = make(kind, here)
            store.acquire()
            Collector(store, REGION, Retention(2)).collect()
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"{failpoint} did not fire"
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.fault("S16")
def test_prune_killed_before_any_call_that_changes_the_disk_loses_nothing(here: Path) -> None:
    store = owned(make("files", here))
    for epoch in range(1, 5):
        fabricated.publish(store, epoch, {"base", f"p{epoch}"})
    store.release()
    kills = 0
    for place, code in kill_at_every_call(
        here / "store", here / "copies", lambda place: prune(FileStore(place), Retention(2), None, 0.0)
    ):
        after = FileStore(place)
        assert {"base", "p3", "p4"} <= set(after.keys(ENTRY))
        assert {3, 4} <= set(after.epochs(REGION))
        prune(after, Retention(2), None, 0.0)
        assert set(after.keys(ENTRY)) == {"base", "p3", "p4"}
        assert after.epochs(REGION) == [3, 4]
        kills += code != 0
    assert kills > 10


MANIFESTS, PER_ENTRY = 3, 2
"""How often gc.delete is hit: once per manifest; per entry by the collector and by the store."""

KILLS = ["gc.list=kill", "gc.select=kill", "gc.pieces=kill"]
KILLS += [f"gc.delete=kill@{hit}" for hit in range(1, MANIFESTS + PER_ENTRY + 1)]


@pytest.mark.parametrize("kind", ["files", "sqlite"])
@pytest.mark.parametrize("failpoint", KILLS)
@pytest.mark.fault("S16")
def test_a_collection_killed_anywhere_is_finished_by_the_next_one(
    kind: str, failpoint: str, here: Path
) -> None:
    store = owned(make(kind, here))
    for epoch in range(1, 7):
        fabricated.publish(store, epoch, {"base", f"p{epoch}"})
    Savepoints(store, REGION).add("kept", Epoch(2), 0.0)
    store.release()
    store.close()
    killed_while_collecting(kind, here, failpoint)
    after = make(kind, here)
    needed = {"base", "p2", "p5", "p6"}
    assert needed <= set(after.keys(ENTRY))
    assert {2, 5, 6} <= set(after.epochs(REGION))
    assert set(savepoints.read(after, REGION)) == {"kept"}
    after.acquire()
    Collector(after, REGION, Retention(2)).collect()
    assert set(after.keys(ENTRY)) == needed
    assert after.epochs(REGION) == [2, 5, 6]
    after.release()
