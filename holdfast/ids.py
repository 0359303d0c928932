"""Identifiers and small values every layer shares. Plain data; safe to ship to executors."""

from __future__ import annotations

import os
import re
from typing import NewType

from holdfast.errors import ConfigError

Epoch = NewType("Epoch", int)
"""A consistent state of a region. 0 is the initial state; strictly increasing."""

Attempt = NewType("Attempt", int)
"""How many times a region was reset. Messages and files of an earlier attempt are stale."""

OwnerToken = NewType("OwnerToken", int)
"""Which run owns a store. Strictly increasing; writes under an older token are refused."""

RegionName = NewType("RegionName", str)
ElementName = NewType("ElementName", str)
OperatorName = NewType("OperatorName", str)
ConnectionId = NewType("ConnectionId", str)

INITIAL_EPOCH = Epoch(0)
FIRST_ATTEMPT = Attempt(0)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def is_safe_name(name: str) -> bool:
    """True if `name` may become part of a file name: no separators, no leading dot, at most 100 characters."""
    return bool(_NAME.fullmatch(name)) and ".." not in name


def local_path(path: str | os.PathLike[str], who: str, cure: str) -> str:
    """A path of this machine as a user wrote it; `file:` and `file://` may stand before it. ConfigError for addresses of somewhere else: as
    a path such a one would be a directory called `s3:`."""
    given = os.fspath(path)
    found = _SCHEME.match(given)
    if found is not None and found[1].lower() != "file":
        raise ConfigError(
            f"{given} is an address of {found[1]}, and {who} directories that this machine sees.", cure=cure
        )
    return given.removeprefix("file://").removeprefix("file:")
