"""The one stored form of a run's events: a kind and plain data, as the store's event log keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdfast.runtime.telling.events import KINDS, RunEvent, Summary


@dataclass(frozen=True, slots=True)
class OtherEvent:
    """An event that this version has no class for: of a later version, of a tool, or one whose data was left out."""

    kind: str
    data: Mapping[str, Any]


def encode(event: RunEvent) -> tuple[str, dict[str, Any]]:
    """Kind and data for the event log."""
    if isinstance(event, Summary):
        return event.kind, dict(event.status)
    told = {field.name: getattr(event, field.name) for field in fields(event)}
    return event.kind, {name: value for name, value in told.items() if value is not None}


def decode(kind: str, data: Mapping[str, Any]) -> RunEvent | OtherEvent:
    """The event that was stored. Fields that this version does not know are left out."""
    cls = KINDS.get(kind)
    if cls is None or "left_out_bytes" in data:
        return OtherEvent(kind, data)
    if cls is Summary:
        return Summary(data)
    names = {field.name for field in fields(cls)}
    told = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items() if name in names}
    try:
        return cls(**told)
    except TypeError:  # a field is missing that this version needs
        return OtherEvent(kind, data)
