"""The manifest of an epoch: one line of header, then JSON. See docs/formats/manifest.md.

    holdfast-manifest 3 crc32=89abcdef
    {"job": …, "region": …, "epoch": …, "parts": {element: part}, …}

Must hold, and is checked before a manifest is written and after one was read:
- every part is of the manifest's own epoch and attempt, and of the element under whose name it stands;
- an operator is in one part only;
- nothing is of an earlier epoch, except operators of an epoch that no run established and that says so (`origin`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint import typed_json
from holdfast.checkpoint.old_fingerprints import old_fingerprint
from holdfast.checkpoint.parts import ElementPart, OperatorPart, Piece, Place, places
from holdfast.errors import MismatchError
from holdfast.ids import Attempt, ElementName, Epoch, OwnerToken, RegionName
from holdfast.operators.fingerprint import Fingerprint
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Origin:
    """How an epoch was made that no run established, and from which epoch: by *fork*, *import* or *reset-operator*."""

    kind: str
    epoch: Epoch
    store: str | None = None
    job: str | None = None
    """Where it comes from if that is another store."""
    dropped: tuple[str, ...] = ()
    """Operators that were left behind."""
    reset: tuple[str, ...] = ()
    """Operators that begin with their initial state."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published epoch as data."""

    job: str
    topology: str
    region: RegionName
    epoch: Epoch
    attempt: Attempt
    token: OwnerToken
    wall: float
    fingerprint: Mapping[str, Fingerprint]
    parts: Mapping[ElementName, ElementPart]
    previous: Epoch
    origin: Origin | None = None
    """None: a run established the epoch."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Numbers of operators in the positions of rows that are stored."""

    def may_begin(self, operator: str) -> bool:
        """True if an operator of which this epoch holds nothing begins with its initial state here."""
        if self.origin is None:
            return False
        is_founded = self.origin.kind in ("fork", "import")
        return operator in self.origin.reset or (is_founded and operator not in self.fingerprint)

    def operators(self) -> dict[str, OperatorPart]:
        """Operator parts of all elements, by operator name: operators may move between elements."""
        return {name: part for element in self.parts.values() for name, part in element.operators.items()}

    def pieces(self) -> Iterator[Piece]:
        """All that restoring this epoch reads, besides the manifest."""
        for part in self.parts.values():
            yield from part.pieces()

    def misfit(self) -> str | None:
        """What must hold and does not."""
        if self.previous >= self.epoch:
            return f"the epoch before {self.epoch} cannot be {self.previous}"
        owners: dict[str, ElementName] = {}
        for element, part in self.parts.items():
            if part.element != element:
                return f"the part of element {part.element!r} stands under the name {element!r}"
            if (part.epoch, part.attempt) != (self.epoch, self.attempt):
                return (
                    f"the part of element {element!r} is of epoch {part.epoch}, attempt {part.attempt} instead of "
                    f"epoch {self.epoch}, attempt {self.attempt}"
                )
            for name, operator in part.operators.items():
                if name in owners:
                    return f"operator {name!r} is in the parts of {owners[name]!r} and of {element!r}"
                owners[name] = element
                if operator.epoch is not None and (
                    self.origin is None or not 0 < operator.epoch < self.epoch
                ):
                    return f"operator {name!r} is of epoch {operator.epoch} instead of epoch {self.epoch}"
        return None


def references(manifest: Manifest) -> set[Place]:
    """Every (entry, key) of the store that restoring this epoch reads."""
    return places(manifest.pieces())


# --- bytes ------------------------------------------------------------------------------------------------------------

MAGIC = "holdfast-manifest"
VERSION = 3
"""1 had neither forms nor pairs; in 1 and 2 a part did not say whose it is. Both are read as well."""


def encode(manifest: Manifest) -> bytes:
    if why := manifest.misfit():
        raise ValueError(f"epoch {manifest.epoch} of region {manifest.region!r} cannot be published: {why}")
    return typed_json.encode(MAGIC, VERSION, manifest)


def decode(data: bytes, where: str) -> Manifest:
    """Read and verify; `where` names the file in errors."""
    manifest = typed_json.decode(Manifest, data, MAGIC, VERSION, where, _upgraded)
    if why := manifest.misfit():
        raise typed_json.damaged(where, why)
    return manifest


def _upgraded(version: int, content: Any) -> Any:
    if version < 3:
        for element, part in content["parts"].items():
            part["element"] = element
        for name, text in content["fingerprint"].items():
            if isinstance(text, str):
                content["fingerprint"][name] = old_fingerprint(text).to_json()
    return content


# --- in a store -------------------------------------------------------------------------------------------------------


def read(store: Store, region: RegionName, epoch: Epoch, job: str) -> Manifest:
    """The manifest of an epoch, verified, and of this very job, region and epoch."""
    named = where(store, region, epoch)
    found = decode(store.manifest(region, epoch), named)
    if (found.job, found.region, found.epoch) != (job, region, epoch):
        raise MismatchError(
            f"{named} belongs to job {found.job}, region {found.region!r}, epoch {found.epoch}.",
            cure="Restore the right file from a backup.",
        )
    return found


def where(store: Store, region: RegionName, epoch: Epoch) -> str:
    return f"the manifest of epoch {epoch} of region {region!r} in {store.url}"
