"""An element outside of regions: best effort, on its own. Events in, commands out.

The element's loop owns the machine and feeds it between two steps. It performs the returned commands in order.

    new ──Begin──▶ running ──a step fails too often──▶ gave up ──▶ ended
                      │  ▲                                 ▲
                      │  └──a step fails: it goes on───────┤
                      └──Stop: sources are read no more──▶ draining ──inputs are over──▶ ended

What must hold is in `accounts.py`: an account is saved before the step whose rows it takes, so rows that a kill
costs are known to the next run. A step that fails costs its rows; each operator goes on from the version before it, or,
if that is gone, from its own checkpoint, which costs what it took since.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol.accounts import Account, Loss
from holdfast.protocol.phases import Machine

MAX_CONSECUTIVE_FAILURES = 5


class AutonomousPhase(StrEnum):
    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"  # sources are read no more; inputs are worked off
    GAVE_UP = "gave up"  # input is thrown away and counted
    ENDED = "ended"


_N, _R, _D = AutonomousPhase.NEW, AutonomousPhase.RUNNING, AutonomousPhase.DRAINING
_G, _E = AutonomousPhase.GAVE_UP, AutonomousPhase.ENDED

AUTONOMOUS_MOVES: Mapping[AutonomousPhase, frozenset[AutonomousPhase]] = {
    _N: frozenset({_R}),
    _R: frozenset({_D, _G, _E}),
    _D: frozenset({_G, _E}),
    _G: frozenset({_E}),
    _E: frozenset(),
}


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins; what earlier ones lost is settled."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The next step has its input: how far each connection it takes from is taken, and how many rows it holds."""

    taken: Mapping[ConnectionId, int]
    rows: int


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
    """Rows that steps took since the last checkpoints, and whose number was not known until now."""

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
    """The period of some operators has passed."""

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
class InputsOver:
    """Nothing more will come."""


