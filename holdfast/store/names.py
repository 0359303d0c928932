"""Which names a store accepts. Names become file names, so that no name may lead out of the store.

A name begins with a letter, digit or underscore, goes on with those and `.@=+,~-`, has no two dots in a row, and is
at most NAME_LIMIT characters long. The same rule holds in every back end: data may move from one to another.
"""

from __future__ import annotations

import re

from holdfast.durable import checksum
from holdfast.errors import StoreError

NAME_LIMIT = 220
"""Two names of users, each of at most 100 characters, and what stands between them."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+,~-]*")


def check_name(kind: str, name: str) -> str:
    """Return `name` if it is acceptable, else StoreError. `kind` says what is named: entry, key, region, record."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name or len(name) > NAME_LIMIT:
        shown = repr(name) if len(repr(name)) <= 60 else repr(name)[:60] + "…"
        raise StoreError(
            f"{shown} cannot be the name of a {kind} in a store.",
            cure=f"Use letters, digits and _.@=+,~- only, no '..', at most {NAME_LIMIT} characters.",
        )
    return name


def check_epoch(epoch: int) -> int:
    """Return `epoch` if it can be part of a name, else StoreError."""
    if not isinstance(epoch, int) or not 0 <= epoch < 10**12:
        raise StoreError(f"{epoch!r} is not an epoch number.", cure="Epochs are whole numbers from 0 up.")
    return epoch


def check_value(entry: str, key: str, value: bytes, limit: int) -> None:
    """StoreError if a value is larger than the store takes in one piece."""
    if len(value) > limit:
        raise StoreError(
            f"the value of {entry}/{key} has {len(value)} bytes; this store takes at most {limit} in one value.",
            cure="Cut it into chunks or store it as a segment.",
        )


def named_crc(*names: object, value: bytes = b"") -> int:
    """The checksum of a value together with what it is called: under another name it does not match."""
    return checksum(value, checksum("\0".join(map(str, names)).encode()))
