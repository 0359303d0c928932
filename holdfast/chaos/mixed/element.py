"""An element outside of regions in memory, driven by the real `AutonomousMachine`.

It does one small thing at a time: performs one command, or one part of a step. So a kill can come between any two.

    gather ─▶ save the account ─▶ compute ─▶ write sinks ─▶ hand on, connection by connection ─▶ done
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.chaos.checkers import InvariantBroken
from holdfast.chaos.mixed.actor import Actor, Around
from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.graph import Element
from holdfast.chaos.mixed.store import AccountRecord, OwnCheckpoint
from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol import autonomous
from holdfast.protocol.accounts import Covered

COMPUTE, SINK, HAND_ON = 0, 1, 2
"""Stages of a step; HAND_ON + n stands before output n."""


@dataclass(slots=True)
class Step:
    """The step under way. `rows` shrinks when it gives some back; `held` does not."""

    rows: int
    slice: int
    held: int
    uncounted: int
    ends: dict[ConnectionId, tuple[int, int]]
    """Per input, its last batch: number of the last row, rows in this frame."""
    is_saved: bool = False
    is_running: bool = False
    stage: int = COMPUTE
    left: dict[ConnectionId, int] = field(default_factory=dict)
    """Rows given back per input."""


class AutonomousElement(Actor):
    """`act` does one thing, if there is one."""

    def __init__(self, around: Around, plan: Element, machine: autonomous.AutonomousMachine) -> None:
        super().__init__(around)
        self.plan = plan
        self.machine = machine
        store, connections = around.store, around.connections
        self.inputs = [connections[wire.id] for wire in plan.inputs]
        self.outputs = [connections[wire.id] for wire in plan.outputs]
        self.position = store.position(plan.name)
        self.states: dict[OperatorName, int] = {op: store.readable(op) for op in plan.operators}
        self.safe = self.states  # versions that no step under way has touched
        self.again = dict.fromkeys(plan.operators, 0)  # rows absorbed again since the last checkpoint
        self.uploads: dict[OperatorName, tuple[OwnCheckpoint, int]] = {}  # on their way into the store
        self.arrived: list[autonomous.AutonomousEvent] = []  # in it, and the element has not heard of it
        self.without_state = set(plan.operators)
        self.step: Step | None = None
        self.saved_rows = 0  # of the step that was saved last
        self.due_after = 0  # the step after which checkpoints were due last
        self.failed_at = 0
        self.todo: deque[autonomous.AutonomousCommand] = deque()
        self.asleep = 0  # turns until it goes on
        self.is_ruined = False  # every step fails
        self.park_for = 0  # turns until somebody resumes it; more is lost than may be
        self.damages_next = False  # the next checkpoint that is read is damaged

    @property
    def is_ended(self) -> bool:
        return self.machine.phase is autonomous.AutonomousPhase.ENDED and not self.todo

    @property
    def unread(self) -> int:
        """Rows of the own source that nobody took yet."""
        plan = self.plan
        return plan.own >> (plan.first_row + self.position) << (plan.first_row + self.position)

    def begin(self) -> None:
        self.feed(autonomous.Begin())

    def forget_damage(self) -> None:
        """Nobody knows of damage in this run before an operator is restored: then it costs rows, and is counted."""
        for op in self.plan.kept & self.store.checkpoints.keys():
            self.safe[op] |= self.store.checkpoints[op].rows

    def feed(self, event: autonomous.AutonomousEvent) -> None:
        self.todo.extend(self.machine.handle(event))

    # --- one thing at a time ------------------------------------------------------------------------------------

    def act(self) -> bool:
        """False if there is nothing to do, or if it has to wait."""
        if self.asleep:
            self.asleep -= 1
            if self.asleep:
                return False
        if self.uploads and self.random() < 0.3:
            self._upload(next(iter(self.uploads)))
            return True
        if self.todo:
            return self._perform_next()
        if self.step is not None:
            return self._go_on(self.step)
        if self._hear_of_uploads(all=False):
            return True
        machine = self.machine
        if self.park_for and (machine.may_read_sources or machine.is_parked):
            self.park_for -= 1
            self.feed(autonomous.Park() if self.park_for else autonomous.Unpark())
            return not machine.is_parked or bool(self.todo)
        if machine.may_step:
            if self.plan.kept and self._is_due():
                self.feed(
                    autonomous.CheckpointDue(
                        frozenset(op for op in self.plan.operators if self.random() < 0.7)
                    )
                )
            if self.todo or self._gather():
                return True
        elif machine.discards:
            if self._discard():
                return True
        else:
            return False
        if self._is_over():
            if not self._hear_of_uploads(all=True):
                self.feed(autonomous.InputsOver())
            return True
        self.feed(autonomous.Rest())
        return bool(self.todo)

    def _is_due(self) -> bool:
        """Once after some steps; more often after a failure."""
        step = self.machine.account.step
        is_due = step != self.due_after and self.random() < (0.7 if self.failed_at == step else 0.3)
        self.due_after = step
        return is_due

    def _is_over(self) -> bool:
        sources_over = not self.machine.may_read_sources or self.position == self.plan.row_count
        return sources_over and all(c.closed and not c.items for c in self.inputs)

    def _gather(self) -> bool:
        rows = batch_rows = slice_rows = 0
        ends: dict[ConnectionId, tuple[int, int]] = {}
        for connection in self.inputs:
            while connection.items and not (ends and (self.is_ruined or self.random() < 0.3)):
                batch = connection.take()
                rows |= batch
                batch_rows += batch.bit_count()
                ends[connection.wire.id] = (connection.taken, batch)
        plan = self.plan
        if self.machine.may_read_sources and self.position < plan.row_count:
            most = 1 if self.is_ruined else 3  # more steps, so that it gives up
            end = min(plan.row_count, self.position + 1 + int(self.random() * most))
            slice_rows = ((1 << (end - self.position)) - 1) << (plan.first_row + self.position)
            self.position = end
        if not ends and not slice_rows:
            return False
        read = slice_rows.bit_count()
        held = batch_rows + read
        uncounted = read if plan.counts_late else 0
        self.step = Step(rows | slice_rows, slice_rows, held, uncounted, ends)
        self.feed(autonomous.Gathered({c: end for c, (end, _) in ends.items()}, held - uncounted))
        return True

    def _discard(self) -> bool:
        rows, taken = 0, {}
        with self.checkers.destroying():
            for connection in self.inputs:
                while connection.items:
                    rows += connection.take().bit_count()
                    taken[connection.wire.id] = connection.taken
            if taken:
                self.feed(autonomous.Discarded(taken, rows))
        return bool(taken)

    # --- a step -------------------------------------------------------------------------------------------------

    def _go_on(self, step: Step) -> bool:
        if self.is_ruined and self.random() < 0.5:
            self.fail(spoils=self.random() < 0.5)
            return True
        if step.stage == COMPUTE:
            self._compute(step)
        elif step.stage == SINK:
            step.stage += 1
            for sink, _ in self.plan.sinks:
                self.checkers.writes(self.plan, sink, step.rows)
            self.reached("wrote sinks")
        elif step.stage - HAND_ON < len(self.outputs):
            return self._hand_on(step, self.outputs[step.stage - HAND_ON])
        elif self.is_ruined:
            self.fail(spoils=True)
        else:
            self._end_step(step)
        return True

    def _compute(self, step: Step) -> None:
        if self.random() < 0.3:
            self._give_back(step)
        step.stage += 1
        for op in self.plan.operators:
            if op in self.without_state:
                raise InvariantBroken(f"{self.plan.name} runs a step, but {op} has no state")
            self.states[op] |= step.rows

    def _give_back(self, step: Step) -> None:
        """There is no time for the last rows of some input."""
        for connection in self.inputs:
            end, batch = step.ends.get(connection.wire.id, (0, 0))
            keep = batch
            for _ in range(int(self.random() * batch.bit_count())):
                keep &= keep - 1  # drops the first row: the last ones stay
            if batch and batch != keep and not batch & step.slice:
                step.left[connection.wire.id] = keep.bit_count()
                step.rows &= ~keep
                connection.give_back(end, keep)
                return

    def _hand_on(self, step: Step, connection: SimConnection) -> bool:
        if connection.throws_away:
            with self.checkers.destroying():
                step.stage += 1
                connection.put(step.rows)
        elif not connection.is_full:
            step.stage += 1
            connection.put(step.rows)
        else:
            return False
        self.reached("handed on")
        return True

    def _end_step(self, step: Step) -> None:
        self.step = None
        for op, rows in self.safe.items():
            self.again[op] += (rows & step.rows).bit_count()
        self.safe = self.states
        rows = step.rows.bit_count()
        taken = {c.wire.id: c.taken for c in self.inputs if c.wire.id in step.left}
        sent = {connection.wire.id: rows for connection in self.outputs}
        self.feed(autonomous.StepDone(sent, sum(step.left.values()), taken))
        if step.uncounted:
            self.feed(autonomous.Recounted(step.uncounted))
        self.reached("step done")

    def fail(self, *, spoils: bool) -> None:
        """The step under way fails, wherever it is."""
        step = self.step
        if step is None or not step.is_running:
            return
        self._hear_of_uploads(all=True)
        with self.checkers.destroying():
            self.step = None
            self.failed_at = self.machine.account.step
            spoiled = set()
            if step.stage > COMPUTE and spoils:
                spoiled = {op for op in self.plan.operators if self.random() < 0.6}
            for op in spoiled:
                self.without_state.add(op)
                self.states[op] = self.safe[op] = self.store.readable(op)
                self.again[op] = 0
            handed = self.outputs[: max(0, step.stage - HAND_ON)]
            sent = {connection.wire.id: step.rows.bit_count() for connection in handed}
            self.checkers.may_overcount(self.plan.reach, step.held)
            self.feed(autonomous.StepFailed("simulated", step.held, frozenset(spoiled), sent))
        self.reached("step failed")

    # --- commands -----------------------------------------------------------------------------------------------

    def _perform_next(self) -> bool:
        command = self.todo[0]
        if isinstance(command, autonomous.SaveAccount) and self.must_wait():
            return False
        self.todo.popleft()
        match command:
            case autonomous.SaveAccount(account):
                uncounted = 0
                if self.step is not None:
                    self.step.is_saved = True
                    self.saved_rows = self.step.held
                    uncounted = self.step.uncounted
                self.store.records[self.plan.name] = AccountRecord(
                    account, self.position_to_save(), uncounted
                )
                self.reached("saved")
            case autonomous.RunStep():
                assert self.step is not None
                self.step.is_running = True
                self.states = dict(self.safe)
            case autonomous.GoOnFromBefore(operators):
                self.states = self.safe = {**self.states, **{op: self.safe[op] for op in operators}}
            case autonomous.RestoreOperator(op):
                self._restore(op)
            case autonomous.CheckpointOperator(op):
                self._checkpoint(op)
            case autonomous.GiveUp():
                self.is_ruined = False
                self.reached("gave up")
            case autonomous.End():
                self._hear_of_uploads(all=True)
                for connection in self.outputs:
                    connection.closed = True
            case autonomous.TellLoss():
                pass
        return True

    def must_wait(self) -> bool:
        """The account cannot be saved now."""
        return self.store.full

    def position_to_save(self) -> int:
        return self.position

    def _restore(self, op: OperatorName) -> None:
        checkpoint = self.store.checkpoints.get(op)
        self.without_state.discard(op)
        if checkpoint is not None and self.damages_next:
            self.damages_next = False
            for _ in range(int(self.random() * (checkpoint.rows.bit_count() + 1))):
                left = checkpoint.rows & ~checkpoint.damaged
                checkpoint.damaged |= left & -left
        with self.checkers.destroying():
            self.states = self.safe = {**self.safe, op: self.store.readable(op)}
            self.again[op] = 0
            lost = 0 if checkpoint is None else checkpoint.damaged.bit_count()
            self.feed_first(autonomous.Restored(op, lost, "damaged"))
        self.reached("restored")

    def feed_first(self, event: autonomous.AutonomousEvent) -> None:
        """Commands that answer a command come before the rest of the list it was in."""
        self.todo.extendleft(reversed(self.machine.handle(event)))

    def _checkpoint(self, op: OperatorName) -> None:
        if op in self.without_state:
            raise InvariantBroken(f"{self.plan.name} stores a checkpoint of {op}, which has no state")
        if self.store.full:
            self.feed_first(autonomous.NotCheckpointed(op))
            return
        covers = Covered(self.machine.account.run, self.machine.account.step)
        self.uploads[op] = OwnCheckpoint(covers, self.states[op]), self.again[op]

    def _upload(self, op: OperatorName) -> None:
        """A checkpoint that is on its way arrives in the store, or there is no space for it. The element hears of it between two steps."""
        checkpoint, again = self.uploads.pop(op)
        if self.store.full:
            self.arrived.append(autonomous.NotCheckpointed(op))
            return
        self.store.checkpoints[op] = checkpoint
        self.again[op] -= again
        self.arrived.append(autonomous.Checkpointed(op))
        self.reached("stored a checkpoint")

    def _hear_of_uploads(self, *, all: bool) -> bool:
        """Tell the machine what has arrived; with `all` whatever is on its way arrives first."""
        for op in list(self.uploads) if all else ():
            self._upload(op)
        heard, self.arrived = self.arrived, []
        for event in heard:
            self.feed(event)
        return bool(heard)