AutonomousEvent = (
    Begin | Gathered | StepDone | StepFailed | Recounted | Restored | CheckpointDue | Checkpointed | NotCheckpointed
    | Discarded
    | Rest | Stop | InputsOver
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


class AutonomousMachine(Machine[AutonomousPhase]):
    """Decides what one element outside of regions does. `stateful`: its operators with state; `kept`: those of them
    that store checkpoints of their own."""

    def __init__(
        self,
        account: Account,
        stateful: tuple[OperatorName, ...],
        kept: frozenset[OperatorName] = frozenset(),
    ) -> None:
        super().__init__(f"element {account.element}", AUTONOMOUS_MOVES, AutonomousPhase.NEW)
        self.account = account
        self._stateful = stateful
        self._kept = kept
        self._ready: frozenset[OperatorName] = frozenset()  # operators that have a state worth a checkpoint
        self.failed_in_a_row = 0
        self._is_saved = False

    @property
    def may_step(self) -> bool:
        return self.phase in (_R, _D)

    @property
    def may_read_sources(self) -> bool:
        return self.phase is _R

    @property
    def discards(self) -> bool:
        return self.phase is _G

    # --- the one method that changes state --------------------------------------------------------------------------

    def handle(self, event: AutonomousEvent) -> list[AutonomousCommand]:
        self._note(event)
        match event:
            case Begin():
                self._move(_R)
                return [RestoreOperator(name) for name in self._stateful]
            case Gathered(taken, rows):
                return self._on_gathered(taken, rows)
            case StepDone():
                return self._on_done(event)
            case StepFailed():
                return self._on_failed(event)
            case Recounted(rows):
                absorbed = {name: old + rows for name, old in self.account.absorbed.items()}
                self._change(absorbed=absorbed)
                return []
            case Restored(operator, lost, reason):
                return self._on_restored(operator, lost, reason)
            case CheckpointDue(operators):
                return self._checkpoints(operators)
            case Checkpointed(operator, held):
                return self._on_checkpointed(operator, held)
            case NotCheckpointed(operator):
                self._change(pinned=self._pinned_without({operator}))
                return []
            case Discarded(taken, rows):
                self._change(taken={**self.account.taken, **taken})
                return self._lose([self._loss(rows, "the element gave up")])
            case Rest():
                return self._save_changes()
            case Stop():
                if self.phase is _R:
                    self._move(_D)
                return []
            case InputsOver():
                self._move(_E)
                return [*(self._checkpoints(frozenset(self._stateful)) or self._save_changes()), End()]

    def _change(self, **fields: object) -> None:
        self.account = replace(self.account, **fields)  # type: ignore[arg-type]
        self._is_saved = False

    def _save(self) -> list[AutonomousCommand]:
        self._is_saved = True
        return [SaveAccount(self.account)]

    def _save_changes(self) -> list[AutonomousCommand]:
        return [] if self._is_saved else self._save()

    # --- steps ------------------------------------------------------------------------------------------------------

    def _on_gathered(self, taken: Mapping[ConnectionId, int], rows: int) -> list[AutonomousCommand]:
        step = self.account.step + 1
        self._change(step=step, taken={**self.account.taken, **taken}, in_flight=rows)
        return [*self._save(), RunStep()]

    def _on_done(self, event: StepDone) -> list[AutonomousCommand]:
        self.failed_in_a_row = 0
        rows = self.account.in_flight - event.left
        old = self.account.absorbed.items()
        absorbed = {name: 0 if name in event.as_stored else before + rows for name, before in old}
        taken = {**self.account.taken, **event.taken}
        # What is on its way into the store is the same state: none of the absorbed rows is missing in it.
        pinned = {
            n: (at, 0 if n in event.as_stored else n_in) for n, (at, n_in) in self.account.pinned.items()
        }
        self._change(
            sent=self._sent_after(event.sent), taken=taken, in_flight=0, absorbed=absorbed, pinned=pinned
        )
        return []

    def _on_failed(self, event: StepFailed) -> list[AutonomousCommand]:
        self.failed_in_a_row += 1
        self._ready -= event.spoiled
        spoiled = [name for name in self._stateful if name in event.spoiled]
        good = tuple(name for name in self._stateful if name not in event.spoiled)
        losses = [self._loss(event.rows, event.reason), *(self._lost_state(name, event) for name in spoiled)]
        absorbed = {name: 0 if name in spoiled else old for name, old in self.account.absorbed.items()}
        pinned = self._pinned_without(event.spoiled)
        self._change(sent=self._sent_after(event.sent), in_flight=0, absorbed=absorbed, pinned=pinned)
        commands = self._lose(losses)
        commands += [GoOnFromBefore(good)] if good else []
        if self.failed_in_a_row > MAX_CONSECUTIVE_FAILURES:
            self._move(_G)
            return [*commands, GiveUp(f"failed {self.failed_in_a_row} times in a row: {event.reason}")]
        return [*commands, *(RestoreOperator(name) for name in spoiled)]

    def _lost_state(self, name: OperatorName, event: StepFailed) -> Loss:
        reason = f"{event.reason}; operator {name} goes back to its last checkpoint"
        return self._loss(event.rows + self.account.absorbed.get(name, 0), reason, name)

    def _sent_after(self, sent: Mapping[ConnectionId, int]) -> dict[ConnectionId, int]:
        return {id: before + sent.get(id, 0) for id, before in self.account.sent.items()}

    def _on_restored(self, operator: OperatorName, lost: int | None, reason: str) -> list[AutonomousCommand]:
        self._ready |= {operator}
        if lost is None:
            lost = self.account.held.get(operator, 0)
        if not lost and not reason:
            return []
        reason = reason or f"the checkpoint of operator {operator} is gone"
        # Another checkpoint at once: the damaged one would be counted again by every run that reads it.
        return [*self._lose([self._loss(lost, reason, operator)]), *self._checkpoints(frozenset({operator}))]

    # --- own checkpoints --------------------------------------------------------------------------------------------

    def _checkpoints(self, operators: frozenset[OperatorName]) -> list[AutonomousCommand]:
        may = (operators & self._kept & self._ready) - self.account.pinned.keys()
        wanted = [name for name in self._stateful if name in may]
        if not wanted:
            return []
        now = {name: (self.account.step, self.account.absorbed[name]) for name in wanted}
        self._change(pinned={**self.account.pinned, **now})
        # The account first: a checkpoint proves that its step ended, but neither where the rows of that step went, nor how many it has.
        return [*self._save(), *(CheckpointOperator(name) for name in wanted)]

    def _on_checkpointed(self, operator: OperatorName, held: int) -> list[AutonomousCommand]:
        absorbed = self.account.absorbed[operator]
        _, before = self.account.pinned.get(operator, (0, absorbed))
        self._change(
            absorbed={**self.account.absorbed, operator: absorbed - before},
            pinned=self._pinned_without({operator}),
            held={**self.account.held, operator: held},
        )
        return []

    def _pinned_without(self, gone: Set[OperatorName]) -> dict[OperatorName, tuple[int, int]]:
        return {name: pin for name, pin in self.account.pinned.items() if name not in gone}

    # --- losses -----------------------------------------------------------------------------------------------------

    def _loss(self, rows: int, reason: str, operator: OperatorName | None = None) -> Loss:
        reach = self.account.reach if operator is None else self.account.reach_of[operator]
        return Loss(self.account.element, rows, reason, reach)

    def _lose(self, losses: list[Loss]) -> list[AutonomousCommand]:
        """Count losses that happened at once, and tell the largest."""
        real = [loss for loss in losses if loss.rows]
        if not real:
            return []
        self.account = self.account.losing(real)
        self._is_saved = False
        return [TellLoss(max(real, key=lambda loss: loss.rows))]
