"""The identity record as bytes, alike in every back end: JSON {"format": 1, "job_id": "…", "topology": "…"}."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.store import sealed_file
from holdfast.store.base import Identity


def encode(identity: Identity) -> bytes:
    """The record's bytes."""
    fields = {"format": identity.format, "job_id": identity.job_id, "topology": identity.topology}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(place: Path | str, payload: bytes) -> Identity:
    """The identity in a record whose bytes were verified. MismatchError if a newer holdfast wrote it."""
    try:
        fields = json.loads(payload)
        identity = Identity(str(fields["job_id"]), str(fields["topology"]), int(fields["format"]))
    except (ValueError, KeyError, TypeError) as error:
        raise sealed_file.damaged(place, "does not hold an identity") from error
    sealed_file.refuse_newer(place, str(identity.format))
    return identity
