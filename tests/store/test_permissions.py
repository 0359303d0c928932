"""A place where others may write is no place for a store, and what a store makes is nobody else's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.store import permissions
from holdfast.store.urls import open_store


def opened(url: str) -> None:
    store = open_store(url)
    store.open("t")
    store.acquire()
    store.release()
    store.close()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
@pytest.mark.parametrize("inside", ["", "epochs", "mail"])
@pytest.mark.fault("SR13", "SR17")
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int, inside: str) -> None:
    opened(str(tmp_path / "store"))
    (tmp_path / "store" / inside).chmod(mode)
    if os.geteuid() == 0:
        os.chown(tmp_path / "store" / inside, 0, 12345)
    elif mode == 0o770:
        pytest.skip("only root can give a directory to another group")
    with pytest.raises(ConfigError, match=rf"may be written by others \(owner .*, mode {mode:04o}\)"):
        opened(str(tmp_path / "store"))
    (tmp_path / "store" / inside).chmod(0o750)
    opened(str(tmp_path / "store"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    opened(str(tmp_path / "store"))
    os.chown(tmp_path / "store", 12345, -1)
    with pytest.raises(ConfigError, match=r"belongs to another user \(owner 12345"):
        opened(str(tmp_path / "store"))


@pytest.mark.fault("SR05")
def test_an_sqlite_file_or_its_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    opened(f"sqlite:{tmp_path}/own/db")
    for path, mode in ((tmp_path / "own" / "db", 0o666), (tmp_path / "own", 0o777)):
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode)
        with pytest.raises(ConfigError, match="may be written by others"):
            opened(f"sqlite:{tmp_path}/own/db")
        path.chmod(before)
    opened(f"sqlite:{tmp_path}/own/db")


@pytest.mark.fault("SR20")
def test_it_is_taken_as_it_is_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(str(tmp_path / "store"))
    (tmp_path / "store").chmod(0o777)
    monkeypatch.setenv(permissions.ENV, "1")  # not what it is called
    with pytest.raises(ConfigError):
        opened(str(tmp_path / "store"))
    monkeypatch.setenv(permissions.ENV, "yes")
    opened(str(tmp_path / "store"))


@pytest.mark.parametrize("umask", [0, 0o077])
@pytest.mark.fault("SR13")
def test_what_a_store_makes_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "given").mkdir(mode=0o777)
    (tmp_path / "given").chmod(0o777)
    before = os.umask(umask)
    try:
        for name in ("given", "new"):
            store = open_store(tmp_path / name)
            store.open("t")
            store.acquire()
            store.create_entry("e")
            store.put("e", {"k": b"secret"})
            store.save_record("r", b"x")
            store.append_events([("a", {})])
            store.post("stop", {})
            store.close()
        opened(f"sqlite:{tmp_path}/dir/db")
    finally:
        os.umask(before)
    for path in [
        *(tmp_path / "new").rglob("*"),
        *(tmp_path / "given").rglob("*"),
        *(tmp_path / "dir").rglob("*"),
    ]:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path
    assert not stat.S_IMODE((tmp_path / "given").stat().st_mode) & 0o022
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
