"""What an element of mode `independent` did since its newest epoch, as a record in the store: written when a run ends in order."""

from __future__ import annotations

from typing import Any

from holdfast.checkpoint.stored_names import record_name
from holdfast.durable import checksum
from holdfast.errors import DamagedError, StateError
from holdfast.ids import ElementName, Epoch
from holdfast.language.connectors import Slice
from holdfast.runtime.element.epochs.repeating import Did, Left
from holdfast.runtime.runs.operator_runs import CLOSING
from holdfast.state.values import codec
from holdfast.store.base import Store


def save(store: Store, element: ElementName, left: Left) -> None:
    """Nothing is saved of steps whose slices are no plain data: their rows are counted, as after the death of a driver."""
    try:
        data = codec.encode(
            {
                "epoch": int(left.epoch),
                "steps": [_as_data(did) for did in left.steps],
                "sent": {id: list(sizes) for id, sizes in left.sent.items()},
                "waiting": dict(left.waiting),
            }
        )
    except StateError:
        return
    store.save_record(record_name("journal", element), checksum(data).to_bytes(4, "big") + data)


def load(store: Store, element: ElementName) -> Left | None:
    name = record_name("journal", element)
    raw = store.load_record(name)
    if raw is None:
        return None
    if checksum(raw[4:]).to_bytes(4, "big") != raw[:4]:
        raise DamagedError(
            f"the record {name!r} in {store.url} is damaged: its checksum does not match.",
            cure="Restore it, or delete it: then what was on its way between elements is counted as lost.",
        )
    found = codec.decode(raw[4:])
    steps = tuple(_from_data(step) for step in found["steps"])
    return Left(Epoch(found["epoch"]), steps, found["sent"], found["waiting"])


def _as_data(did: Did) -> dict[str, Any]:
    slices = {
        name: None if piece is CLOSING else [piece.start, piece.end, piece.rows, piece.bytes, piece.boundary, piece.detail]
        for name, piece in did.slices.items()
    }  # fmt: skip
    sources = {name: list(place) for name, place in did.sources.items()}
    return {"slices": slices, "sources": sources, "batches": dict(did.batches), "drain": did.drain}


def _from_data(data: dict[str, Any]) -> Did:
    slices = {name: CLOSING if piece is None else Slice(*piece) for name, piece in data["slices"].items()}
    sources = {name: tuple(place) for name, place in data["sources"].items()}
    return Did(slices, sources, data["batches"], data["drain"])
