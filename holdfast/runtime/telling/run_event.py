"""What all events of a run have in common, and the list of their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

KINDS: dict[str, type[RunEvent]] = {}
"""Every kind this version knows."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run. One subclass per kind; a field that is None is not stored."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls
