"""Checkpoints of operators outside of regions: one record per operator, replaced as a whole. See docs/formats/manifest.md.

    record state.<operator>
    holdfast-checkpoint 2 crc32=89abcdef
    {"operator": …, "number": …, "part": {…}, "pace": {…}, "covers": [run, step], "rows": …}

A record without a part: the operator was reset and has no checkpoint. Before version 2 there was neither header nor checksum:
the fields of the part stood beside `number`, or the record was `null`. Those are read as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint import checked_json
from holdfast.checkpoint.checked_json import Field
from holdfast.checkpoint.missed_rows_estimate import Pace
from holdfast.checkpoint.part_encoding import operator_data, operator_part
from holdfast.checkpoint.parts import OperatorPart
from holdfast.store.base import Store

MAGIC = "holdfast-checkpoint"
VERSION = 2
PREFIX = "state."


@dataclass(frozen=True, slots=True)
class OwnCheckpoint:
    """A checkpoint of one operator. Numbers ascend from 1."""

    operator: str
    number: int
    part: OperatorPart
    pace: Pace | None = None
    """None: the operator has nothing that becomes stale, or its pace is not known."""
    covers: tuple[int, int] | None = None
    """Run and step of the element up to which its rows are in the state; None: an earlier version did not tell."""
    rows: int = 0
    """Rows that went into the state."""


def record_of(operator: str) -> str:
    """The name of an operator's record."""
    return f"{PREFIX}{operator}"


def load(store: Store, operator: str) -> OwnCheckpoint | None:
    """The checkpoint of an operator; None: it has none."""
    data = store.load_record(record_of(operator))
    return (
        None if data is None else decode(data, operator, f"the record {record_of(operator)!r} in {store.url}")
    )


def save(store: Store, checkpoint: OwnCheckpoint) -> None:
    store.save_record(record_of(checkpoint.operator), encode(checkpoint))


def forget(store: Store, operator: str) -> None:
    """The operator has no checkpoint any more. Its next one deletes what this one named."""
    store.save_record(record_of(operator), checked_json.encode(MAGIC, VERSION, {"operator": operator}))


def encode(checkpoint: OwnCheckpoint) -> bytes:
    return checked_json.encode(MAGIC, VERSION, as_data(checkpoint))


def as_data(checkpoint: OwnCheckpoint) -> dict[str, Any]:
    """The fields of the record."""
    fields: dict[str, Any] = {
        "operator": checkpoint.operator,
        "number": checkpoint.number,
        "part": operator_data(checkpoint.part),
    }
    if checkpoint.covers is not None:
        fields |= {"covers": list(checkpoint.covers), "rows": checkpoint.rows}
    if (pace := checkpoint.pace) is not None:
        fields["pace"] = {"at": pace.at_s, "had": pace.had, "rows": pace.rows, "seconds": pace.seconds}
    return fields


def decode(data: bytes, operator: str, where: str) -> OwnCheckpoint | None:
    """Read and verify; `where` names the record in errors. DamagedError if it is another operator's."""
    if data == b"null":
        return None
    if data.startswith(b"{"):
        found = checked_json.parse(data, where)
        return _checkpoint(operator, found, found)
    _, found = checked_json.decode(data, MAGIC, VERSION, where)
    if (owner := found["operator"].text()) != operator:
        raise checked_json.damaged(where, f"it is of operator {owner!r} instead of {operator!r}")
    return found.optional("part", lambda part: _checkpoint(operator, found, part))


def _checkpoint(operator: str, found: Field, part: Field) -> OwnCheckpoint:
    number = found["number"].whole(least=1)
    return OwnCheckpoint(
        operator,
        number,
        operator_part(part),
        found.optional("pace", _pace),
        found.optional("covers", _covers),
        found.optional("rows", Field.whole) or 0,
    )


def _covers(found: Field) -> tuple[int, int]:
    run, step = map(Field.whole, found.items())
    return run, step


def _pace(found: Field) -> Pace:
    return Pace(
        at_s=found["at"].number(),
        had=tuple(map(Field.whole, found["had"].items())),
        rows=tuple(map(Field.number, found["rows"].items())),
        seconds=found["seconds"].number(),
    )
