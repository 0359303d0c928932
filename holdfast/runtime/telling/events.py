"""Events of a run as values. How they are stored: `stored_events.py`.

Must hold: a kind and the names of its fields never change their meaning, and a field that comes later has a default. So
every log can be read, of earlier versions and of later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.runtime.telling.epoch_events import EpochVisible as EpochVisible
from holdfast.runtime.telling.loss_events import BudgetExceeded as BudgetExceeded
from holdfast.runtime.telling.loss_events import BudgetResumed as BudgetResumed
from holdfast.runtime.telling.loss_events import ElementParked as ElementParked
from holdfast.runtime.telling.loss_events import ElementResumed as ElementResumed
from holdfast.runtime.telling.row_events import RowsLate as RowsLate
from holdfast.runtime.telling.row_events import RowsLeftOut as RowsLeftOut
from holdfast.runtime.telling.row_events import RowsLost as RowsLost
from holdfast.runtime.telling.row_events import RowsMalformed as RowsMalformed
from holdfast.runtime.telling.row_events import RowsRepeated as RowsRepeated
from holdfast.runtime.telling.row_events import RowsStale as RowsStale
from holdfast.runtime.telling.row_events import RowsTimeless as RowsTimeless
from holdfast.runtime.telling.run_event import KINDS as KINDS
from holdfast.runtime.telling.run_event import RunEvent as RunEvent
from holdfast.runtime.telling.timing_events import EpochDecided as EpochDecided
from holdfast.runtime.telling.timing_events import StateSizes as StateSizes
from holdfast.runtime.telling.timing_events import TimingProfiled as TimingProfiled
from holdfast.runtime.telling.window_events import WindowsRestored as WindowsRestored

# --- the run ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunStarted(RunEvent):
    """`sources`: where each begins to read."""

    kind: ClassVar[str] = "run.started"
    topology: str
    until: str | None = None
    store: str | None = None
    regions: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    """User, host and process that runs it."""


@dataclass(frozen=True, slots=True)
class TopologyChanged(RunEvent):
    """A region goes on from `epoch` of another version of its topology. `new`: operators that begin there with their initial
    state. `gone`: operators whose state nothing reads any more. `changed`: operators that are taken over, with the names of what in them
    is "new" and "gone", of aggregates for example. Told by a run that started."""

    kind: ClassVar[str] = "topology.changed"
    region: str
    epoch: int
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """For people."""
        said = [f"operator {name!r} is new and begins with nothing" for name in self.new]
        said += [f"operator {name!r} is gone, nothing reads its state any more" for name in self.gone]
        for name, what in self.changed.items():
            new, gone = ", ".join(what.get("new", ())), ", ".join(what.get("gone", ()))
            parts = [f"{new} begins with nothing"] * bool(new) + [f"{gone} is dropped"] * bool(gone)
            said.append(f"operator {name!r} is taken over with changes: {'; '.join(parts)}")
        return said


@dataclass(frozen=True, slots=True)
class RunRefused(RunEvent):
    """The run could not start. `error`: the name of the exception."""

    kind: ClassVar[str] = "run.refused"
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class RunFailed(RunEvent):
    """No reset can help; the run ends."""

    kind: ClassVar[str] = "run.failed"
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded(RunEvent):
    """The last event of a run that was not killed. `state` as in its status: ended, failed, parked, … `rows`: what its
    elements processed. `left_out`: late, malformed and lost rows, in words."""

    kind: ClassVar[str] = "run.ended"
    topology: str
    state: str
    uptime_s: float
    rows: int | None = None
    epochs: int | None = None
    resets: int | None = None
    left_out: tuple[str, ...] = ()
    error: str | None = None
    """Of a run that failed or is parked: why."""


@dataclass(frozen=True, slots=True)
class Summary(RunEvent):
    """The run's status, each second. Stored as it is, not below a name."""

    kind: ClassVar[str] = "summary"
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MailArrived(RunEvent):
    """Somebody asked the run for something, by the command line for example."""

    kind: ClassVar[str] = "mail"
    command: str
    by: str = ""
    """User, host and process, as the letter tells."""


# --- regions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EpochPublished(RunEvent):
    """An epoch exists, `ms` after it began. `bytes`: what it added to the store. `restore_s`: how long restoring it is
    predicted to take. `bases`, `deltas`: operators stored as such. `last`: the element that the others waited for. `whole_bytes`: all that
    restoring it reads."""

    kind: ClassVar[str] = "epoch.published"
    region: str
    epoch: int
    attempt: int | None = None
    ms: float = 0.0
    bytes: int = 0
    restore_s: float | None = None
    bases: int | None = None
    deltas: int | None = None
    last: str | None = None
    whole_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class EpochOverdue(RunEvent):
    """An epoch has been under way for long. `held_up_by`: elements, operators and connections."""

    kind: ClassVar[str] = "epoch.overdue"
    region: str
    epoch: int
    seconds: float
    held_up_by: str


