"""Names and values of a store in Redis. Page: docs/formats/store-redis.md.

    value := crc u32 | bytes        little-endian; the crc covers job, kind, names and the bytes

A value under another name, in another store or of another kind does not match. Three *catalogues* say what there must
be (entries, names of records, epochs per region): a value that is gone is damage too, and is found.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError
from holdfast.store.base import FORMAT, Identity
from holdfast.store.redis.link import RESTORE

NO_JOB = "-"
_CRC = struct.Struct("<I")

PAIR, SEGMENT, CHUNK = "p:", "s:", "c:"
"""How the fields of an entry's hash begin. No name holds a colon."""


@dataclass(frozen=True)
class Layout:
    """The keys of one store. The braces make them share a slot of a cluster."""

    name: str

    def key(self, *parts: str) -> str:
        return ":".join((f"holdfast:{{{self.name}}}", *parts))

    @property
    def identity(self) -> str:
        return self.key("identity")

    @property
    def owner(self) -> str:
        return self.key("owner")

    @property
    def clock(self) -> str:
        """Counts changes. It never goes back, unless the server lost some."""
        return self.key("clock")

    @property
    def entries(self) -> str:
        return self.key("entries")

    @property
    def names(self) -> str:
        return self.key("names")

    @property
    def epochs(self) -> str:
        return self.key("epochs")

    @property
    def records(self) -> str:
        return self.key("records")

    @property
    def events(self) -> str:
        return self.key("events")

    @property
    def event_count(self) -> str:
        return self.key("events", "count")

    @property
    def mail(self) -> str:
        return self.key("mail")

    def entry(self, entry: str) -> str:
        return self.key("entry", entry)

    def region(self, region: str) -> str:
        return self.key("epoch", region)

    def alive(self, token: int) -> str:
        """Lives as long as the owner with this token says so."""
        return self.key("alive", str(token))

    @property
    def founding(self) -> tuple[str, ...]:
        """Keys that exist from the first moment on."""
        return (self.identity, self.owner, self.clock, self.entries, self.names, self.epochs)


@dataclass(frozen=True)
class Sealer:
    """Seals and opens the values of one job."""

    place: str
    job: str

    def seal(self, data: bytes, kind: str, *names: object) -> bytes:
        return _CRC.pack(self._crc(data, kind, *names)) + data

    def open(self, value: Any, kind: str, *names: object) -> bytes:
        """The bytes of a value, verified. A missing one is damage: ask only for what must be there."""
        what = " ".join((kind, "/".join(map(str, names)))).rstrip()
        if value is None:
            raise self.damaged(f"has lost its {what}")
        data = bytes(value[_CRC.size :])
        if len(value) < _CRC.size or _CRC.unpack_from(value)[0] != self._crc(data, kind, *names):
            raise self.damaged(f"holds a damaged {what}: it does not match its checksum")
        return data

    def seal_json(self, data: Any, kind: str, *names: object) -> bytes:
        return self.seal(json.dumps(data, separators=(",", ":")).encode(), kind, *names)

    def open_json(self, value: Any, kind: str, *names: object) -> Any:
        return json.loads(self.open(value, kind, *names))

    def damaged(self, what: str) -> DamagedError:
        return DamagedError(f"{self.place} {what}.", cure=RESTORE)

    def _crc(self, data: bytes, kind: str, *names: object) -> int:
        return checksum(data, checksum("\0".join(map(str, (self.job, kind, *names))).encode()))


def seal_identity(identity: Identity) -> bytes:
    """The first value of a store."""
    fields = {"format": identity.format, "job_id": identity.job_id, "topology": identity.topology}
    return Sealer("", NO_JOB).seal_json(fields, "identity")


def open_identity(place: str, value: bytes) -> Identity:
    """The identity of a store, verified. MismatchError if a newer holdfast made it."""
    sealer = Sealer(place, NO_JOB)
    fields = sealer.open_json(value, "identity")
    try:
        identity = Identity(str(fields["job_id"]), str(fields["topology"]), int(fields["format"]))
    except (KeyError, TypeError, ValueError) as error:
        raise sealer.damaged("does not hold an identity") from error
    if identity.format > FORMAT:
        raise MismatchError(
            f"{place} has format {identity.format}; this program knows formats up to {FORMAT}.",
            cure="Use the holdfast version that wrote it, or a newer one. Nothing was changed.",
        )
    return identity
