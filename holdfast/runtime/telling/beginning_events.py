"""Events of the beginning of a run: what it found to be another than when the run before ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.runtime.telling.events import RunEvent


@dataclass(frozen=True, slots=True)
class ProgramChanged(RunEvent):
    """The program is another than in the run before: a sentence for each difference that no `TopologyChanged` tells."""

    kind: ClassVar[str] = "program.changed"
    changes: tuple[str, ...]
