"""Ownership of a directory store, and the fence that keeps an earlier owner out.

    owner/<token>.lock       locked by the owner for as long as it lives; tells who it is
    owner/<token>.released   the owner stopped cleanly
    tmp/<token>/             the owner's private directory: the only place it ever renames from or to

What must hold:
1. Tokens only grow; a lock file with a given token is created by one process only (`link` refuses the second).
2. Every change an owner makes is a rename out of `tmp/<token>/` (new bytes) or into it (deletion).
3. Before `acquire` returns, the private directories of all earlier owners are gone, files first, then the directory.
   A rename that an earlier owner still has under way is done before that, and thus seen by the new owner, or fails.
4. An owner makes its private directory once, then looks whether it is still the newest. Either it sees the newer
   owner, or the newer owner sees and removes the directory.
"""

from __future__ import annotations

import errno
import io
import json
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import OwnedError, StoreError
from holdfast.ids import OwnerToken
from holdfast.store import locks, refusals, sealed_file

OWNER = "owner"
TMP = "tmp"
DEAD = "dead-"
_TOKEN_DIGITS = 10


def token_name(token: int) -> str:
    return f"{token:0{_TOKEN_DIGITS}d}"


def private_directory(root: Path, token: int) -> Path:
    """Where the owner with this token prepares its changes. Missing: the owner was replaced."""
    return root / TMP / token_name(token)


class Lease:
    """A claim on a directory store. Made by `acquire`; safe to use from several threads."""

    def __init__(self, root: Path, token: OwnerToken, lock: io.FileIO) -> None:
        self.root = root
        self.token = token
        self.private = private_directory(root, token)
        self._lock = lock

    def temporary(self) -> Path:
        return self.private / secrets.token_hex(8)

    def is_fenced(self) -> bool:
        return not self.private.is_dir() or highest_token(self.root) > self.token

    def check(self) -> None:
        if self.is_fenced():
            raise refusals.fenced(self.root, self.token)

    def discard(self, path: Path) -> bool:
        """Delete a file or directory by way of the private directory: at once, and only as the owner.
        False: it was not there."""
        doomed = self.temporary()
        try:
            os.rename(path, doomed)
        except FileNotFoundError:
            if self.private.is_dir():
                return False
            raise
        try:
            remove_tree(doomed)
        except OSError:
            pass  # it is deleted; what is left in the private directory goes with the next owner at the latest
        return True

    def release(self) -> None:
        """Give the store up. A later owner needs no proof of death."""
        released = self.root / OWNER / f"{token_name(self.token)}.released"
        try:
            if not self.is_fenced():
                durable.write_file(released, b"")
        finally:
            self.abandon()
            remove_tree(self.private)

    def abandon(self) -> None:
        """Let go of the lock as a dying process would."""
        self._lock.close()


def acquire(root: Path, job: str, *, take_over: bool) -> Lease:
    """Become the owner of the store: see what must hold above."""
    while True:
        current = highest_token(root)
        if current and not take_over and locks.is_held(_lock_path(root, current)):
            raise _owned(root, job, current)
        lease = _claim(root, job, OwnerToken(current + 1))
        if lease is not None:
            break
    try:
        durable.make_directory(lease.private)
        _remove_earlier(root, lease.token)
        durable.fsync_directory(root / TMP)
        newest = highest_token(root)
        if newest != lease.token:
            raise _owned(root, job, newest)
    except BaseException:
        lease.abandon()
        remove_tree(lease.private)
        raise
    return lease


def owner_info(root: Path, job: str) -> dict[str, Any] | None:
    """Who owns the store: token, pid, host, since, alive. None: nobody, or the last owner stopped cleanly."""
    token = highest_token(root)
    if not token or (root / OWNER / f"{token_name(token)}.released").exists():
        return None
    return _info(root, job, token)


def highest_token(root: Path) -> int:
    """The newest token ever given out. Private directories count too: a deleted lock file must not bring a token
    back."""
    names = [name.partition(".")[0] for name in sealed_file.list_directory(root / OWNER)]
    names += sealed_file.list_directory(root / TMP)
    return max((int(name) for name in names if len(name) == _TOKEN_DIGITS and name.isdigit()), default=0)


def remove_tree(path: Path) -> None:
    """Remove a file or a directory with all it holds, although another process may still write into it."""
    while True:
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                return
            shutil.rmtree(path)
            return
        except FileNotFoundError:
            if not os.path.lexists(path):
                return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _claim(root: Path, job: str, token: OwnerToken) -> Lease | None:
    """Try to get a token. None: another process was faster."""
    info = json.dumps({"token": token, **locks.who_am_i()}).encode()
    name = token_name(token)
    with locks.new_lock(root / OWNER, sealed_file.seal("owner", job, name, info)) as (temporary, file):
        try:
            os.link(temporary, _lock_path(root, token))
        except (FileExistsError, FileNotFoundError):
            file.close()
            return None  # the token is taken, or somebody mistook the unfinished file for a dead process's
        durable.fsync_directory(root / OWNER)
        return Lease(root, token, file)


def _lock_path(root: Path, token: int) -> Path:
    return root / OWNER / f"{token_name(token)}.lock"


def _remove_earlier(root: Path, token: int) -> None:
    """Fence every earlier owner: after this, none of their renames can succeed."""
    for name in sealed_file.list_directory(root / TMP):
        if name.startswith(DEAD):
            remove_tree(root / TMP / name)
        elif name.isdigit() and int(name) < token:
            dead = root / TMP / f"{DEAD}{name}-{secrets.token_hex(4)}"
            try:
                os.rename(root / TMP / name, dead)
            except FileNotFoundError:
                continue  # a third owner was faster, and finishes it before it goes on
            remove_tree(dead)
    for name in sealed_file.list_directory(root / OWNER):
        number = name.partition(".")[0]
        earlier = number.isdigit() and int(number) < token
        if earlier or (name.startswith(".new-") and not locks.is_held(root / OWNER / name)):
            durable.remove_quietly(root / OWNER / name)


def _info(root: Path, job: str, token: int) -> dict[str, Any] | None:
    path = _lock_path(root, token)
    payload = sealed_file.read_sealed(path, "owner", job, token_name(token))
    with sealed_file.understood(path):
        return None if payload is None else {**json.loads(payload), "alive": locks.is_held(path)}


def _owned(root: Path, job: str, token: int) -> OwnedError:
    try:
        return refusals.owned(str(root), _info(root, job, token))
    except StoreError:
        return refusals.owned(str(root), None)
