"""What an element outside of regions is told, and what it answers: events and commands of `autonomous.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol.accounts import Account, Loss

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins; what earlier ones lost is settled."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The next step has its input: how far each connection it takes from is taken, and how many rows it holds."""

    taken: Mapping[ConnectionId, int]
    rows: int
    at: float = 0.0
    """By the wall clock."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """The step under way ended well and its rows are handed on: rows by connection. `left`: rows it gave back, and
    how far the connections they came along are taken without them. `as_stored`: operators whose state is what a restart
    would give them, so that nothing would be lost with it."""

    sent: Mapping[ConnectionId, int] = field(default_factory=dict)
    left: int = 0
    taken: Mapping[ConnectionId, int] = field(default_factory=dict)
    as_stored: frozenset[OperatorName] = frozenset()


@dataclass(frozen=True, slots=True)
class StepFailed:
    """The step under way failed, or what comes before one: to ask sources, to restore operators. `rows`: all it held,
    counted. `spoiled`: operators whose state before it is gone. `sent`: what was handed on all the same."""

    reason: str
    rows: int
    spoiled: frozenset[OperatorName] = frozenset()
    sent: Mapping[ConnectionId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recounted:
    """Rows that steps took since the last checkpoints, or since this came last, and whose number was not known until now."""

    rows: int


@dataclass(frozen=True, slots=True)
class Restored:
    """An operator has a state again. `lost`: rows that its checkpoint held and that could not be read; None: nobody can
    tell any more, so all that went into it."""

    operator: OperatorName
    lost: int | None = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointDue:
    """The period of some operators has passed. Those in which nothing has happened since their last checkpoints need none, but for
    those in `must`."""

    operators: frozenset[OperatorName]
    must: frozenset[OperatorName] = frozenset()


@dataclass(frozen=True, slots=True)
class Stirred:
    """Something happened in these operators without a step: threads of their own were at work."""

    operators: frozenset[OperatorName]


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """An operator's checkpoint is durable: it covers every step up to the one behind which it was taken. `held`: rows that went into it."""

    operator: OperatorName
    held: int = 0


@dataclass(frozen=True, slots=True)
class NotCheckpointed:
    """An operator's checkpoint could not be stored: the one before stays."""

    operator: OperatorName


@dataclass(frozen=True, slots=True)
class Discarded:
    """Input of an element that gave up was thrown away."""

    taken: Mapping[ConnectionId, int]
    rows: int


@dataclass(frozen=True, slots=True)
class Rest:
    """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Read no more from sources."""


@dataclass(frozen=True, slots=True)
class Park:
    """More is lost than may be: take nothing until Unpark."""


@dataclass(frozen=True, slots=True)
class Unpark:
    """Somebody resumes."""


@dataclass(frozen=True, slots=True)
class InputsOver:
    """Nothing more will come."""


AutonomousEvent = (
    Begin | Gathered | StepDone | StepFailed | Recounted | Restored | CheckpointDue | Checkpointed | NotCheckpointed | Discarded
    | Stirred | Rest | Stop | Park | Unpark | InputsOver
)  # fmt: skip


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SaveAccount:
    """Write the account durably, with the positions of the sources, before anything else happens."""

    account: Account


@dataclass(frozen=True, slots=True)
class RunStep:
    """Run the step whose input was gathered; answer StepDone or StepFailed."""


@dataclass(frozen=True, slots=True)
class GoOnFromBefore:
    """The operators keep the versions they had before the failed step, and drop what it made."""

    operators: tuple[OperatorName, ...]


@dataclass(frozen=True, slots=True)
class RestoreOperator:
    """Load the operator's own checkpoint; without one, its initial state. Answer Restored."""

    operator: OperatorName


@dataclass(frozen=True, slots=True)
class CheckpointOperator:
    """Take the operator's state as it is now, and store it while steps go on; answer Checkpointed or NotCheckpointed between two steps, before
    the operator is restored."""

    operator: OperatorName


@dataclass(frozen=True, slots=True)
class TellLoss:
    """Rows are gone, and counted: let people know."""

    loss: Loss


@dataclass(frozen=True, slots=True)
class GiveUp:
    """From here on input is thrown away and counted, and sources are not read."""

    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Close the outputs; the thread ends."""


AutonomousCommand = (
    SaveAccount | RunStep | GoOnFromBefore | RestoreOperator | CheckpointOperator | TellLoss | GiveUp | End
)
