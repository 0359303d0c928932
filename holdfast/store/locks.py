"""Locks that die with their process: the proof that an owner is gone.

A lock file is written and locked under a temporary name before it gets its real one, so that whoever sees it sees it
locked for as long as its owner lives. The lock belongs to the open file; the kernel drops it however the process
ends. A process id proves nothing (ids are reused) and is kept for people only.

A process made by fork must not keep its parent's locks alive: they are closed in the child.
"""

from __future__ import annotations

import fcntl
import io
import os
import pwd
import secrets
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import StoreError
from holdfast.store import sealed_file

_held: weakref.WeakSet[io.FileIO] = weakref.WeakSet()


def _forget_in_child() -> None:
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_forget_in_child)


def who_am_i() -> dict[str, Any]:
    """What an owner tells about itself, for people to read."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}


def signed() -> str:
    """Who does something, for the event log: user, host and process."""
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"


@contextmanager
def new_lock(directory: Path, content: bytes) -> Iterator[tuple[Path, io.FileIO]]:
    """A new file under a temporary name, durable and locked by this process. The caller gives it its real name; if that
    fails, it is let go."""
    path = directory / f".new-{secrets.token_hex(8)}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = io.FileIO(os.open(path, flags, durable.FILE_MODE), "r+")
    try:
        os.fchmod(file.fileno(), durable.FILE_MODE)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        durable.write_all(file.fileno(), content)
        os.fsync(file.fileno())
        _held.add(file)
        yield path, file
    except BaseException:
        file.close()
        raise
    finally:
        durable.remove_quietly(path)


def is_held(path: Path) -> bool:
    """True if the process that made this lock file lives and has not let go. A missing file is held by nobody."""
    fd = sealed_file.open_regular(path)
    if fd is None:
        return False
    try:
        # Shared: two processes that ask at the same moment must not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError as error:
        raise StoreError(
            f"{path} cannot be locked: {error.strerror}.",
            cure="Keep the store on a file system that has locks.",
        ) from error
    finally:
        os.close(fd)
