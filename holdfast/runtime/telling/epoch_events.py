"""Events about how an epoch went, for those who want to know where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.runtime.telling.run_event import RunEvent


@dataclass(frozen=True, slots=True)
class EpochVisible(RunEvent):
    """The output of an epoch is visible. All times in milliseconds since it began: when it was published and when visible; of each element when
    it heard of the epoch ("begun"), when its state was pinned, and when that was in the store ("stored")."""

    kind: ClassVar[str] = "epoch.visible"
    region: str
    epoch: int
    published_ms: float
    visible_ms: float
    elements: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
