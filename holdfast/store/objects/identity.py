"""The first object of a store of objects: which job it belongs to. Created once, never made anew.

identity    sealed JSON {"format": 1, "job_id": "…", "topology": "…"}
"""

from __future__ import annotations

from holdfast.errors import ConfigError
from holdfast.store import identity_record, refusals, sealed_file
from holdfast.store.base import Identity
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.contents_log import LATER, LOG

NAME = "identity"


def load(bucket: Bucket) -> Identity | None:
    """The identity, verified. None: there is none."""
    data, place = bucket.read(NAME), f"{bucket.url}/{NAME}"
    if data is None:
        return None
    return identity_record.decode(place, sealed_file.unseal(data, place, NAME, sealed_file.NO_JOB, NAME))


def require(bucket: Bucket) -> Identity:
    """The identity of a store that must exist."""
    identity = load(bucket)
    if identity is None:
        _refuse_leftovers(bucket)
        raise refusals.no_store(bucket.url)
    return identity


def create(bucket: Bucket, identity: Identity) -> None:
    """Create the identity if there is none. If another process was faster, its identity counts."""
    if load(bucket) is not None:
        return
    foreign = _refuse_leftovers(bucket)
    if foreign:
        raise ConfigError(
            f"{bucket.url} is neither a store nor empty (it holds {min(foreign)!r}).",
            cure="Name a new or empty place.",
        )
    bucket.create(NAME, sealed_file.seal(NAME, sealed_file.NO_JOB, NAME, identity_record.encode(identity)))


def _refuse_leftovers(bucket: Bucket) -> set[str]:
    """Data without an identity is never taken for a new store. Returns names that are nothing of ours."""
    names = set(bucket.names()) - {"probe"}
    if bucket.exists(NAME):
        return set()  # another process was faster
    if names & (LATER | {LOG}):
        raise sealed_file.damaged(f"{bucket.url}/{NAME}", "is missing, but a store's data is there")
    return names
