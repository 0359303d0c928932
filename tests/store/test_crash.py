"""Killed at any step, or failed by any call of the operating system: the store is old or new, never in between."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.durable import NotDurableError
from holdfast.errors import HoldfastError, NoSpaceError, StoreError
from holdfast.ids import Epoch
from holdfast.store.base import Store
from holdfast.store.files import packs
from holdfast.store.files.file_store import FileStore

from .children import (
    CALLS,
    NAMES,
    REGION,
    TOPOLOGY,
    Child,
    at_call,
    make,
    operations,
    patched,
    prepare,
    state,
    token_after_a_kill,
)

Change = Callable[[Store], object]


def before_and_after(
    kind: str, tmp_path: Path, change: Change
) -> tuple[dict[str, object], dict[str, object]]:
    """The two states a failed change may leave."""
    place = tmp_path / "model"
    place.mkdir()
    prepare(kind, place)
    store = make(kind, place)
    store.acquire()
    old = state(store)
    change(store)
    new = state(store)
    store.close()
    return old, new


def by_name(name: str, tmp_path: Path) -> Change:
    return lambda store: operations(store, tmp_path)[name]()


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def a_place(tmp_path: Path, number: int) -> Path:
    place = tmp_path / str(number)
    place.mkdir()
    return place


def killed_at_call(place: Path, calls: tuple[str, ...], number: int, change: Change) -> int:
    """The exit code of an owner that is killed at the `number`-th of these calls, or comes to the end of the change."""
    prepare("files", place)

    def act() -> None:
        store = make("files", place)
        store.acquire()
        with patched() as monkeypatch:
            at_call(calls, number, kill_myself, monkeypatch)
            change(store)

    return Child(act).wait()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("S06")
def test_files_killed_at_any_call_leave_the_old_state_or_the_new(name: str, tmp_path: Path) -> None:
    change = by_name(name, tmp_path)
    allowed = before_and_after("files", tmp_path, change)
    for number in range(1, 200):
        place = a_place(tmp_path, number)
        code = killed_at_call(place, CALLS, number, change)
        store = make("files", place)
        store.acquire()
        found = state(store)
        assert found in allowed, f"killed at call {number}"
        operations(store, place)["save_record"]()  # and it can go on
        store.close()
        if code == 0:
            assert found == allowed[1]
            break
        assert code == -signal.SIGKILL
    assert number > 3


@pytest.mark.parametrize("kind", ["files", "sqlite"])
@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("publish", "ckpt.manifest.tmp_written"), ("publish", "ckpt.manifest.fsynced"),
        ("publish", "ckpt.manifest.renamed"), ("publish", "ckpt.dir.fsynced"), ("put", "ckpt.op.put"),
        ("put", "ckpt.op.put_done"), ("put_segment", "ckpt.op.put"), ("put_segment", "ckpt.op.put_done"),
        ("delete", "gc.delete"), ("delete_epoch", "gc.delete"), ("delete_entry", "gc.delete"),
    ],
)  # fmt: skip
@pytest.mark.fault("S06", "K03")
def test_killed_at_a_failpoint_the_state_is_old_or_new(
    kind: str, name: str, point: str, tmp_path: Path
) -> None:
    change = by_name(name, tmp_path)
    allowed = before_and_after(kind, tmp_path, change)
    prepare(kind, tmp_path)

    def act() -> None:
        store = make(kind, tmp_path)
        store.acquire()
        failpoints.arm(f"{point}=kill")
        change(store)

    assert Child(act).wait() == -signal.SIGKILL
    store = make(kind, tmp_path)
    store.acquire()
    late = point in ("ckpt.manifest.renamed", "ckpt.dir.fsynced", "ckpt.op.put_done")
    assert state(store) == allowed[late]
    store.close()


@pytest.mark.parametrize("point", ["lease.acquire", "lease.acquired"])
@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_killed_while_acquiring_the_next_one_acquires(kind: str, point: str, tmp_path: Path) -> None:
    assert token_after_a_kill(kind, point, tmp_path) == (2 if point == "lease.acquired" else 1)


def fail_with(code: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "link", "open"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("S02", "S04", "S07")
def test_any_call_may_fail(name: str, call: str, code: int, tmp_path: Path) -> None:
    change = by_name(name, tmp_path)
    allowed = before_and_after("files", tmp_path, change)
    for number in range(1, 100):
        place = a_place(tmp_path, number)
        prepare("files", place)
        store = make("files", place)
        token = store.acquire()
        failure: HoldfastError | None = None
        with patched() as monkeypatch:
            calls = at_call((call,), number, fail_with(code), monkeypatch)
            try:
                change(store)
            except HoldfastError as error:
                failure = error
        found = state(make("files", place))
        assert found in allowed
        if failure is None:
            assert found == allowed[1]
        if isinstance(failure, NoSpaceError):
            assert found == allowed[0]
            assert list((place / "store" / "tmp" / f"{token:010d}").iterdir()) == []
            change(store)  # space is back
            assert state(store) == allowed[1]
        store.close()
        if calls[0] < number:
            return
        assert failure is None or isinstance(failure, StoreError)
    raise AssertionError("there was always one more call to fail")


@pytest.mark.fault("S02")
def test_a_failed_fsync_is_never_repeated(tmp_path: Path) -> None:
    store = make("files", tmp_path)
    store.acquire()
    synced: list[int] = []

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        raise OSError(errno.EIO, "dropped pages")

    with patched() as monkeypatch:
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(StoreError):
            store.publish(REGION, Epoch(1), b"one")
        assert len(synced) == 1
    assert store.epochs(REGION) == []
    store.close()


@pytest.mark.fault("S02", "S06")
def test_a_published_epoch_whose_directory_fails_to_sync_is_reported_not_repeated(tmp_path: Path) -> None:
    store = make("files", tmp_path)
    store.acquire()
    store.publish(REGION, Epoch(1), b"one")
    failpoints.arm("ckpt.manifest.renamed=enospc")
    with pytest.raises(NotDurableError):
        store.publish(REGION, Epoch(2), b"two")
    store.close()
    assert make("files", tmp_path).epochs(REGION) == [1, 2]


@pytest.mark.parametrize("call", ["rename", "fsync", "write", "unlink"])
def test_shortening_a_chain_survives_a_kill(call: str, tmp_path: Path) -> None:
    def fill(store: Store) -> None:
        with patched() as monkeypatch:
            monkeypatch.setattr(packs, "PACKS_MAX", 4)
            for step in range(6):
                store.put("entry", {"k": bytes([step]), f"k{step}": b"x"})
                store.append_events([("done", {"step": step})])

    for number in range(1, 60):
        place = a_place(tmp_path, number)
        code = killed_at_call(place, (call,), number, fill)
        reader = FileStore(place / "store")
        steps = [event.data["step"] for event in reader.events() if event.kind == "done"]
        last = max(steps, default=-1)
        value = reader.get("entry", "k")
        allowed = (b"old" if last < 0 else bytes([last]), bytes([last + 1]))
        assert value in allowed
        assert all(reader.get("entry", f"k{step}") == b"x" for step in steps)
        assert reader.get("entry", "other") == b"x"
        if code == 0:
            break
    assert number > 2


def test_a_store_killed_while_it_is_made_can_be_made(tmp_path: Path) -> None:
    for number in range(1, 100):
        place = a_place(tmp_path, number)

        def act(place: Path = place, number: int = number) -> None:
            with patched() as monkeypatch:
                at_call(CALLS, number, kill_myself, monkeypatch)
                FileStore(place / "store").open(TOPOLOGY)

        code = Child(act).wait()
        store = make("files", place)
        assert store.acquire() == 1
        store.close()
        if code == 0:
            break
    assert number > 10
