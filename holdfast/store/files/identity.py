"""The first record of a directory store: which job it belongs to. Written once, never made anew.

    identity      sealed JSON {"format": 1, "job_id": "…", "topology": "…"}

It is the first file of a store. A directory with data and without it is damaged: a new identity would make sinks
take rows they already have for new ones.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from pathlib import Path

from holdfast import durable
from holdfast.errors import ConfigError, DamagedError, MismatchError, StoreError
from holdfast.store import sealed_file
from holdfast.store.base import FORMAT, Identity

FILE = "identity"
DIRECTORIES = ("owner", "tmp", "epochs", "entries", "records", "events", "mail")
_NOT_DATA = ("lost+found",)
_NEW = ".identity-"


def load(root: Path) -> Identity | None:
    """The identity, verified. None: there is none."""
    path = root / FILE
    if root.exists() and not root.is_dir():
        raise ConfigError(f"{root} is a file, not a directory.", cure="Name a new or empty directory.")
    payload = sealed_file.read_sealed(path, "identity", sealed_file.NO_JOB, FILE)
    if payload is None:
        return None
    try:
        fields = json.loads(payload)
        identity = Identity(str(fields["job_id"]), str(fields["topology"]), int(fields["format"]))
    except (ValueError, KeyError, TypeError) as error:
        raise sealed_file.damaged(path, "does not hold an identity") from error
    sealed_file.refuse_newer(path, str(identity.format))
    return identity


def require(root: Path) -> Identity:
    """The identity of a store that must exist."""
    identity = _load_or_refuse(root)
    if identity is not None:
        return identity
    raise StoreError(
        f"there is no store at {root}.", cure="Check the path; a run creates its store when it starts."
    )


def open_or_create(root: Path, topology: str) -> Identity:
    """The identity of the store, made if the directory is new. MismatchError for another topology."""
    identity = _load_or_refuse(root)
    if identity is None:
        identity = _create(root, topology)
    check_topology(str(root), identity, topology)
    for name in DIRECTORIES:
        _ensure_directory(root / name)
    return identity


def check_topology(place: str, identity: Identity, topology: str) -> None:
    """MismatchError if the store belongs to another graph."""
    if identity.topology != topology:
        raise MismatchError(
            f"{place} belongs to another topology ({identity.topology[:60]}, this one is {topology[:60]}).",
            cure="Use another store for a changed graph, or run the graph this store was made for.",
        )


def _load_or_refuse(root: Path) -> Identity | None:
    """None: nothing is there. DamagedError if there is data without an identity, ConfigError if the directory is
    something else's."""
    identity = load(root)
    if identity is not None:
        return identity
    names = [n for n in sealed_file.list_directory(root) if n not in _NOT_DATA and not n.startswith(_NEW)]
    # Looked for again: another process may have made the store meanwhile. It makes the identity first, so whatever was
    # listed without one has none.
    identity = load(root)
    if identity is not None:
        return identity
    if set(names) & set(DIRECTORIES):
        raise DamagedError(
            f"{root / FILE} is missing, but the directory holds a store's data.", cure=sealed_file.RESTORE
        )
    if names:
        raise ConfigError(
            f"{root} is neither a store nor empty (it holds {names[0]!r}).",
            cure="Name a new or empty directory.",
        )
    return None


def _create(root: Path, topology: str) -> Identity:
    """Write the identity. If another process was faster, its identity counts."""
    fields = {"format": FORMAT, "job_id": secrets.token_hex(16), "topology": topology}
    staged = root / f"{_NEW}{secrets.token_hex(8)}"
    with durable.translate_os_errors(str(root / FILE)):
        durable.make_directory(root)
        try:
            payload = json.dumps(fields).encode()
            durable.write_staged(staged, sealed_file.seal("identity", sealed_file.NO_JOB, FILE, payload))
            os.link(staged, root / FILE)
        except FileExistsError:
            pass
        finally:
            durable.remove_quietly(staged)
        durable.fsync_directory(root)
    return require(root)


def _ensure_directory(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        with durable.translate_os_errors(str(path)):
            durable.make_directory(path)
        return
    if not stat.S_ISDIR(mode):
        raise sealed_file.damaged(path, "is not a directory")
