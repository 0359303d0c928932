"""Events and mails as a store takes and gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the event log. `number` increases; `wall` is for people."""

    number: int
    wall: float
    kind: str
    data: Mapping[str, Any]


NewEvent = tuple[str, Mapping[str, Any]]
"""Kind, data."""
Mail = tuple[str, Mapping[str, Any]]
"""Command, data."""
