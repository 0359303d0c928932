"""The first file of a directory store: which job it belongs to.

identity      sealed JSON {"format": 1, "job_id": "…", "topology": "…"}
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from holdfast import durable
from holdfast.errors import ConfigError
from holdfast.store import identity_record, sealed_file
from holdfast.store.base import Identity

FILE = identity_record.NAME
DIRECTORIES = ("owner", "tmp", "epochs", "entries", "records", "events", "mail")
_NOT_DATA = ("lost+found",)
_NEW = ".identity-"


def load(root: Path) -> Identity | None:
    """The identity, verified. None: there is none."""
    path = root / FILE
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file, not a directory.", cure="Name a new or empty directory.")
    data = sealed_file.read_whole(path)
    return None if data is None else identity_record.unseal(path, data)


def refuse_leftovers(root: Path) -> None:
    """DamagedError if there is data without an identity, ConfigError if the directory is something else's."""
    names = [n for n in sealed_file.list_directory(root) if n not in _NOT_DATA and not n.startswith(_NEW)]
    # Looked for again: another process may have made the store meanwhile. It makes the identity first, so whatever was
    # listed without one has none.
    if load(root) is None:
        identity_record.refuse_leftovers(root, names, DIRECTORIES)


def create(root: Path, identity: Identity) -> None:
    """Write the identity. If another process was faster, its identity counts."""
    staged = root / f"{_NEW}{secrets.token_hex(8)}"
    with durable.translate_os_errors(str(root / FILE)):
        durable.make_directory(root)
        try:
            durable.write_staged(staged, identity_record.seal(identity))
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
