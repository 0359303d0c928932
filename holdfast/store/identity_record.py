"""The identity record, alike in every back end: JSON {"format": 1, "job_id": "…", "topology": "…"}.

It is the first thing in a store, written once and never made anew. Data without it is damage: a new identity would make
sinks take rows they already have for new ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.store import sealed_file
from holdfast.store.base import Identity

NAME = "identity"


def encode(identity: Identity) -> bytes:
    fields = {"format": identity.format, "job_id": identity.job_id, "topology": identity.topology}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(place: Path | str, payload: bytes) -> Identity:
    """The identity in a record whose bytes were verified. MismatchError if a newer holdfast wrote it."""
    try:
        fields = json.loads(payload)
        identity = Identity(str(fields["job_id"]), str(fields["topology"]), int(fields["format"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise sealed_file.damaged(place, "does not hold an identity") from error
    sealed_file.refuse_newer(place, str(identity.format))
    return identity


def seal(identity: Identity) -> bytes:
    return sealed_file.seal(NAME, sealed_file.NO_JOB, NAME, encode(identity))


def unseal(place: Path | str, data: bytes) -> Identity:
    return decode(place, sealed_file.unseal(data, place, NAME, sealed_file.NO_JOB, NAME))


def refuse_leftovers(place: Path | str, found: Iterable[str], ours: Iterable[str]) -> None:
    """Refuse a place without an identity that is not empty. `found`: names there; `ours`: those of a store's data."""
    names = sorted(found)
    if set(names) & set(ours):
        raise sealed_file.damaged(f"{place}/{NAME}", "is missing, but the place holds a store's data")
    if names:
        raise ConfigError(
            f"{place} is neither a store nor empty (it holds {names[0]!r}).",
            cure="Name a new or empty place.",
        )
