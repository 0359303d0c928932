"""Epochs made by hand: a manifest that refers to named pieces, and the pieces."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import ElementPart, OperatorPart
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
    refs = [BlobRef(ENTRY, p, len(p), checksum(p.encode())) for p in sorted(pieces)]
    operator = OperatorPart(refs[0] if refs else None, tuple(refs[1:]))
    part = ElementPart(ElementName("e"), Epoch(epoch), Attempt(1), {"op": operator})
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
