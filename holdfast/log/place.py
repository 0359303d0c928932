"""Where a log is kept: its directory, its identity, the marks of what was trimmed.

identity                  which log this is: id, schema, time column, partitions, what it is the output of
owner/, tmp/              who may write (as in a store of plain files: docs/formats/store-files.md)
p00000/                   a partition: segments and their side files
p00000/low                rows before this position were trimmed, and why
consumers/, pins/         who needs which rows
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import durable
from holdfast.errors import ConfigError, DamagedError, MismatchError, StoreError
from holdfast.failpoints import fp
from holdfast.log.format.names import parse
from holdfast.log.format.tail import decode_schema, encode_schema
from holdfast.store import sealed_file
from holdfast.store.files.lease import Lease

FORMAT = 2
"""1: no notes. A log of format 1 becomes one of format 2 before its first note is written: programs that know nothing of notes
then refuse it, and do not take a note for the torn end of a tail."""
IDENTITY = "identity"
CONSUMERS = "consumers"
PINS = "pins"
LOW = "low"
PARTITIONS_MAX = 1 << 16
_OURS = re.compile(r"owner|tmp|consumers|pins|p\d{5}")
"""What is there when a process died while it made a log."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose output a log holds. All empty: nobody's, it was opened by itself."""

    topology: str = ""
    operator: str = ""
    port: str = ""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What never changes about a log. Small, and safe to ship."""

    root: str
    id: str
    schema: pa.Schema
    time: str | None
    partitions: int
    origin: Origin
    format: int = FORMAT

    def directory(self, partition: int) -> Path:
        return Path(self.root) / f"p{partition:05d}"

    @property
    def id_bytes(self) -> bytes:
        return bytes.fromhex(self.id)


@dataclass(frozen=True, slots=True)
class Low:
    """Rows before `position` were trimmed."""

    position: int = 0
    because: str = ""
    wall: float = 0.0


def load(root: Path) -> LogFacts | None:
    """None: there is no log here."""
    data = sealed_file.read_whole(root / IDENTITY)
    if data is None:
        if any(parse(path.name) for path in root.glob("p*/*")):
            raise DamagedError(
                f"{root} has segments but no identity.", cure="Restore the file identity from a backup."
            )
        return None
    job = data.split(b" ", 4)[3].decode("ascii", "replace") if data.count(b" ") >= 4 else ""
    payload = sealed_file.unseal(data, root / IDENTITY, "log", job, IDENTITY)
    with sealed_file.understood(root / IDENTITY):
        return _facts(root, job, json.loads(payload))


def _facts(root: Path, job: str, found: dict[str, Any]) -> LogFacts:
    if found["format"] > FORMAT:
        raise MismatchError(
            f"the log {root} has format {found['format']}; this program knows formats up to {FORMAT}.",
            cure="Use the holdfast version that wrote it, or a newer one. Nothing was changed.",
        )
    schema, partitions = decode_schema(found["schema"]), int(found["partitions"])
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise ValueError(f"{partitions} partitions")
    return LogFacts(
        str(root), job, schema, found["time"], partitions, Origin(**found["origin"]), int(found["format"])
    )


def create(root: Path, schema: pa.Schema, time: str | None, partitions: int, origin: Origin) -> LogFacts:
    """Make the log. If another process was faster, its log counts."""
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise ConfigError(f"a log has 1 to {PARTITIONS_MAX} partitions, not {partitions}.")
    if load(root) is None and any(not _OURS.fullmatch(name) for name in sealed_file.list_directory(root)):
        raise ConfigError(f"{root} is not empty and not a log.", cure="Give a log a directory of its own.")
    durable.make_directory(root)
    job = secrets.token_hex(16)
    data = {
        "format": FORMAT,
        "schema": encode_schema(schema),
        "time": time,
        "partitions": partitions,
        "origin": {"topology": origin.topology, "operator": origin.operator, "port": origin.port},
        "columns": {field.name: str(field.type) for field in schema},
    }
    sealed = sealed_file.seal("log", job, IDENTITY, json.dumps(data, indent=1).encode())
    with durable.translate_os_errors(str(root)):
        for name in ("owner", "tmp", CONSUMERS, PINS, *(f"p{n:05d}" for n in range(partitions))):
            durable.make_directory(root / name)
        staged = root / "tmp" / f"new-{secrets.token_hex(8)}"
        durable.write_staged(staged, sealed)
        try:
            durable.rename_to_new_name(staged, root / IDENTITY)
        except FileExistsError:
            durable.remove_quietly(staged)
        durable.fsync_directory(root)
    made = load(root)
    if made is None:
        raise StoreError(f"the log {root} could not be made.")
    return made


def raise_format(facts: LogFacts, lease: Lease) -> None:
    """Make it a log of the present format, durable when this returns."""
    path = Path(facts.root) / IDENTITY
    data = sealed_file.read_sealed(path, "log", facts.id, IDENTITY)
    if data is None:
        raise DamagedError(f"{path} is gone.", cure="Restore it from a backup.")
    found = {**json.loads(data), "format": FORMAT}
    sealed = sealed_file.seal("log", facts.id, IDENTITY, json.dumps(found, indent=1).encode())
    durable.write_file(path, sealed, temporary=lease.temporary())
    fp("log.format.raised")


def read_low(facts: LogFacts, partition: int) -> Low:
    name = f"low-{partition}"
    data = sealed_file.read_sealed(facts.directory(partition) / LOW, "log-low", facts.id, name)
    with sealed_file.understood(facts.directory(partition) / LOW):
        return Low() if data is None else Low(**json.loads(data))


def write_low(facts: LogFacts, partition: int, low: Low, lease: Lease) -> None:
    """Durable before a single segment goes: a reader that comes too late is told, and never takes less for all."""
    data = json.dumps({"position": low.position, "because": low.because, "wall": low.wall}).encode()
    sealed = sealed_file.seal("log-low", facts.id, f"low-{partition}", data)
    durable.write_file(facts.directory(partition) / LOW, sealed, temporary=lease.temporary())
