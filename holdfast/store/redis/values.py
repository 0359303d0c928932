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

from holdfast.errors import DamagedError
from holdfast.store import identity_record, sealed_file
from holdfast.store.base import Identity
from holdfast.store.names import named_crc

NO_JOB = "-"
_CRC = struct.Struct("<I")

PAIR, SEGMENT, CHUNK = "p:", "s:", "c:"
"""How the fields of an entry's hash begin. No name holds a colon."""


class Layout:
    """The keys of one store. The braces make them share a slot of a cluster."""

    def __init__(self, name: str) -> None:
        self._start = f"holdfast:{{{name}}}"
        self.identity = self.key("identity")
        self.owner = self.key("owner")
        self.clock = self.key("clock")
        """Counts changes. It never goes back, unless the server lost some."""
        self.place = self.key("place")
        """Which of how many servers this is; missing where a store has one server."""
        self.entries = self.key("entries")
        self.names = self.key("names")
        self.epochs = self.key("epochs")
        self.records = self.key("records")
        self.events = self.key("events")
        self.event_count = self.key("events", "count")
        self.mail = self.key("mail")

    def key(self, *parts: str) -> str:
        return ":".join((self._start, *parts))

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
        return self._crc(data, kind, *names) + data

    def open(self, value: Any, kind: str, *names: object) -> bytes:
        """The bytes of a value, verified. A missing one is damage: ask only for what must be there."""
        what = " ".join((kind, "/".join(map(str, names)))).rstrip()
        if value is None:
            raise self.damaged(f"has lost its {what}")
        data = bytes(value[_CRC.size :])
        if value[: _CRC.size] != self._crc(data, kind, *names):
            raise self.damaged(f"holds a damaged {what}: it does not match its checksum")
        return data

    def seal_json(self, data: Any, kind: str, *names: object) -> bytes:
        return self.seal(json.dumps(data, separators=(",", ":")).encode(), kind, *names)

    def open_json(self, value: Any, kind: str, *names: object) -> Any:
        data = self.open(value, kind, *names)
        with sealed_file.understood(self.place):
            return json.loads(data)

    def damaged(self, what: str) -> DamagedError:
        return sealed_file.damaged(self.place, what)

    def _crc(self, data: bytes, kind: str, *names: object) -> bytes:
        return _CRC.pack(named_crc(self.job, kind, *names, value=data))


def seal_identity(identity: Identity) -> bytes:
    return Sealer("", NO_JOB).seal(identity_record.encode(identity), "identity")


def open_identity(place: str, value: bytes) -> Identity:
    """The identity of a store, verified. MismatchError if a newer holdfast made it."""
    return identity_record.decode(place, Sealer(place, NO_JOB).open(value, "identity"))
