"""Events of operators whose checkpoints stand in their output logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.runtime.telling.events import RunEvent


@dataclass(frozen=True, slots=True)
class WindowsRestored(RunEvent):
    """An operator went back to what its output log tells: so many windows, read from so many bytes of records, and rows replayed."""

    kind: ClassVar[str] = "operator.windows_restored"
    operator: str
    windows: int
    bytes: int
    rows: int
