"""The first object of a store of objects: which job it belongs to. Created once, never made anew.

identity    sealed JSON {"format": 1, "job_id": "…", "topology": "…"}
"""

from __future__ import annotations

import json
import secrets

from holdfast.errors import ConfigError, StoreError
from holdfast.store import sealed_file
from holdfast.store.base import FORMAT, Identity
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.state import LATER, LOG

NAME = "identity"


def load(bucket: Bucket) -> Identity | None:
    """The identity, verified. None: there is none."""
    data = bucket.read(NAME)
    if data is None:
        return None
    place = f"{bucket.url}/{NAME}"
    payload = sealed_file.unseal(data, place, NAME, sealed_file.NO_JOB, NAME)
    try:
        fields = json.loads(payload)
        identity = Identity(str(fields["job_id"]), str(fields["topology"]), int(fields["format"]))
    except (ValueError, KeyError, TypeError) as error:
        raise sealed_file.damaged(place, "does not hold an identity") from error
    sealed_file.refuse_newer(place, str(identity.format))
    return identity


def require(bucket: Bucket) -> Identity:
    """The identity of a store that must exist."""
    identity = load(bucket)
    if identity is None:
        _refuse_leftovers(bucket)
        raise StoreError(
            f"there is no store at {bucket.url}.", cure="A run creates its store when it starts."
        )
    return identity


def create(bucket: Bucket, topology: str) -> None:
    """Create the identity. If another process was faster, its identity counts."""
    foreign = _refuse_leftovers(bucket)
    if foreign:
        raise ConfigError(
            f"{bucket.url} is neither a store nor empty (it holds {min(foreign)!r}).",
            cure="Name a new or empty place.",
        )
    fields = {"format": FORMAT, "job_id": secrets.token_hex(16), "topology": topology}
    bucket.create(NAME, sealed_file.seal(NAME, sealed_file.NO_JOB, NAME, json.dumps(fields).encode()))


def _refuse_leftovers(bucket: Bucket) -> set[str]:
    """Data without an identity is never taken for a new store. Returns names that are nothing of ours."""
    names = set(bucket.names()) - {"probe"}
    if bucket.exists(NAME):
        return set()  # another process was faster
    if names & (LATER | {LOG}):
        raise sealed_file.damaged(f"{bucket.url}/{NAME}", "is missing, but a store's data is there")
    return names
