"""The newest epoch is damaged: a run goes back behind it only if every sink proves that nothing of it is visible."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "checkpoint"))

from books import REGION, Books

from holdfast import failpoints
from holdfast.checkpoint.change import offline
from holdfast.checkpoint.look.epochs import read_manifest
from holdfast.errors import DamagedError, RegionParkedError
from holdfast.ids import Epoch, RegionName
from holdfast.store.files.file_store import FileStore

WHERE = RegionName(REGION)
SINKS = 2


@pytest.fixture
def books() -> Iterator[Books]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=where) as name:
        yield Books(Path(name))
    failpoints.disarm()


def broken_off(books: Books, failpoint: str) -> Books:
    """Epoch 1 is visible; epoch 2 is published, and showing it fails for ever at a failpoint."""
    books.add(30)
    books.run()
    books.add(12)
    first = 1 + SINKS if failpoint == "sink.commit.begin" else 1  # restoring epoch 1 begins to show it again
    failpoints.arm(f"{failpoint}=raise@{first}+")
    with pytest.raises(RegionParkedError):
        books.run(settings={"max_consecutive_resets": 1})
    failpoints.disarm()
    assert FileStore(books.root / "store").epochs(WHERE) == [1, 2]
    return books


def segments(books: Books, epoch: int) -> set[Path]:
    store = FileStore(books.root / "store")
    pieces = read_manifest(store, WHERE, Epoch(epoch)).pieces()
    return {store.segment_path(*p.place) for p in pieces if p.kind == "segment"}


def damage(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    return path


def damage_newest_only(books: Books) -> Path:
    return damage(min(segments(books, 2) - segments(books, 1)))


def snapshot(root: Path) -> dict[str, bytes]:
    kept = ("store/owner", "store/events", "store/tmp")
    return {
        name: path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not (name := path.relative_to(root).as_posix()).startswith(kept)
    }


def refused(books: Books, *words: str) -> None:
    before = snapshot(books.root)
    with pytest.raises(DamagedError) as caught:
        books.run()
    for word in words:
        assert word in str(caught.value)
    assert snapshot(books.root) == before


@pytest.mark.fault("C03", "O08")
def test_an_epoch_that_was_never_visible_is_withdrawn_and_its_rows_come_again(
    books: Books, caplog: pytest.LogCaptureFixture
) -> None:
    broken_off(books, "sink.commit.begin")
    path = damage_newest_only(books)
    with caplog.at_level(logging.WARNING, "holdfast"):
        books.run()
    assert any(path.name in r.message and "withdrawn" in r.message for r in caplog.records)
    assert books.ledger() == [(n + 1, n) for n in range(42)]
    assert books.totals() == books.expected_totals()
    store = FileStore(books.root / "store")
    assert store.epochs(WHERE)[0] == 1
    assert 2 not in store.epochs(WHERE)
    [event] = [e.data for e in store.events() if e.kind == "epoch.withdrawn"]
    assert (event["epoch"], event["to"]) == (2, 1)
    assert path.name in event["reason"]


def test_a_run_killed_right_after_going_back_goes_on_from_there(books: Books) -> None:
    broken_off(books, "sink.commit.begin")
    damage_newest_only(books)
    failpoints.arm("reset.sink.rollback=raise@1+")  # the epoch is withdrawn, and so is its staged output
    with pytest.raises(RegionParkedError):
        books.run(settings={"max_consecutive_resets": 1})
    failpoints.disarm()
    books.run()
    assert books.ledger() == [(n + 1, n) for n in range(42)]


@pytest.mark.fault("C02", "O06")
def test_an_epoch_of_which_something_is_visible_is_refused_with_the_file_and_the_choices(
    books: Books,
) -> None:
    broken_off(books, "sink.commit.applied")
    path = damage_newest_only(books)
    refused(books, path.name, "holdfast checkpoints verify", "holdfast checkpoints fork", "older epoch 1")


@pytest.mark.fault("C02")
def test_an_epoch_that_is_visible_as_a_whole_is_refused(books: Books) -> None:
    books.add(30)
    books.run()
    books.add(12)
    books.run()
    refused(books_with(books, damage_newest_only), "older epoch 1")


def books_with(books: Books, change: object) -> Books:
    change(books)  # type: ignore[operator]
    return books


@pytest.mark.fault("C02")
def test_a_damaged_manifest_is_refused_since_nobody_knows_what_it_was_to_show(books: Books) -> None:
    broken_off(books, "sink.commit.begin")
    damage(books.root / "store" / "epochs" / REGION / "000000000002.manifest")
    refused(books, "000000000002.manifest", "older epoch 1")


def test_a_savepoint_is_not_withdrawn(books: Books) -> None:
    broken_off(books, "sink.commit.begin")
    offline.name_newest(FileStore(books.root / "store"), "relied-on", None, 0.0)
    damage_newest_only(books)
    refused(books, "older epoch 1")


def test_if_the_epoch_before_is_damaged_too_nothing_is_withdrawn(books: Books) -> None:
    broken_off(books, "sink.commit.begin")
    shared = segments(books, 2) & segments(books, 1)
    damage(min(shared or segments(books, 1)))
    damage_newest_only(books)
    refused(books, "Restore the file")


def test_the_only_epoch_is_withdrawn_to_the_initial_state_if_nothing_of_it_is_visible(books: Books) -> None:
    books.add(15)
    failpoints.arm("sink.commit.begin=raise@1+")
    with pytest.raises(RegionParkedError):
        books.run(settings={"max_consecutive_resets": 1})
    failpoints.disarm()
    damage(min(segments(books, 1)))
    books.run()
    assert books.ledger() == [(n + 1, n) for n in range(15)]
    assert books.totals() == books.expected_totals()
