"""An element outside of regions: best effort, on its own. Events in, commands out.

The element's loop owns the machine and feeds it between two steps. It performs the returned commands in order.

    new ──Begin──▶ running ──a step fails too often──▶ gave up ──▶ ended
                      │  ▲                                 ▲
                      │  └──a step fails: it goes on───────┤
                      │      (parked ◀──Park, Unpark──▶)   │
                      └──Stop: sources are read no more──▶ draining ──inputs are over──▶ ended

What must hold is in `accounts.py`: an account is saved before the step whose rows it takes, so rows that a kill
costs are known to the next run. A step that fails costs its rows; each operator goes on from the version before it, or,
if that is gone, from its own checkpoint, which costs what it took since.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import StrEnum

from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol.accounts import Account, Loss, Pin
from holdfast.protocol.autonomous_messages import AutonomousCommand as AutonomousCommand
from holdfast.protocol.autonomous_messages import AutonomousEvent as AutonomousEvent
from holdfast.protocol.autonomous_messages import Begin as Begin
from holdfast.protocol.autonomous_messages import CheckpointDue as CheckpointDue
from holdfast.protocol.autonomous_messages import Checkpointed as Checkpointed
from holdfast.protocol.autonomous_messages import CheckpointOperator as CheckpointOperator
from holdfast.protocol.autonomous_messages import Discarded as Discarded
from holdfast.protocol.autonomous_messages import End as End
from holdfast.protocol.autonomous_messages import Gathered as Gathered
from holdfast.protocol.autonomous_messages import GiveUp as GiveUp
from holdfast.protocol.autonomous_messages import GoOnFromBefore as GoOnFromBefore
from holdfast.protocol.autonomous_messages import InputsOver as InputsOver
from holdfast.protocol.autonomous_messages import NotCheckpointed as NotCheckpointed
from holdfast.protocol.autonomous_messages import Park as Park
from holdfast.protocol.autonomous_messages import Recounted as Recounted
from holdfast.protocol.autonomous_messages import Rest as Rest
from holdfast.protocol.autonomous_messages import Restored as Restored
from holdfast.protocol.autonomous_messages import RestoreOperator as RestoreOperator
from holdfast.protocol.autonomous_messages import RunStep as RunStep
from holdfast.protocol.autonomous_messages import SaveAccount as SaveAccount
from holdfast.protocol.autonomous_messages import StepDone as StepDone
from holdfast.protocol.autonomous_messages import StepFailed as StepFailed
from holdfast.protocol.autonomous_messages import Stirred as Stirred
from holdfast.protocol.autonomous_messages import Stop as Stop
from holdfast.protocol.autonomous_messages import TellLoss as TellLoss
from holdfast.protocol.autonomous_messages import Unpark as Unpark
from holdfast.protocol.phases import Machine

MAX_CONSECUTIVE_FAILURES = 5


class AutonomousPhase(StrEnum):
    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"  # sources are read no more; inputs are worked off
    PARKED = "parked"  # more is lost than may be: nothing is taken until somebody resumes
    GAVE_UP = "gave up"  # input is thrown away and counted
    ENDED = "ended"


_N, _R, _D = AutonomousPhase.NEW, AutonomousPhase.RUNNING, AutonomousPhase.DRAINING
_G, _E, _P = AutonomousPhase.GAVE_UP, AutonomousPhase.ENDED, AutonomousPhase.PARKED

AUTONOMOUS_MOVES: Mapping[AutonomousPhase, frozenset[AutonomousPhase]] = {
    _N: frozenset({_R}),
    _R: frozenset({_D, _P, _G, _E}),
    _D: frozenset({_G, _E}),
    _P: frozenset({_R, _D}),
    _G: frozenset({_E}),
    _E: frozenset(),
}


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
        self.stirred: frozenset[OperatorName] = frozenset()  # those whose state no checkpoint may hold
        self.failed_in_a_row = 0
        self._is_saved = False

    @property
    def is_parked(self) -> bool:
        """It takes nothing, though there may be something."""
        return self.phase is _P

    def keeps(self, kept: frozenset[OperatorName]) -> None:
        """These operators store checkpoints of their own from now on."""
        self.stirred |= kept - self._kept
        self._kept = kept

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
            case Gathered(taken, rows, at):
                return self._on_gathered(taken, rows, at)
            case StepDone():
                return self._on_done(event)
            case StepFailed():
                return self._on_failed(event)
            case Recounted(rows):
                absorbed = {name: old + rows for name, old in self.account.absorbed.items()}
                self._change(absorbed=absorbed, passed=self._passed_after(rows))
                return []
            case Restored(operator, lost, reason):
                return self._on_restored(operator, lost, reason)
            case CheckpointDue(operators, must):
                return self._checkpoints(operators & (self.stirred | must))
            case Stirred(operators):
                self.stirred |= operators
                return []
            case Checkpointed(operator, held):
                return self._on_checkpointed(operator, held)
            case NotCheckpointed(operator):
                self.stirred |= {operator}
                self._change(pinned=self._pinned_without({operator}))
                return []
            case Discarded(taken, rows):
                self._change(taken={**self.account.taken, **taken})
                return self._lose([self._loss(rows, "the element gave up")])
            case Rest():
                return self._save_changes()
            case Stop():
                if self.phase in (
                    _R,
                    _P,
                ):  # what was taken from sources is worked off: to leave it would lose it
                    self._move(_D)
                return []
            case Park():
                if self.phase is _R:
                    self._move(_P)
                return self._save_changes()
            case Unpark():
                if self.phase is _P:
                    self._move(_R)
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

    def _on_gathered(
        self, taken: Mapping[ConnectionId, int], rows: int, at: float
    ) -> list[AutonomousCommand]:
        step, since = self.account.step + 1, {**dict.fromkeys(self._stateful, at), **self.account.since}
        pinned = {
            n: replace(p, next_at=at if p.next_at is None else p.next_at)
            for n, p in self.account.pinned.items()
        }
        took = {**self.account.taken, **taken}
        self.stirred |= frozenset(self._stateful)
        self._change(step=step, taken=took, in_flight=rows, pinned=pinned, since=since, last=at)
        return [*self._save(), RunStep()]

    def _since_without(self, operators: Collection[OperatorName]) -> dict[OperatorName, float]:
        return {name: at for name, at in self.account.since.items() if name not in operators}

    def _passed_after(self, rows: int) -> dict[OperatorName, int]:
        return {key: before + rows for key, before in self.account.passed.items()}

    def _on_done(self, event: StepDone) -> list[AutonomousCommand]:
        self.failed_in_a_row = 0
        rows = self.account.in_flight - event.left
        old = self.account.absorbed.items()
        absorbed = {name: 0 if name in event.as_stored else before + rows for name, before in old}
        taken = {**self.account.taken, **event.taken}
        # What is on its way into the store is the same state: none of the absorbed rows is missing in it.
        pinned = {
            n: replace(pin, rows=0) if n in event.as_stored else pin for n, pin in self.account.pinned.items()
        }
        self._change(
            sent=self._sent_after(event.sent),
            taken=taken,
            in_flight=0,
            absorbed=absorbed,
            pinned=pinned,
            passed=self._passed_after(rows),
            since=self._since_without(event.as_stored),
        )
        return []

    def _on_failed(self, event: StepFailed) -> list[AutonomousCommand]:
        self.failed_in_a_row += 1
        self._ready -= event.spoiled
        spoiled = [name for name in self._stateful if name in event.spoiled]
        good = tuple(name for name in self._stateful if name not in event.spoiled)
        losses = [self._loss(event.rows, event.reason), *(self._lost_state(name, event) for name in spoiled)]
        absorbed = {name: 0 if name in spoiled else old for name, old in self.account.absorbed.items()}
        fresh = {name for name, rows in absorbed.items() if not rows}
        self._change(
            sent=self._sent_after(event.sent),
            in_flight=0,
            absorbed=absorbed,
            pinned=self._pinned_without(event.spoiled),
            since=self._since_without(fresh),
        )
        commands = self._lose(losses)
        commands += [GoOnFromBefore(good)] if good else []
        if self.failed_in_a_row > MAX_CONSECUTIVE_FAILURES:
            self._move(_G)
            return [*commands, GiveUp(f"failed {self.failed_in_a_row} times in a row: {event.reason}")]
        return [*commands, *(RestoreOperator(name) for name in spoiled)]

    def _lost_state(self, name: OperatorName, event: StepFailed) -> Loss:
        reason = f"{event.reason}; operator {name} goes back to its last checkpoint"
        rows = event.rows + self.account.absorbed.get(name, 0)
        return replace(self._loss(rows, reason, name), seconds=self.account.age(name))

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
        now = {name: Pin(self.account.step, self.account.absorbed[name]) for name in wanted}
        self.stirred -= now.keys()
        self._change(pinned={**self.account.pinned, **now})
        # The account first: a checkpoint proves that its step ended, but neither where the rows of that step went, nor how many it has.
        return [*self._save(), *(CheckpointOperator(name) for name in wanted)]

    def _on_checkpointed(self, operator: OperatorName, held: int) -> list[AutonomousCommand]:
        absorbed = self.account.absorbed[operator]
        pin = self.account.pinned.get(operator, Pin(self.account.step, absorbed))
        since = self._since_without({operator}) | ({operator: pin.next_at} if pin.next_at is not None else {})
        self._change(
            absorbed={**self.account.absorbed, operator: absorbed - pin.rows},
            pinned=self._pinned_without({operator}),
            held={**self.account.held, operator: held},
            since=since,
        )
        return []

    def _pinned_without(self, gone: Collection[OperatorName]) -> dict[OperatorName, Pin]:
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
