"""Durable writes: the order of steps, what is left after a failure, and what the disk says."""

from __future__ import annotations

import errno
import os
import pickle
import stat
from pathlib import Path

import pytest

from holdfast import durable, failpoints
from holdfast.durable import NotDurableError, write_file
from holdfast.errors import NoSpaceError, StoreError


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.write_bytes(b"old")
    return path


@pytest.mark.fault("S06")
def test_the_file_is_synced_before_its_name_and_its_name_before_success(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        steps.append("fsync directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "fsync file")
        real_fsync(fd)

    def rename(source: Path, to: Path) -> None:
        steps.append("rename")
        real_rename(source, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    write_file(target, b"new")
    assert steps == ["fsync file", "rename", "fsync directory"]
    assert target.read_bytes() == b"new"
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize(
    ("call", "code", "error"),
    [
        ("fsync", errno.EIO, StoreError), ("fsync", errno.ENOSPC, NoSpaceError), ("fsync", errno.EDQUOT, NoSpaceError),
        ("rename", errno.EIO, StoreError), ("rename", errno.EXDEV, StoreError), ("write", errno.ENOSPC, NoSpaceError),
        ("write", errno.EFBIG, StoreError), ("open", errno.EMFILE, StoreError), ("open", errno.EROFS, StoreError),
    ],
)  # fmt: skip
def test_a_failure_before_the_rename_leaves_the_old_file_alone(
    call: str, code: int, error: type[StoreError], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(error) as caught:
            write_file(target, b"new")
    assert type(caught.value) is error
    assert isinstance(caught.value.__cause__, OSError)
    assert str(target) in str(caught.value)
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failure_after_the_rename_is_its_own_error(
    code: int, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(NotDurableError):
        write_file(target, b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.fault("S04")
def test_a_rename_that_failed_but_happened_counts(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.rename

    def rename(source: Path, to: Path) -> None:
        real(source, to)
        raise OSError(errno.EIO, "the answer was lost")

    monkeypatch.setattr(os, "rename", rename)
    write_file(target, b"new")
    assert target.read_bytes() == b"new"


@pytest.mark.fault("S04")
def test_a_rename_that_succeeded_without_effect_is_found_out(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rename", lambda source, to: None)
    with pytest.raises(StoreError, match="without effect"):
        write_file(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.fault("S07")
def test_short_writes_are_continued(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    write_file(target, b"a longer text")
    assert target.read_bytes() == b"a longer text"
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(StoreError):
        write_file(target, b"never")
    assert target.read_bytes() == b"a longer text"


def test_failpoints_name_the_four_steps(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv(failpoints.ENV_LOG, str(log))
    write_file(target, b"new", failpoints="ckpt.manifest")
    names = [line.split()[0] for line in log.read_text().splitlines()]
    assert names == [
        "ckpt.manifest.tmp_written", "ckpt.manifest.fsynced", "ckpt.manifest.renamed", "ckpt.dir.fsynced",
    ]  # fmt: skip


def test_any_exception_before_the_rename_removes_the_temporary_file(target: Path) -> None:
    failpoints.arm("ckpt.manifest.fsynced=raise")
    try:
        with pytest.raises(failpoints.FaultInjected):
            write_file(target, b"new", failpoints="ckpt.manifest")
    finally:
        failpoints.disarm()
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.fault("SR13")
def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        durable.make_directory(tmp_path / "a" / "b")
        write_file(tmp_path / "a" / "b" / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b" / "file").stat().st_mode) == 0o600


@pytest.mark.fault("SR07", "SR18")
def test_a_link_in_the_temporary_place_is_not_followed(target: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "trap").symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError):
        write_file(target, b"new", temporary=tmp_path / "trap")
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_removed_temporary_directory_refuses_the_write(target: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        write_file(target, b"new", temporary=tmp_path / "gone" / "x")
    assert target.read_bytes() == b"old"


def test_make_directory_refuses_a_file_in_its_place(target: Path) -> None:
    with pytest.raises(FileExistsError):
        durable.make_directory(target)
    durable.make_directory(target.parent)


def test_checksums_of_bytes_and_files_agree(target: Path) -> None:
    assert durable.checksum_file(target) == (durable.checksum(b"old"), 3)
    assert durable.checksum(b"ld", durable.checksum(b"o")) == durable.checksum(b"old")
    durable.fsync_file(target)


def test_its_errors_cross_process_borders() -> None:
    error = pickle.loads(pickle.dumps(NotDurableError("x.", cure="y.")))
    assert isinstance(error, NotDurableError)
    assert str(error) == "x. y."


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.fault("S05")
def test_a_file_gets_a_new_name_and_never_one_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    durable.rename_to_new_name(tmp_path / "a", tmp_path / "new")
    with pytest.raises(FileExistsError):
        durable.rename_to_new_name(tmp_path / "b", tmp_path / "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "a", "b": "b"}