@dataclass(frozen=True, slots=True)
class EpochAborted(RunEvent):
    kind: ClassVar[str] = "epoch.aborted"
    region: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class EpochWithdrawn(RunEvent):
    """The newest epoch was damaged and never visible; the run goes on from the epoch `to`."""

    kind: ClassVar[str] = "epoch.withdrawn"
    region: str
    epoch: int
    to: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResetBegun(RunEvent):
    """The region goes back to `epoch`. `consecutive`: how many times without progress; 0 when a run begins or a person
    resumed it. `element`: the one that failed, if it was one."""

    kind: ClassVar[str] = "reset.begin"
    region: str
    epoch: int
    attempt: int
    consecutive: int
    reason: str = ""
    element: str | None = None


@dataclass(frozen=True, slots=True)
class Restored(RunEvent):
    """Every element of the region has its state of `epoch`. Times: measured, predicted, and the bound if there is one."""

    kind: ClassVar[str] = "reset.done"
    region: str
    epoch: int
    attempt: int
    restore_s: float | None = None
    restore_predicted_s: float | None = None
    restore_within_s: float | None = None


@dataclass(frozen=True, slots=True)
class RestoreBoundExceeded(RunEvent):
    """These operators alone make a restore longer than the bound. Told once in a run."""

    kind: ClassVar[str] = "restore.bound_exceeded"
    region: str
    operators: tuple[str, ...]
    bound_s: float | None = None
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class RegionPaused(RunEvent):
    """The region waits for space."""

    kind: ClassVar[str] = "region.paused"
    region: str
    reason: str


@dataclass(frozen=True, slots=True)
class RegionHasSpace(RunEvent):
    """It waits no longer."""

    kind: ClassVar[str] = "region.space"
    region: str


@dataclass(frozen=True, slots=True)
class RegionParked(RunEvent):
    kind: ClassVar[str] = "region.parked"
    region: str
    reason: str


@dataclass(frozen=True, slots=True)
class RegionStopped(RunEvent):
    """The region has come to its end in order."""

    kind: ClassVar[str] = "region.stopped"
    region: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SavepointNamed(RunEvent):
    kind: ClassVar[str] = "savepoint.named"
    region: str
    name: str
    epoch: int
    id: str | None = None


@dataclass(frozen=True, slots=True)
class SavepointFailed(RunEvent):
    """`region` is None if the request named none that exists."""

    kind: ClassVar[str] = "savepoint.failed"
    name: str
    id: str
    reason: str
    region: str | None = None


@dataclass(frozen=True, slots=True)
class SavepointDeleted(RunEvent):
    kind: ClassVar[str] = "savepoint.deleted"
    region: str
    name: str
    epoch: int


# --- elements, operators and rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ElementFailed(RunEvent):
    """A step, or what comes before one, failed. In a region a reset follows."""

    kind: ClassVar[str] = "element.failed"
    element: str
    reason: str
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ElementPaused(RunEvent):
    """An element outside of regions waits for space."""

    kind: ClassVar[str] = "element.paused"
    element: str
    reason: str


@dataclass(frozen=True, slots=True)
class ElementGaveUp(RunEvent):
    """An element outside of regions failed too often: its input is thrown away from now on, and counted."""

    kind: ClassVar[str] = "element.gave_up"
    element: str
    reason: str
    keeps_input: bool = False
    """Nothing is thrown away: the next run goes on where this one stood."""


@dataclass(frozen=True, slots=True)
class AttributesFilled(RunEvent):
    """A stored state lacked these attributes of a Python operator: they are as in a fresh instance."""

    kind: ClassVar[str] = "operator.filled"
    operator: str
    attributes: tuple[str, ...]
    region: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorCheckpointed(RunEvent):
    """An operator outside of regions stored its own checkpoint."""

    kind: ClassVar[str] = "operator.checkpoint"
    operator: str
    number: int


@dataclass(frozen=True, slots=True)
class GroupSizeChosen(RunEvent):
    """What checkpoints of a window cost says that its groups should have another size. Seconds from one checkpoint to the next, by
    rows of a group."""

    kind: ClassVar[str] = "operator.group_size"
    operator: str
    rows: int
    seconds_by_rows: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OperatorCheckpointFailed(RunEvent):
    kind: ClassVar[str] = "operator.checkpoint_failed"
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperatorDamaged(RunEvent):
    """Its own checkpoint cannot be read; it begins anew."""

    kind: ClassVar[str] = "operator.damaged"
    operator: str
    reason: str
