"""Child processes for store tests: made by fork, which takes milliseconds, and always reaped."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import failpoints
from holdfast.durable import checksum
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store
from holdfast.store.files.file_store import FileStore
from holdfast.store.redis.redis_store import RedisStore
from holdfast.store.sqlite.sqlite_store import SqliteStore

TOPOLOGY = "t"
REGION = RegionName("main")
UNEXPECTED = 99
CALLS = ("write", "fsync", "rename", "link", "open", "unlink", "mkdir")


class Child:
    """A forked process that runs `work` and exits with 0, or with the exit code of the error it ran into."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            code = UNEXPECTED
            try:
                work()
                code = 0
            except HoldfastError as error:
                code = error.exit_code
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def wait(self) -> int:
        """The exit code, or minus the number of the signal that ended it."""
        status = self._wait(0)
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def wait_until_stopped(self) -> None:
        status = self._wait(os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"ended with status {status} instead of stopping"

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _wait(self, options: int) -> int:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                return status
            time.sleep(0.001)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("the child did not come to an end")


def at_call(
    names: tuple[str, ...], number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Run `act` before the `number`-th call of any of the os functions. Returns a list that counts the calls."""
    calls = [0]

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **kwargs: object) -> object:
            calls[0] += 1
            if calls[0] == number:
                act()
            return real(*args, **kwargs)

        return called

    for name in names:
        monkeypatch.setattr(os, name, wrap(getattr(os, name)))
    return calls


@contextmanager
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch


def make(kind: str, tmp_path: Path) -> Store:
    """A store object, opened. `kind`: files, sqlite, or redis:PORT."""
    store: Store
    if kind.startswith("redis:"):
        store = RedisStore(f"redis://127.0.0.1:{kind[6:]}/0?name={tmp_path.name}")
    else:
        store = FileStore(tmp_path / "store") if kind == "files" else SqliteStore(tmp_path / "store.db")
    store.open(TOPOLOGY)
    return store


def prepare(kind: str, tmp_path: Path) -> None:
    """A store with something of everything in it, and no owner."""
    store = make(kind, tmp_path)
    store.acquire()
    store.create_entry("entry")
    store.put("entry", {"k": b"old", "other": b"x"})
    store.publish(REGION, Epoch(1), b"one")
    store.save_record("r", b"old")
    store.post("stop", {})
    local(tmp_path)
    store.put_segment("entry", "old.s", tmp_path / "local", checksum(b"segment"))
    store.append_events([("began", {})])
    store.close()


def local(tmp_path: Path) -> Path:
    path = tmp_path / "local"
    if not path.exists():
        path.write_bytes(b"segment")
    return path


def operations(store: Store, tmp_path: Path) -> dict[str, Callable[[], object]]:
    """Every kind of change, by name."""
    return {
        "publish": lambda: store.publish(REGION, Epoch(2), b"two"),
        "put": lambda: store.put("entry", {"k": b"new", "k2": b"new"}),
        "put_segment": lambda: store.put_segment("entry", "s", local(tmp_path), checksum(b"segment")),
        "save_record": lambda: store.save_record("r", b"new"),
        "delete": lambda: store.delete("entry", ["k"]),
        "delete_epoch": lambda: store.delete_epoch(REGION, Epoch(1)),
        "create_entry": lambda: store.create_entry("late"),
        "delete_entry": lambda: store.delete_entry("entry"),
        "collect_mail": store.collect_mail,
    }


def token_after_a_kill(kind: str, point: str, tmp_path: Path) -> int:
    """The token that the next owner gets when one was killed while it acquired the store."""
    child = Child(lambda: (failpoints.arm(f"{point}=kill"), make(kind, tmp_path).acquire()))
    assert child.wait() == -signal.SIGKILL
    store = make(kind, tmp_path)
    token = store.acquire()
    store.close()
    return token


NAMES = tuple(operations(FileStore("unused"), Path("unused")))


def state(store: Store) -> dict[str, object]:
    """What the store holds, by way of its readers, but for mail."""
    return {
        "entries": store.entries(),
        "pairs": {e: {k: store.get(e, k) for k in store.keys(e)} for e in store.entries()},
        "epochs": {e: store.manifest(REGION, e) for e in store.epochs(REGION)},
        "record": store.load_record("r"),
    }
