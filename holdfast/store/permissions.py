"""Who else may write where a store lies. Whoever may can replace what a run goes on from, so such a place is refused.

Looked at once, before a run owns the store; who only looks at a store is not asked. `HOLDFAST_INSECURE_STORE=yes`
(`holdfast run --insecure-store`) takes the place as it is: for file systems that do not tell modes or owners.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import ConfigError

ENV = "HOLDFAST_INSECURE_STORE"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def refuse_others(paths: Iterable[Path]) -> None:
    """ConfigError naming the first of some paths that somebody else may write, with its owner and mode. What is missing
    is nobody's."""
    if os.environ.get(ENV) == "yes":
        return
    for path in paths:
        try:
            found = path.lstat()
        except OSError:
            continue
        why = _why(found)
        if why:
            raise ConfigError(
                f"{path} {why} (owner {_name(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}): whoever writes "
                "there can change what this run goes on from.",
                cure=f"chmod go-w {path}, or choose a place of your own; --insecure-store takes it as it is.",
            )


def make_private(path: Path) -> None:
    """For the directory of a store that is being made: others may not write there from now on."""
    try:
        found = path.lstat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
            os.chmod(path, stat.S_IMODE(found.st_mode) & ~_OTHERS)
    except OSError:
        return  # it is looked at again before anybody owns it


def _why(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return ""  # what a link may mean is decided where it is followed
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return "may be written by others" if by_group or found.st_mode & stat.S_IWOTH else ""


def _is_own_group(gid: int) -> bool:
    """A group that has the user's name and nobody else in it, as many systems make one for each user."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
