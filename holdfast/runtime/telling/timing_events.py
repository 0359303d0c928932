"""Events of regions whose epochs are timed by the size of their state (trigger="aware"). Times are those of the wall clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.runtime.telling.run_event import RunEvent


@dataclass(frozen=True, slots=True)
class EpochDecided(RunEvent):
    """An epoch is to begin. `size`: of the dynamic elements, which is compared with `s_max`; of all as long as it is not known
    which are. `state_bytes`: of all elements."""

    kind: ClassVar[str] = "epoch.decided"
    region: str
    reason: str
    at: float
    size: int
    state_bytes: int
    s_max: int | None = None


@dataclass(frozen=True, slots=True)
class TimingProfiled(RunEvent):
    """What the last periods say: which elements are dynamic, the threshold, and the least and average sum of their sizes."""

    kind: ClassVar[str] = "timing.profiled"
    region: str
    at: float
    s_max: int
    s_min: int
    average: int
    dynamic: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSizes(RunEvent):
    """How sizes changed in a period: turning points [time, bytes] of each element, the last one where the period ended."""

    kind: ClassVar[str] = "state.sizes"
    region: str
    curves: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
