"""The first record of a directory store: which job it belongs to. Written once, never made anew.

    identity      sealed JSON {"format": 1, "job_id": "…", "topology": "…"}

It is the first file of a store. A directory with data and without it is damaged: a new identity would make sinks
take rows they already have for new ones.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from holdfast import durable
from holdfast.errors import ConfigError
from holdfast.store import identity_record, refusals, sealed_file
from holdfast.store.base import Identity

FILE = "identity"
DIRECTORIES = ("owner", "tmp", "epochs", "entries", "records", "events", "mail")
_NOT_DATA = ("lost+found",)
_NEW = ".identity-"


def load(root: Path) -> Identity | None:
    """The identity, verified. None: nothing is there. DamagedError if there is data without an identity, ConfigError
    if the directory is something else's."""
    identity = _read(root)
    if identity is not None:
        return identity
    names = [n for n in sealed_file.list_directory(root) if n not in _NOT_DATA and not n.startswith(_NEW)]
    # Looked for again: another process may have made the store meanwhile. It makes the identity first, so whatever was
    # listed without one has none.
    identity = _read(root)
    if identity is not None:
        return identity
    if set(names) & set(DIRECTORIES):
        raise sealed_file.damaged(root / FILE, "is missing, but the directory holds a store's data")
    if names:
        raise ConfigError(
            f"{root} is neither a store nor empty (it holds {names[0]!r}).",
            cure="Name a new or empty directory.",
        )
    return None


def require(root: Path) -> Identity:
    """The identity of a store that must exist."""
    identity = load(root)
    if identity is None:
        raise refusals.no_store(str(root))
    return identity


def create(root: Path, identity: Identity) -> None:
    """Write the identity if there is none. If another process was faster, its identity counts."""
    if load(root) is not None:
        return
    staged = root / f"{_NEW}{secrets.token_hex(8)}"
    with durable.translate_os_errors(str(root / FILE)):
        durable.make_directory(root)
        try:
            payload = identity_record.encode(identity)
            durable.write_staged(staged, sealed_file.seal("identity", sealed_file.NO_JOB, FILE, payload))
            os.link(staged, root / FILE)
        except FileExistsError:
            pass
        finally:
            durable.remove_quietly(staged)
        durable.fsync_directory(root)


def make_directories(root: Path) -> None:
    """Make what is missing of a store's directories."""
    for name in DIRECTORIES:
        path = root / name
        if not os.path.lexists(path):
            with durable.translate_os_errors(str(path)):
                durable.make_directory(path)
        elif not stat.S_ISDIR(os.lstat(path).st_mode):
            raise sealed_file.damaged(path, "is not a directory")


def _read(root: Path) -> Identity | None:
    path = root / FILE
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file, not a directory.", cure="Name a new or empty directory.")
    payload = sealed_file.read_sealed(path, "identity", sealed_file.NO_JOB, FILE)
    return None if payload is None else identity_record.decode(path, payload)
