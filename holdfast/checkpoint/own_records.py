"""Checkpoints of operators outside of regions: one record per operator, replaced as a whole. See docs/formats/manifest.md.

    record state.<operator>
    holdfast-checkpoint 2 crc32=89abcdef
    {"operator": …, "checkpoint": {"number": …, "part": {…}, "pace": {…}, "covers": [run, step], "rows": …}}

A record without a checkpoint: the operator was reset and has none. Records of version 1 had neither header nor checksum: the
fields of the part stood beside `number` and `pace`, or the record was `null`. Those are read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint import typed_json
from holdfast.checkpoint.missed_rows_estimate import Pace
from holdfast.checkpoint.parts import OperatorPart
from holdfast.checkpoint.stored_names import record_name
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class OwnCheckpoint:
    """A checkpoint of one operator. Numbers ascend from 1."""

    number: int
    part: OperatorPart
    pace: Pace | None = None
    """None: the operator has nothing that becomes stale, or its pace is not known."""
    covers: tuple[int, ...] = ()
    """Run and step of the element up to which its rows are in the state; empty: an earlier version did not tell."""
    rows: int = 0
    """Rows that went into the state."""


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """What is stored under an operator's name."""

    operator: str
    checkpoint: OwnCheckpoint | None = None


def load(store: Store, operator: str) -> OwnCheckpoint | None:
    name = record_name("state", operator)
    data = store.load_record(name)
    return None if data is None else decode(data, operator, f"the record {name!r} in {store.url}").checkpoint


def save(store: Store, operator: str, checkpoint: OwnCheckpoint | None) -> None:
    """Record an operator's checkpoint; None: it has none any more, and its next one deletes what this one named."""
    store.save_record(record_name("state", operator), encode(OwnRecord(operator, checkpoint)))


MAGIC = "holdfast-checkpoint"
VERSION = 2


def encode(record: OwnRecord) -> bytes:
    return typed_json.encode(MAGIC, VERSION, record)


def decode(data: bytes, operator: str, where: str) -> OwnRecord:
    """Read and verify; `where` names the record in errors. DamagedError if it is another operator's."""
    if data.startswith((b"{", b"null")):
        found = typed_json.parse(OwnRecord, data, 1, where, lambda _, content: _upgraded(operator, content))
    else:
        found = typed_json.decode(OwnRecord, data, MAGIC, VERSION, where)
    if found.operator != operator:
        raise typed_json.damaged(where, f"it is of operator {found.operator!r} instead of {operator!r}")
    return found


def _upgraded(operator: str, content: Any) -> Any:
    """A record of version 1."""
    if content is None:
        return {"operator": operator}
    pace = content.get("pace")
    if pace is not None:
        pace["at_s"] = pace["at"]
    return {"operator": operator, "checkpoint": {"number": content["number"], "part": content, "pace": pace}}
