"""The first object of a store of objects: which job it belongs to.

identity    sealed JSON {"format": 1, "job_id": "…", "topology": "…"}
"""

from __future__ import annotations

from holdfast.store import identity_record, sealed_file
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


def refuse_leftovers(bucket: Bucket) -> None:
    """DamagedError if there is data without an identity, ConfigError if there is something else."""
    names = set(bucket.names()) - {"probe"}
    if not bucket.exists(NAME):  # else another process was faster
        identity_record.refuse_leftovers(bucket.url, names, LATER | {LOG})


def create(bucket: Bucket, identity: Identity) -> None:
    """Create the identity. If another process was faster, its identity counts."""
    bucket.create(NAME, sealed_file.seal(NAME, sealed_file.NO_JOB, NAME, identity_record.encode(identity)))
