"""Who may write: races, killed owners, stopped owners that wake up after a take-over. For both durable stores."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.errors import FencedError, OwnedError
from holdfast.store import locks, sealed_file
from holdfast.store.base import Store
from holdfast.store.files import lease

from .children import NAMES, REGION, Child, at_call, make, operations, patched, prepare, state

OWNED, FENCED = OwnedError.exit_code, FencedError.exit_code
KINDS = ("files", "sqlite")

both = pytest.mark.parametrize("kind", KINDS)


def stop_myself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@both
@pytest.mark.fault("D01", "O10")
def test_of_two_processes_that_race_exactly_one_wins(kind: str, tmp_path: Path) -> None:
    for round_ in range(30):
        place = tmp_path / str(round_ // 5)  # new stores and stores with a dead owner
        place.mkdir(exist_ok=True)
        go_read, go = os.pipe()
        result, tell = os.pipe()
        end_read, end = os.pipe()

        def race(place: Path = place, fds: tuple[int, ...] = (go_read, go, tell, end_read, end)) -> None:
            os.close(fds[1])
            os.close(fds[4])
            os.read(fds[0], 1)
            try:
                store = make(kind, place)
                store.acquire()
            except OwnedError:
                os.write(fds[2], b"o")
                return
            os.write(fds[2], b"w")
            os.read(fds[3], 1)

        children = [Child(race) for _ in range(2)]
        os.close(go)
        answers = os.read(result, 1) + os.read(result, 1)
        os.close(end)
        assert [child.wait() for child in children] == [0, 0]
        assert sorted(answers.decode()) == ["o", "w"], f"round {round_}"
        for fd in (go_read, result, tell, end_read):
            os.close(fd)


@both
def test_a_killed_owner_is_replaced_at_once(kind: str, tmp_path: Path) -> None:
    child = Child(lambda: (make(kind, tmp_path).acquire(), os.kill(os.getpid(), signal.SIGKILL)))
    assert child.wait() == -signal.SIGKILL
    store = make(kind, tmp_path)
    owner = store.owner()
    assert owner is not None
    assert owner["pid"] == child.pid
    assert not owner["alive"]
    assert store.acquire() == 2
    store.close()


@both
@pytest.mark.fault("D04")
def test_a_live_process_id_proves_nothing(kind: str, tmp_path: Path) -> None:
    # The dead owner's record names this very process: alive, but not the owner.
    store = make(kind, tmp_path)
    store.acquire()
    store.close()
    again = make(kind, tmp_path)
    owner = again.owner()
    assert owner is not None
    assert owner["pid"] == os.getpid()
    assert not owner["alive"]
    assert again.acquire() == 2
    again.close()


@both
@pytest.mark.fault("P14")
def test_a_child_made_by_fork_does_not_keep_a_dead_owner_alive(kind: str, tmp_path: Path) -> None:
    read, write = os.pipe()
    ready, tell = os.pipe()

    def own_and_fork() -> None:
        store = make(kind, tmp_path)
        store.acquire()
        if os.fork() == 0:  # lives on until the test ends
            os.close(write)
            os.write(tell, b"r")
            os.read(read, 1)
            os._exit(0)
        os.read(ready, 1)
        os._exit(0)

    assert Child(own_and_fork).wait() == 0
    store = make(kind, tmp_path)
    assert store.acquire() == 2
    store.close()
    for fd in (write, read, ready, tell):
        os.close(fd)


def stopped_owner(kind: str, tmp_path: Path, act: Callable[[Store], object]) -> Child:
    """A child that owns the store and is expected to stop itself inside `act`."""
    child = Child(lambda: (store := make(kind, tmp_path), store.acquire(), act(store)))
    child.wait_until_stopped()
    return child


def assert_refused(kind: str, tmp_path: Path, child: Child) -> None:
    """Take over from a stopped owner, let it go on: it is refused and changes nothing."""
    store = make(kind, tmp_path)
    with pytest.raises(OwnedError, match=str(child.pid)):
        store.acquire()
    store.acquire(take_over=True)
    before = state(store)
    child.go_on()
    assert child.wait() == FENCED
    assert state(store) == before
    store.check_owner()
    assert store.accepts_writes()
    store.close()


def stopped_before_a_change_and_refused(kind: str, name: str, tmp_path: Path) -> None:
    prepare(kind, tmp_path)
    child = stopped_owner(kind, tmp_path, lambda store: (stop_myself(), operations(store, tmp_path)[name]()))
    assert_refused(kind, tmp_path, child)


def stopped_inside_publish_and_refused(kind: str, step: str, tmp_path: Path) -> list[int]:
    """The epochs that are there then."""
    prepare(kind, tmp_path)

    def act(store: Store) -> None:
        failpoints.arm(f"ckpt.manifest.{step}=stop")
        operations(store, tmp_path)["publish"]()
        store.check_owner()

    assert_refused(kind, tmp_path, stopped_owner(kind, tmp_path, act))
    return list(make(kind, tmp_path).epochs(REGION))


@both
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("D02", "O10")
def test_an_owner_stopped_before_a_change_is_refused_when_it_wakes(
    kind: str, name: str, tmp_path: Path
) -> None:
    stopped_before_a_change_and_refused(kind, name, tmp_path)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.fault("D02", "S13")
def test_an_owner_stopped_right_before_its_rename_is_refused(name: str, tmp_path: Path) -> None:
    prepare("files", tmp_path)

    def act(store: Store) -> None:
        # A segment is linked into the private directory first, then into place.
        number = 2 if name == "put_segment" else 1
        with patched() as monkeypatch:
            at_call(("rename", "link"), number, stop_myself, monkeypatch)
            operations(store, tmp_path)[name]()

    child = stopped_owner("files", tmp_path, act)
    assert_refused("files", tmp_path, child)


@pytest.mark.parametrize("step", ["tmp_written", "fsynced", "renamed"])
def test_an_owner_stopped_inside_publish_is_refused(step: str, tmp_path: Path) -> None:
    # After the rename the epoch was published before the take-over, and the new owner has seen it.
    found = stopped_inside_publish_and_refused("files", step, tmp_path)
    assert 2 in found if step == "renamed" else found == [1]


@pytest.mark.parametrize("step", ["tmp_written", "renamed"])
def test_an_owner_stopped_around_its_transaction_is_refused(step: str, tmp_path: Path) -> None:
    stopped_inside_publish_and_refused("sqlite", step, tmp_path)


def test_an_acquirer_stopped_anywhere_never_shares_the_store(tmp_path: Path) -> None:
    prepare("files", tmp_path)
    for number in range(1, 40):

        def act(number: int = number) -> None:
            store = make("files", tmp_path)
            with patched() as monkeypatch:
                at_call(
                    ("open", "fsync", "link", "mkdir", "rename", "unlink"), number, stop_myself, monkeypatch
                )
                store.acquire(take_over=True)
            store.save_record("r", b"late")

        child = Child(act)
        try:
            child.wait_until_stopped()
        except AssertionError:
            break
        store = make("files", tmp_path)
        store.acquire(take_over=True)
        store.save_record("r", b"mine")
        child.go_on()
        code = child.wait()
        if code == 0:  # it had not claimed its token yet: it took over later, as it was told to
            with pytest.raises(FencedError):
                store.save_record("r", b"mine")
        else:
            assert code in (OWNED, FENCED)
            assert store.load_record("r") == b"mine"
            store.check_owner()
        store.close()
    assert number > 8


@pytest.mark.fault("D03", "K06")
def test_a_deleted_lock_file_does_not_make_two_owners(tmp_path: Path) -> None:
    first = make("files", tmp_path)
    first.acquire()
    for path in (tmp_path / "store" / "owner").iterdir():
        path.unlink()
    second = make("files", tmp_path)
    assert second.acquire() == 2
    with pytest.raises(FencedError):
        first.save_record("r", b"")
    second.close()


def test_leftovers_of_dead_owners_are_removed(tmp_path: Path) -> None:
    prepare("files", tmp_path)
    root = tmp_path / "store"
    (root / "tmp" / f"{lease.DEAD}0000000001-x").mkdir()
    (root / "tmp" / lease.token_name(1) / "half").write_bytes(b"half a manifest")
    (root / "owner" / ".new-dead").write_bytes(b"")
    store = make("files", tmp_path)
    store.acquire()
    assert sealed_file.list_directory(root / "tmp") == [lease.token_name(2)]
    assert sealed_file.list_directory(root / "owner") == [f"{lease.token_name(2)}.lock"]
    store.close()


def test_asking_whether_a_lock_is_held_does_not_hold_it(tmp_path: Path) -> None:
    with locks.new_lock(tmp_path, b"") as (path, file):
        assert locks.is_held(path)
        file.close()
        assert not locks.is_held(path)
    assert not locks.is_held(tmp_path / "absent")
