"""Parts as plain data for JSON, and back: the one place that knows the names of stored fields. docs/formats/manifest.md.

What is empty is left out. Reading is strict: a wrong type, a negative size or a missing field is damage, told by its place.
Fields that are not known are passed over; a change that old readers must not miss raises the version of what holds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from holdfast.checkpoint.adaptive import History
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.checked_json import Field
from holdfast.checkpoint.parts import (
    Chained,
    ElementPart,
    Groups,
    Kept,
    KeptBatch,
    OperatorPart,
    StoredForm,
    Whole,
)
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.store.base import SegmentRef

CRC_MAX = (1 << 32) - 1
T = TypeVar("T")


# --- writing ------------------------------------------------------------------------------------------------------------


def element_data(part: ElementPart) -> dict[str, Any]:
    return _filled(
        element=part.element,
        epoch=part.epoch,
        attempt=part.attempt,
        operators={name: operator_data(each) for name, each in part.operators.items()},
        kept=_kept_data(part.kept),
        captured=_kept_data(part.captured),
        borders={name: dict(counts) for name, counts in part.borders.items()},
    )


def operator_data(part: OperatorPart) -> dict[str, Any]:
    return _filled(
        blob=part.blob and asdict(part.blob),
        pairs=[asdict(ref) for ref in part.pairs],
        segments=[_files_data(partition) for partition in part.segments],
        form=part.form and form_data(part.form),
        epoch=part.epoch,
    )


def form_data(form: StoredForm) -> dict[str, Any]:
    match form:
        case Whole():
            return {"kind": form.kind}
        case Groups(rows):
            return {"kind": form.kind, "rows": dict(rows)}
        case Chained(kind, history, predicted_s):
            return {"kind": kind, "history": asdict(history), "predicted_s": predicted_s}


def _kept_data(kept: Kept) -> dict[str, Any]:
    return {
        connection: [
            {
                "rows": batch.rows,
                "files": _files_data(batch.files),
                **_filled(skip=batch.skip or None),
            }
            for batch in batches
        ]
        for connection, batches in kept.items()
    }


def _files_data(refs: Iterable[SegmentRef]) -> list[list[Any]]:
    return [[ref.entry, ref.key, ref.size, ref.crc] for ref in refs]


def _filled(**fields: Any) -> dict[str, Any]:
    """Without what is empty."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


# --- reading ------------------------------------------------------------------------------------------------------------


def element_part(found: Field, element: str | None = None) -> ElementPart:
    """`element`: whose it is where the part itself does not say, in manifests of versions 1 and 2."""
    return ElementPart(
        element=ElementName(found["element"].text() if element is None else element),
        epoch=Epoch(found["epoch"].whole()),
        attempt=Attempt(found["attempt"].whole()),
        operators={name: operator_part(each) for name, each in found.members_of("operators").items()},
        kept=_kept(found, "kept"),
        captured=_kept(found, "captured"),
        borders={
            ConnectionId(name): {counter: number.whole() for counter, number in counts.members().items()}
            for name, counts in found.members_of("borders").items()
        },
    )


def operator_part(found: Field) -> OperatorPart:
    return OperatorPart(
        blob=found.optional("blob", _blob),
        pairs=tuple(map(_blob, found.items_of("pairs"))),
        segments=tuple(
            tuple(map(segment_ref, partition.items())) for partition in found.items_of("segments")
        ),
        form=found.optional("form", _form),
        epoch=found.optional("epoch", lambda epoch: Epoch(epoch.whole(least=1))),
    )


def _blob(found: Field) -> BlobRef:
    size = found["size"].whole()
    return BlobRef(
        found["entry"].text(),
        found["key"].text(),
        size,
        found["crc"].whole(most=CRC_MAX),
        found["chunks"].whole(least=1, most=max(1, size)),
    )


def segment_ref(found: Field) -> SegmentRef:
    """A segment, or any piece of which entry, key, size and checksum are told."""
    entry, key, size, crc = found.items(4)
    return SegmentRef(entry.text(), key.text(), size.whole(), crc.whole(most=CRC_MAX))


def _form(found: Field) -> StoredForm:
    kind = found["kind"]
    match kind.text():
        case "full":
            return Whole()
        case "groups":
            return Groups({name: rows.whole() for name, rows in found["rows"].members().items()})
        case ("base" | "delta") as form:
            return Chained(form, _record(History, found["history"]), found["predicted_s"].number())
        case other:
            raise kind.wrong(f"is {other!r}, which nobody knows")


def _record(kind: type[T], found: Field) -> T:
    """A dataclass of numbers, by its own annotations; what is missing has its default. Costs are no promise: any number
    will do."""
    values = {
        name: _number(hint, each)
        for name, hint in get_type_hints(kind).items()
        if (each := found.get(name)) is not None
    }
    try:
        return kind(**values)
    except TypeError as error:
        raise found.wrong(f"lacks a field ({error})") from error


def _number(hint: Any, found: Field) -> Any:
    if isinstance(hint, UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    if hint is int:
        return found.whole(least=-(1 << 63))
    return found.number() if hint is float else _record(hint, found)


def _kept(found: Field, name: str) -> dict[ConnectionId, tuple[KeptBatch, ...]]:
    return {
        ConnectionId(connection): tuple(map(_batch, batches.items()))
        for connection, batches in found.members_of(name).items()
    }


def _batch(found: Field) -> KeptBatch:
    rows = found["rows"].whole()
    files = tuple(map(segment_ref, found["files"].items()))
    return KeptBatch(rows, files, found.optional("skip", lambda skip: skip.whole(most=rows)) or 0)
