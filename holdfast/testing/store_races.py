"""The suite for stores that several processes can reach: who wins, and what a loser can still do. As its base.

class TestMyStore(RacingStores):
    def make_store(self, tmp_path: Path) -> Store: ...
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.durable import checksum
from holdfast.errors import FencedError, HoldfastError, OwnedError, StoreError
from holdfast.ids import Epoch
from holdfast.store.base import Store
from holdfast.testing.store_conformance import REGION, StoreConformance

Child = multiprocessing.context.ForkProcess
_PATIENCE_S = 30.0


class RacingStores(StoreConformance):
    """Everything a store must do, and what it must not do when two processes want it."""

    def test_of_processes_that_come_at_once_one_becomes_the_owner(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).close()
        go = tmp_path / "go"
        children = [_fork(lambda: self._try_to_own(tmp_path, go)) for _ in range(3)]
        go.touch()
        codes = sorted(_wait(child) for child in children)
        assert codes == [0, OwnedError.exit_code, OwnedError.exit_code]

    def _try_to_own(self, tmp_path: Path, go: Path) -> None:
        store = self.open_store(tmp_path)
        _until(go.exists)
        try:
            store.acquire()
            (tmp_path / "tried").open("ab").write(b"o")
            _until(lambda: (tmp_path / "tried").stat().st_size == 3)
        except HoldfastError:
            (tmp_path / "tried").open("ab").write(b"x")
            raise

    def test_a_replaced_owner_in_another_process_publishes_nothing_more(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).close()
        reports = tmp_path / "reports"
        reports.touch()
        child = _fork(lambda: self._publish_on_and_on(tmp_path, reports))
        try:
            _until(lambda: reports.stat().st_size >= 5)
            store = self.open_store(tmp_path)
            store.acquire(take_over=True)
            seen = store.epochs(REGION)
            store.publish(REGION, Epoch(seen[-1] + 1), b"mine")
        except BaseException:
            child.kill()
            raise
        assert _wait(child) == FencedError.exit_code
        assert store.epochs(REGION) == [*seen, seen[-1] + 1]
        assert store.manifest(REGION, Epoch(seen[-1] + 1)) == b"mine"
        assert len(seen) >= reports.stat().st_size, "an epoch was reported as published and is not there"

    def _publish_on_and_on(self, tmp_path: Path, reports: Path) -> None:
        store = self.open_store(tmp_path)
        store.acquire()
        store.create_entry("entry")
        epoch = 0
        with reports.open("ab", buffering=0) as report:
            while epoch < 20_000:
                store.put("entry", {f"k{epoch % 10}": b"v"})
                store.publish(REGION, Epoch(epoch), b"theirs")
                report.write(b".")
                epoch += 1

    def test_readers_see_what_is_published_and_do_not_disturb_the_owner(
        self, store: Store, tmp_path: Path
    ) -> None:
        store.publish(REGION, Epoch(1), b"one")
        store.put("entry", {"k": b"v"})
        child = _fork(lambda: self._only_read(tmp_path))
        assert _wait(child) == 0
        store.check_owner()
        store.publish(REGION, Epoch(2), b"two")

    def _only_read(self, tmp_path: Path) -> None:
        reader = self.make_store(tmp_path)
        assert reader.epochs(REGION) == [1]
        assert reader.manifest(REGION, Epoch(1)) == b"one"
        assert reader.get("entry", "k") == b"v"
        owner = reader.owner()
        assert owner is not None
        assert owner["alive"]
        for change in self.changes(reader, tmp_path):
            with pytest.raises(HoldfastError):
                change()
        reader.close()

    def test_executors_write_under_the_owners_token_until_it_is_replaced(
        self, store: Store, tmp_path: Path
    ) -> None:
        if not store.executors_may_write:
            with pytest.raises(StoreError, match="driver only"):
                store.segment_writer()
            return
        data = bytes(range(256)) * 20_000
        local = tmp_path / "local.seg"
        local.write_bytes(data)
        write = pickle.loads(pickle.dumps(store.segment_writer()))
        ref = write("entry", "s1", local, checksum(data))
        store.fetch_segment(ref, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data
        newer = self.open_store(tmp_path)
        newer.acquire(take_over=True)
        with pytest.raises(FencedError):
            write("entry", "s2", local, checksum(data))
        assert newer.keys("entry") == ["s1"]

    def test_an_owner_that_was_killed_is_replaced_at_once(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).close()
        child = _fork(lambda: self._own_and_die(tmp_path))
        assert _wait(child) == -9
        store = self.open_store(tmp_path)
        owner = store.owner()
        assert owner is not None
        assert not owner["alive"]
        assert store.acquire() > owner["token"]

    def _own_and_die(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).acquire()
        os.kill(os.getpid(), 9)


def _fork(work: Callable[[], object]) -> Child:
    """A child that runs `work` and ends with the exit code of the error it ran into."""

    def run() -> None:
        try:
            work()
        except HoldfastError as error:
            os._exit(error.exit_code)

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    return child


def _wait(child: Child) -> int:
    """The exit code of a child, or minus the number of the signal that ended it."""
    child.join(_PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        raise AssertionError("a child did not come to an end")
    return child.exitcode


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain")
        time.sleep(0.002)
