"""Savepoints: named epochs, on a store at rest and in a running job."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import fabricated
import pytest
from books import REGION as BOOKS
from books import Books
from fabricated import REGION
from killing import kill_at_every_call

from holdfast import failpoints
from holdfast.checkpoint import savepoints
from holdfast.checkpoint.change import offline
from holdfast.checkpoint.look.epochs import newest_manifest, read_manifest
from holdfast.checkpoint.savepoints import Savepoints
from holdfast.errors import ConfigError, DamagedError, MismatchError, RegionParkedError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.files.file_store import FileStore
from holdfast.store.memory import MemoryStore
from holdfast.store.urls import open_store

WHERE = RegionName(BOOKS)
PATIENCE_S = 30.0
OFTEN = {"trigger": "periodic", "period": 0.05}


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.open("t")
    made.acquire()
    for epoch in (1, 2, 3):
        fabricated.publish(made, epoch, {f"p{epoch}"})
    return made


# --- names ------------------------------------------------------------------------------------------------------------


def test_a_name_stands_for_an_epoch_until_it_is_deleted(store: MemoryStore) -> None:
    names = Savepoints(store, REGION)
    names.add("before-change", Epoch(2), 5.0)
    names.add("first", Epoch(1), 6.0)
    assert [(p.name, p.epoch) for p in savepoints.read(store, REGION).values()] == [
        ("first", 1), ("before-change", 2),
    ]  # fmt: skip
    assert savepoints.names_by_epoch(store, REGION) == {1: "first", 2: "before-change"}
    names.remove("first")
    assert set(savepoints.read(MemoryStore(store.name), REGION)) == {"before-change"}


@pytest.mark.parametrize("name", ["", "../x", "a b", ".hidden", "12", "x" * 101, "a/b", "naïve"])
def test_a_name_that_is_not_safe_or_looks_like_an_epoch_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        savepoints.check_name(name)


def test_a_name_is_given_once(store: MemoryStore) -> None:
    names = Savepoints(store, REGION)
    names.add("a", Epoch(1), 0.0)
    with pytest.raises(ConfigError, match="already: epoch 1"):
        names.add("a", Epoch(2), 0.0)


def test_an_epoch_that_is_not_there_gets_no_name(store: MemoryStore) -> None:
    with pytest.raises(ConfigError, match="no epoch 9"):
        Savepoints(store, REGION).add("a", Epoch(9), 0.0)
    assert savepoints.read(store, REGION) == {}


def test_deleting_a_name_that_is_not_there_lists_those_that_are(store: MemoryStore) -> None:
    Savepoints(store, REGION).add("a", Epoch(1), 0.0)
    with pytest.raises(ConfigError, match=r"no savepoint 'b'.*Savepoints are a"):
        Savepoints(store, REGION).remove("b")


def test_a_record_that_holds_no_savepoints_is_damage_and_a_newer_one_is_refused(store: MemoryStore) -> None:
    store.save_record(f"savepoints.{REGION}", b'{"format": 1, "savepoints": {"a": 3}}')
    with pytest.raises(DamagedError, match="does not hold savepoints"):
        savepoints.read(store, REGION)
    store.save_record(f"savepoints.{REGION}", b'{"format": 2}')
    with pytest.raises(MismatchError, match="format 2"):
        savepoints.read(store, REGION)


def test_a_store_at_rest_names_its_newest_epoch(store: MemoryStore) -> None:
    store.release()
    [point] = offline.name_newest(store, "now", None, 1.0)
    assert (point.epoch, store.owner()) == (3, None)
    assert [p.name for p in offline.delete_name(store, "now", None)] == ["now"]


def test_naming_killed_before_any_call_that_changes_the_disk_leaves_a_name_with_its_epoch_or_none(
    here: Path,
) -> None:
    store = FileStore(here / "store")
    store.open("t")
    store.acquire()
    fabricated.publish(store, 1, {"a"})
    store.release()
    seen = set()
    for place, _ in kill_at_every_call(
        here / "store", here / "copies", lambda place: offline.name_newest(FileStore(place), "now", None, 0.0)
    ):
        found = savepoints.read(FileStore(place), REGION)
        assert all(point.epoch == 1 for point in found.values())
        seen.add(tuple(found))
    assert seen == {(), ("now",)}


# --- a running job ----------------------------------------------------------------------------------------------------


def bring_to_epoch(books: Books, job: object, epoch: int) -> None:
    """New rows again and again: without any there are no epochs."""
    deadline = time.monotonic() + PATIENCE_S
    while job.status()["regions"][BOOKS]["epoch"] < epoch:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        books.add(1)
        time.sleep(0.02)


def test_a_running_job_establishes_an_epoch_with_nothing_in_flight_and_keeps_it(books: Books) -> None:
    books.add(80)
    job = books.submit(settings=OFTEN | {"mode": "async", "keep": 1})
    try:
        epoch = job.savepoint("first", timeout=PATIENCE_S)[BOOKS]
        bring_to_epoch(books, job, epoch + 3)
        with pytest.raises(ConfigError, match="already"):
            job.savepoint("first")
        with pytest.raises(ConfigError, match="no region 'other'"):
            job.savepoint("x", region="other")
    finally:
        job.stop()
    with pytest.raises(ConfigError, match="has ended"):
        job.savepoint("late")
    store = open_store(books.store)
    assert store.epochs(WHERE)[0] == epoch
    assert len(store.epochs(WHERE)) == 2
    parts = read_manifest(store, WHERE, Epoch(epoch)).parts.values()
    assert not any(batches for part in parts for batches in part.kept.values())
    assert any(e.kind == "savepoint.named" and e.data["epoch"] == epoch for e in store.events())


def test_a_name_passes_on_to_the_next_epoch_if_one_is_abandoned(books: Books) -> None:
    books.add(10)
    job = books.submit()
    try:
        failpoints.arm("ckpt.manifest.tmp_written=raise")
        epochs = job.savepoint("stubborn", timeout=PATIENCE_S)
        assert failpoints.fired() == {"ckpt.manifest.tmp_written": 1}
    finally:
        job.stop()
    assert savepoints.read(open_store(books.store), WHERE)["stubborn"].epoch == epochs[BOOKS] >= 2


def test_a_name_that_could_not_be_recorded_is_reported_and_the_run_goes_on(books: Books) -> None:
    books.add(10)
    job = books.submit()
    try:
        failpoints.arm("savepoint.name=raise")
        with pytest.raises(StoreError, match="was not made"):
            job.savepoint("unlucky", timeout=PATIENCE_S)
        assert job.savepoint("unlucky", timeout=PATIENCE_S)[BOOKS] > 1
    finally:
        job.stop()


def test_a_parked_region_says_that_it_makes_no_savepoint(books: Books) -> None:
    books.add(10)
    failpoints.arm("sink.commit.begin=raise@1+")
    job = books.submit(settings=OFTEN | {"max_consecutive_resets": 1})
    try:
        with pytest.raises(RegionParkedError):
            job.await_termination(PATIENCE_S)
        with pytest.raises(ConfigError, match="parked"):
            job.savepoint("never")
    finally:
        failpoints.disarm()
        job.close()


PROGRAM = """
import sys
sys.path.insert(0, {directory!r})
from pathlib import Path
from books import Books
from holdfast import failpoints
books = Books(Path({root!r}))
job = books.submit()
failpoints.arm("savepoint.name=kill")
job.savepoint("lost")
"""


def test_a_driver_killed_between_publishing_and_naming_leaves_no_name(books: Books) -> None:
    books.add(20)
    text = PROGRAM.format(directory=str(Path(__file__).parent), root=str(books.root))
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = open_store(books.store)
    newest = newest_manifest(store, WHERE).epoch
    assert savepoints.read(store, WHERE) == {}
    [point] = offline.name_newest(store, "lost", None, 0.0)
    assert point.epoch == newest
