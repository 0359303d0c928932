"""The manifest of an epoch: one line of header, then JSON. See docs/formats/manifest.md.

    holdfast-manifest 2 crc32=89abcdef
    {"job": …, "region": …, "epoch": …, "parts": {element: part}, …}

A *part* is an element's share: {"epoch", "attempt", "operators": {name: {"blob": ref | null, "segments": …}},
"kept": {connection: [batch]}}. Must hold: one part for every element of the region, all of this epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.blobs import BlobRef, keys_of
from holdfast.checkpoint.old_fingerprints import old_fingerprint
from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError
from holdfast.ids import Attempt, ElementName, Epoch, OwnerToken, RegionName
from holdfast.operators.fingerprint import Fingerprint

MAGIC = b"holdfast-manifest"
VERSION = 2
"""1 had neither "form" nor "pairs": it is read as well."""

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published epoch as data."""

    job_id: str
    topology: str
    region: RegionName
    epoch: Epoch
    attempt: Attempt
    token: OwnerToken
    wall: float
    fingerprint: Mapping[str, Fingerprint]
    parts: Mapping[ElementName, Part]
    previous: Epoch
    origin: Mapping[str, Any] | None = None
    """How the epoch was made if no run established it: {"kind": "fork" | "import" | "reset-operator", …}."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Numbers of operators in the positions of rows that are stored."""

    def may_begin(self, operator: str) -> bool:
        """True if an operator of which this epoch holds nothing begins with its initial state here."""
        if self.origin is None:
            return False
        is_founded = self.origin["kind"] in ("fork", "import")
        return operator in self.origin.get("reset", ()) or (is_founded and operator not in self.fingerprint)

    def operators(self) -> dict[str, dict[str, Any]]:
        """Operator parts of all elements, by operator name: operators may move between elements."""
        return {name: part for element in self.parts.values() for name, part in element["operators"].items()}


def encode(manifest: Manifest) -> bytes:
    """The manifest's bytes as they are published."""
    optional: dict[str, Any] = {} if manifest.origin is None else {"origin": dict(manifest.origin)}
    if manifest.numbers:
        optional["numbers"] = dict(manifest.numbers)
    body = _one_line_per_field(
        {
            **optional,
            "job": manifest.job_id,
            "topology": manifest.topology,
            "region": manifest.region,
            "epoch": manifest.epoch,
            "attempt": manifest.attempt,
            "token": manifest.token,
            "wall": manifest.wall,
            "fingerprint": {name: of.to_json() for name, of in manifest.fingerprint.items()},
            "parts": dict(manifest.parts),
            "previous": manifest.previous,
        }
    ).encode()
    return MAGIC + f" {VERSION} crc32={checksum(body):08x}\n".encode() + body


def _one_line_per_field(fields: Mapping[str, Any]) -> str:
    """JSON with a line for each field: a chain of many segments would be mostly blanks if all were indented."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(fields[name], sort_keys=True, separators=(',', ':'))}"
        for name in sorted(fields)
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def decode(data: bytes, where: str) -> Manifest:
    """Read and verify; `where` names the file in errors. Nothing of the body is looked at before its checksum fits."""
    header, newline, body = data.partition(b"\n")
    words = header.split(b" ")
    if not newline or len(words) != 3 or words[0] != MAGIC or not words[1].isdigit():
        raise _damaged(where, "it does not begin with a manifest header")
    if int(words[1]) > VERSION:
        raise MismatchError(
            f"{where} has manifest version {int(words[1])}, newer than this holdfast reads ({VERSION}).",
            cure="Use the newer holdfast that wrote it.",
        )
    if int(words[1]) < 1 or words[2] != f"crc32={checksum(body):08x}".encode():
        raise _damaged(where, "its checksum does not match")
    try:
        return _from_json(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(where, f"its content is not a manifest ({error})") from error


def _from_json(raw: Any) -> Manifest:
    return Manifest(
        job_id=raw["job"],
        topology=raw["topology"],
        region=RegionName(raw["region"]),
        epoch=Epoch(raw["epoch"]),
        attempt=Attempt(raw["attempt"]),
        token=OwnerToken(raw["token"]),
        wall=raw["wall"],
        fingerprint={name: _fingerprint(of) for name, of in raw["fingerprint"].items()},
        parts={ElementName(name): part for name, part in raw["parts"].items()},
        previous=Epoch(raw["previous"]),
        origin=raw.get("origin"),
        numbers=raw.get("numbers", {}),
    )


def _fingerprint(raw: Any) -> Fingerprint:
    """Versions 1 and 2 held it as text."""
    return old_fingerprint(raw) if isinstance(raw, str) else Fingerprint.from_json(raw)


def references(manifest: Manifest) -> set[tuple[str, str]]:
    """Every (entry, key) of the store that restoring this epoch reads."""
    found: set[tuple[str, str]] = set()
    for part in manifest.parts.values():
        for operator in part["operators"].values():
            for ref in (operator.get("blob"), *operator.get("pairs", ())):
                found.update(_blob_keys(ref))
            for partition in operator.get("segments", ()):
                found.update((ref[0], ref[1]) for ref in partition)
        for batches in part.get("kept", {}).values():
            for batch in batches:
                found.update((ref[0], ref[1]) for ref in batch["files"])
    return found


def _blob_keys(ref: BlobRef | None) -> Iterable[tuple[str, str]]:
    return [(ref["entry"], key) for key in keys_of(ref)] if ref else []


def _damaged(where: str, why: str) -> DamagedError:
    return DamagedError(
        f"{where} is damaged: {why}.",
        cure="Nothing was changed. Restore the file from a backup, or start from another epoch.",
    )
