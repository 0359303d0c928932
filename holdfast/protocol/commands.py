"""Commands of a region's controller: what its rim performs. Frozen values; equality is by content."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.ids import ElementName, Epoch
from holdfast.protocol.messages import (
    BeginEpoch,
    BeginReset,
    ControllerRecord,
    GoOn,
    Numbered,
    Prepare,
    Resume,
)
from holdfast.protocol.shape import MarkerKind


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the record durably before performing any later command of the same list."""

    record: ControllerRecord


@dataclass(frozen=True, slots=True)
class Publish(Numbered):
    """Write the epoch's manifest from the elements' parts, atomically; answer Published or PublishFailed."""

    parts: dict[ElementName, object] = field(compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitSinks:
    """Make the epoch's output visible (idempotent), then release what nobody needs; answer Committed or CommitFailed."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class AbortEpoch:
    """The epoch will never be published: its uploaded pieces may be collected."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class StartDrainTimer(Numbered):
    """Answer DrainTimedOut when the time for establishing the epoch is over."""


@dataclass(frozen=True, slots=True)
class StartResetTimer(Numbered):
    """Answer ResetTimedOut when the time for restoring the epoch is over."""


@dataclass(frozen=True, slots=True)
class AwaitSpace:
    """Stop the elements of the region and probe the store until it accepts writes; answer SpaceReturned."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """Give up until a person resumes the region. Nothing is lost."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """The final epoch is committed: end the region's elements."""

    epoch: Epoch


ControllerCommand = (
    Persist | Prepare | BeginEpoch | Resume | BeginReset | GoOn | Publish | CommitSinks | AbortEpoch | StartDrainTimer
    | StartResetTimer | AwaitSpace | Park | Stop
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An epoch that is being established, as the controller knows it."""

    epoch: Epoch
    style: MarkerKind
    silent: frozenset[ElementName]
    """Elements that have not acknowledged."""
    asked: frozenset[ElementName]
    """Elements that were told to begin; the others wait for markers."""
