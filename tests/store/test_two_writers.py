"""Several processes write one SQLite store at once: its owner, whoever posts letters, and an owner that has been replaced but does not know it
yet. The file grows under all of them; whatever was acknowledged is there, and nothing else."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from faults import fired

from holdfast.durable import checksum
from holdfast.errors import FencedError, OwnedError
from holdfast.ids import Epoch, OwnerToken
from holdfast.store.sqlite.sqlite_store import SqliteStore

from .children import REGION, Child, make

EPOCHS, LETTERS, POSTERS = 60, 50, 3
BYTES = 20_000


def value(epoch: int, token: int = 1) -> bytes:
    """Different for each epoch and owner, and large enough that the file grows."""
    return random.Random(f"{epoch} {token}").randbytes(BYTES)


def write(store: SqliteStore, token: int, begin: int, end: int, acknowledged: int, here: Path) -> None:
    """Epochs with a pair and a segment each; their numbers go into a pipe once they are published."""
    for epoch in range(begin, end):
        data = value(epoch, token)
        local = here / f"local-{token}"
        local.write_bytes(data)
        store.put("entry", {f"k{epoch}-{token}": data})
        store.put_segment("entry", f"s{epoch}-{token}", local, checksum(data))
        store.publish(REGION, Epoch(epoch), data[:100])
        os.write(acknowledged, epoch.to_bytes(2, "big"))


def told(pipe: int) -> list[int]:
    data = b""
    while piece := os.read(pipe, 1 << 16):
        data += piece
    return [int.from_bytes(data[n : n + 2], "big") for n in range(0, len(data), 2)]


def check(here: Path, owners: dict[int, int]) -> None:
    """`owners`: which owner published an epoch."""
    store = make("sqlite", here)
    assert isinstance(store, SqliteStore)
    store._db.verify()
    assert store.epochs(REGION) == sorted(owners)
    for epoch, token in owners.items():
        data = value(epoch, token)
        assert store.manifest(REGION, Epoch(epoch)) == data[:100]
        assert store.get("entry", f"k{epoch}-{token}") == data
    store.close()


@pytest.mark.fault("K02")
def test_an_owner_and_many_who_post_lose_nothing(tmp_path: Path) -> None:
    """One of those who post is killed; a reader looks all the time."""
    store = make("sqlite", tmp_path)
    assert isinstance(store, SqliteStore)
    store.acquire()
    store.create_entry("entry")
    posted, tell = os.pipe()

    def post(number: int) -> None:
        mine = make("sqlite", tmp_path)
        for letter in range(LETTERS):
            mine.post("stop", {"number": number, "letter": letter})
            os.write(tell, (number * LETTERS + letter).to_bytes(2, "big"))
            if number == 0 and letter == LETTERS // 2:
                os.kill(os.getpid(), signal.SIGKILL)

    def look() -> None:
        mine, seen = make("sqlite", tmp_path), 0
        while seen < EPOCHS:
            epochs = mine.epochs(REGION)
            assert len(epochs) >= seen
            seen = len(epochs)
            for epoch in epochs[-2:]:
                assert mine.manifest(REGION, epoch) == value(epoch)[:100]

    children = [Child(lambda number=number: post(number)) for number in range(POSTERS)]  # type: ignore[misc]
    reader = Child(look)
    os.close(tell)
    letters = []
    for epoch in range(1, EPOCHS + 1):
        write(store, 1, epoch, epoch + 1, os.open(os.devnull, os.O_WRONLY), tmp_path)
        letters += store.collect_mail()
    assert [child.wait() for child in children] == [-signal.SIGKILL, 0, 0]
    fired("a process killed while others write")
    assert reader.wait() == 0
    letters += store.collect_mail()
    store.close()
    found = [int(mail[1]["number"]) * LETTERS + int(mail[1]["letter"]) for mail in letters]
    assert len(set(found)) == len(found), "a letter came twice"
    assert set(told(posted)) <= set(found), "a letter that was posted is lost"
    for number in range(POSTERS):
        mine = [each for each in found if each // LETTERS == number]
        assert mine == sorted(mine)
    check(tmp_path, dict.fromkeys(range(1, EPOCHS + 1), 1))


@pytest.mark.fault("K02", "D02")
def test_an_owner_that_is_replaced_while_it_writes_harms_nothing(tmp_path: Path) -> None:
    """Both write as fast as they can; from the take-over on all that the older one tries is refused."""
    for round_ in range(5):
        here = tmp_path / str(round_)
        here.mkdir()
        store = make("sqlite", here)
        store.acquire()
        store.create_entry("entry")
        store.close()
        by_older, tell_older = os.pipe()
        by_newer, tell_newer = os.pipe()

        def older(here: Path = here, tell: int = tell_older) -> None:
            mine = make("sqlite", here)
            assert isinstance(mine, SqliteStore)
            assert mine.acquire() == OwnerToken(2)
            write(mine, 2, 1, 10_000, tell, here)

        def newer(
            here: Path = here, tell: int = tell_newer, first: int = by_older, some: int = 3 + round_
        ) -> None:
            os.read(first, 2 * some)
            mine = make("sqlite", here)
            assert isinstance(mine, SqliteStore)
            try:
                mine.acquire()
            except OwnedError:
                pass
            else:
                raise AssertionError("a living owner was replaced unasked")
            mine.acquire(take_over=True)
            begin = max(mine.epochs(REGION)) + 1
            write(mine, 3, begin, begin + 20, tell, here)

        first, second = Child(older), Child(newer)
        os.close(tell_older)
        os.close(tell_newer)
        assert second.wait() == 0
        assert first.wait() == FencedError.exit_code
        fired("an owner replaced while it writes")
        new = told(by_newer)
        os.close(by_older)
        check(here, {**dict.fromkeys(range(1, new[0]), 2), **dict.fromkeys(new, 3)})
