"""Epochs made by hand: a manifest that refers to named pieces, and the pieces."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.manifest import Manifest
from holdfast.durable import checksum
from holdfast.ids import Attempt, ElementName, Epoch, OwnerToken, RegionName
from holdfast.operators.fingerprint import Fingerprint
from holdfast.store.base import Store

REGION = RegionName("main")
ENTRY = "op@main"


def put(store: Store, pieces: Iterable[str]) -> None:
    """Pieces that no manifest refers to yet."""
    store.create_entry(ENTRY)
    store.put(ENTRY, {piece: piece.encode() for piece in pieces})


def manifest(epoch: int, pieces: Iterable[str], wall: float = 0.0, job: str = "j") -> Manifest:
    refs = [
        {"entry": ENTRY, "key": p, "size": len(p), "crc": checksum(p.encode()), "chunks": 1}
        for p in sorted(pieces)
    ]
    operator = {"blob": refs[0] if refs else None, "pairs": refs[1:], "segments": []}
    part = {"epoch": epoch, "attempt": 1, "operators": {"op": operator}, "kept": {}}
    return Manifest(
        job, "t", REGION, Epoch(epoch), Attempt(1), OwnerToken(1), wall, {"op": Fingerprint("hosted")}, {ElementName("e"): part},
        Epoch(epoch - 1),
    )  # fmt: skip


def publish(store: Store, epoch: int, pieces: Iterable[str], wall: float = 0.0) -> None:
    """An epoch that needs these pieces; those that are not there yet are put first."""
    store.create_entry(ENTRY)
    put(store, set(pieces) - set(store.keys(ENTRY)))
    job = store.open("t").job_id
    store.publish(REGION, Epoch(epoch), manifests.encode(manifest(epoch, pieces, wall, job)))
