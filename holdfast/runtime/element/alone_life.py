"""An element outside of regions: best effort, on its own. The rim of `protocol/autonomous.py`.

Its account is saved before each step, with the positions of its sources behind the rows that the step takes. So a row is
handed out at most once, and what a failure costs is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.errors import PoisonFound
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, OperatorName
from holdfast.language.connectors import Slice
from holdfast.protocol import autonomous
from holdfast.protocol.accounts import Account, Covered
from holdfast.runtime.element.account_books import AccountBooks, Uncounted, rows_lost
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import ElementLoop, until_space
from holdfast.runtime.element.own_checkpoints import OwnCheckpoints
from holdfast.runtime.element.row_counting import count_now, uncounted_of
from holdfast.runtime.engines.engine import StepName
from holdfast.runtime.failures import OperatorsKilled, check_engine, gave_up, is_fatal, own_failure, story_of
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import CLOSING
from holdfast.runtime.runs.source_seats import LettingGo, positions_of
from holdfast.runtime.source_positions import KnownPosition
from holdfast.runtime.telling.events import AttributesFilled, ElementFailed, ElementGaveUp
from holdfast.runtime.telling.feed import Announce

RETRY_S = 0.1
"""How long to wait after sources or operators could not be made ready; twice as long after each further failure."""
UNCOUNTED_MAX = 256
"""More slices than these are counted at once: the account names each of them."""
HUNG_S = 180.0
"""After this time a call into the user's code counts as failed: nobody else would end it."""


class AloneLife(OutsideLife):
    """Best effort."""

    def __init__(
        self,
        loop: ElementLoop,
        books: AccountBooks,
        own: OwnCheckpoints,
        announce: Announce,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        account = books.account_of(loop.name)
        self.machine = autonomous.AutonomousMachine(account, tuple(own.runs), own.kept)
        self._error: Exception | None = None
        self.on_loss = lambda: None
        self.on_poison = lambda error: None
        self._is_to_park = False
        self._loop = loop
        self._books = books
        self._own = own
        self._announce = announce
        self._on_fatal = on_fatal
        self._draining = False
        self._work = Work()
        self._uncounted: list[tuple[OperatorName, Slice]] = []
        """Slices whose rows operators have absorbed and nobody has counted."""
        self._let_go = LettingGo(loop.worker.sources, loop.clock)
        self._seats: dict[OperatorName, Any] = {}
        """Positions of the sources behind all that was taken."""
        self._astray: tuple[OperatorName, ...] = ()
        """Sources that may have gone on without their rows being taken."""
        for run in loop.worker.hosted:
            run.thread.limit_s = HUNG_S
        self.looks_around = bool(own.kept)
        loop.life = self
        loop.metrics.lost_rows = account.lost_rows

    def stop_when_possible(self) -> None:
        self._draining = True
        self._loop.wake()

    def park(self, now: bool) -> None:
        self._is_to_park = now
        self._loop.wake()

    def keep_all(self) -> None:
        self._own.keep_all()
        self.machine.keeps(self._own.kept)
        self.looks_around = True
        self._loop.wake()

    @property
    def is_parked(self) -> bool:
        return self.machine.is_parked

    @property
    def account(self) -> Account:
        return self.machine.account

    def last_account(self) -> Account:
        self._recount()
        rows = sum(count_now(self._loop.worker, *each) for each in uncounted_of(self._work))
        return replace(self.account, in_flight=self.account.in_flight + rows)

    def count(self, account: Account) -> None:
        self.machine.account = account
        self._loop.metrics.lost_rows = account.lost_rows

    # --- what the loop asks -------------------------------------------------------------------------------------

    @property
    def waiting(self) -> str:
        return "input" if self.machine.may_step else self.machine.phase.value

    @property
    def may_step(self) -> bool:
        return self.machine.may_step

    @property
    def may_read_sources(self) -> bool:
        return self.machine.may_read_sources

    def takes(self, connection: ConnectionId) -> bool:
        return True

    def begin(self) -> None:
        for run in self._loop.worker.sources:
            run.dry = run.closed = False
            self._seats[run.name] = self._beginning(run.name)
            run.seek(self._seats[run.name])
        self._own.aging.taken_s = self._books.ledger.taken_s.get(self._loop.name)
        self._feed(autonomous.Begin())

    def _beginning(self, name: OperatorName) -> Any:
        """Where a source goes on; None: at its beginning."""
        known = self._books.ledger.positions
        return known[name].state if name in known else None

    @property
    def is_storing(self) -> bool:
        return self.machine.may_step and (self._own.is_storing or bool(self._due()))

    def _due(self) -> tuple[OperatorName, ...]:
        return tuple(name for name in self._own.due() if name in self.machine.stirred | self._own.musts)

    def turn(self) -> bool:
        is_running = self.machine.phase is autonomous.AutonomousPhase.RUNNING
        if self._draining and (self.is_parked or (is_running and self._loop.worker.sources_are_finished())):
            self._feed(autonomous.Stop())
            return True  # it may be over
        if self._is_to_park != self.is_parked and (self.is_parked or self.machine.may_read_sources):
            self._feed(autonomous.Park() if self._is_to_park else autonomous.Unpark())
        if self._loop.worker.threaded and self._look_after_threads():
            return True
        self._note_uploads()
        due = self._due() if self.machine.may_step else ()
        if due:
            self._recount()
        for name in due:
            self._feed(autonomous.CheckpointDue(frozenset({name}), self._own.musts))
            if self.account.pinned:
                break  # one at a time: steps go on between them
        return self.machine.discards and self._discard()

    def _look_after_threads(self) -> bool:
        """Threads of operators work until the element has nothing else to come; one that failed costs its operator's
        state. True if one did."""
        for run in self._loop.worker.threaded:
            try:
                run.raise_failure()
                run.check_threads()
            except Exception as error:
                self._refuse_fatal(error)
                self._error = error
                self._not_ready(error, frozenset({run.name}))
                return True
            run.let(self.machine.may_step and (self.machine.may_read_sources or bool(self._loop.ends.inputs)))
            if run.has_worked:
                self.machine.handle(autonomous.Stirred(frozenset({run.name})))
        return False

    def name_step(self, number: int) -> StepName:
        # The run's number stands for the attempt: no other run gives the same names to what it stores.
        return StepName(self._loop.name, Attempt(self.account.run), number, int(INITIAL_EPOCH))

    def step(self, work: Work) -> None:
        self._work = work
        self._own.aging.took_rows()
        places = {id: self._loop.ends.inputs[id].taken for id in work.parcels}
        self._feed(autonomous.Gathered(places, self._at_risk(work), self._loop.clock.wall()))

    def _at_risk(self, work: Work) -> int:
        """Rows that are lost if the step does not come to its end."""
        return work.rows

    def must_give_up(self) -> bool:
        return self._loop.stopping

    def attempt(self, plan: Callable[[], Any]) -> Any:
        """Sources that cannot be asked now are asked again later, from where they stood."""
        try:
            for run in self._loop.worker.sources:
                if run.name in self._astray:
                    run.seek(self._seats[run.name])
            self._astray = ()
            return plan()
        except Exception as error:
            self._refuse_fatal(error)
            self._astray = tuple(self._seats)
            self._not_ready(error)
            return None

    def _not_ready(self, error: Exception, spoiled: frozenset[OperatorName] = frozenset()) -> None:
        """What comes before a step failed, and no row was taken for it."""
        self._note_uploads(wait=True)
        self._announce(ElementFailed(self._loop.name, story_of(error)))
        until = time.monotonic() + RETRY_S * 2.0**self.machine.failed_in_a_row
        with self._loop.ends.signals.condition:
            while not self._loop.stopping and (left := until - time.monotonic()) > 0:
                self._loop.metrics.waiting = f"another try: {story_of(error)}"
                self._loop.ends.signals.condition.wait(left)
        self._feed(autonomous.StepFailed(story_of(error), 0, spoiled))

    def _refuse_fatal(self, error: Exception) -> None:
        """Raises `error` again if it does not concern this element alone."""
        if is_fatal(error) or self._loop.stopping:
            raise error
        check_engine(self._loop.worker.engine.is_alive(), error)

    def rest(self) -> None:
        self._feed(autonomous.Rest())
        self._loop.wait()

    def is_over(self) -> bool:
        if not self.is_starved(()):
            return False
        for run in self._loop.worker.threaded:
            run.let(False)
        return all(run.permits.closed and not run.pending for run in self._loop.worker.threaded)

    def is_starved(self, silent: Collection[ConnectionId]) -> bool:
        ends, sources = self._loop.ends, self._loop.worker.sources
        dry = self.bounded and all(run.dry for run in sources)
        begins = self._loop.worker.begins
        sources_over = not sources or not self.machine.may_read_sources or dry
        sources_over &= not self.machine.may_read_sources or all(run.is_over for run in begins)
        inputs_over = all((c.closed or id in silent) and c.empty for id, c in ends.inputs.items())
        is_begun = self.machine.phase is not autonomous.AutonomousPhase.NEW
        if self.is_parked:
            return False
        return is_begun and inputs_over and sources_over and bool(ends.inputs or sources or begins)

    def end(self) -> None:
        self._note_uploads(wait=True)
        self._recount()
        self._feed(autonomous.InputsOver())
        self._note_uploads(wait=True)
        self._let_go(self._settled(), at_once=True)

    def _settled(self) -> dict[OperatorName, Any]:
        """Positions of the sources before which nothing is read again."""
        return self._seats

    def fatal(self, error: BaseException) -> None:
        self._on_fatal(error)

    def close(self) -> None:
        self._own.close()
        self._loop.finished = True
        for connection in self._loop.ends.outputs.values():
            connection.close()

    # --- commands -----------------------------------------------------------------------------------------------

    def _feed(self, event: autonomous.AutonomousEvent) -> None:
        for command in self.machine.handle(event):
            match command:
                case autonomous.SaveAccount(account):
                    self._save(account)
                case autonomous.RunStep():
                    self._run_step()
                case autonomous.GoOnFromBefore() | autonomous.End():
                    pass  # versions advance at the end of a step only
                case autonomous.RestoreOperator(name):
                    self._restore(name)
                case autonomous.CheckpointOperator(name):
                    self._checkpoint(name)
                case autonomous.TellLoss(loss):
                    self._loop.metrics.lost_rows = self.account.lost_rows
                    self._announce(rows_lost(loss))
                    self.on_loss()
                case autonomous.GiveUp(reason):
                    self._give_up(reason)
        self._loop.metrics.counts = self._loop.worker.counts

    def _run_step(self) -> None:
        work = self._work
        before = {id: connection.sent for id, connection in self._loop.ends.outputs.items()}
        try:
            for run in self._loop.worker.hosted:
                run.remember()
            outcome = self._loop.run_step(work)
        except Exception as error:
            self._refuse_fatal(error)
            self._work = Work()
            self._failed(work, error, self._loop.ends.sent_since(before))
            return
        self._work = Work()
        self._uncounted += uncounted_of(work) if self._own.runs or self.account.passed else []
        taken = {id: self._loop.ends.inputs[id].taken for id in outcome.left}
        as_stored = frozenset(run.name for run in self._loop.worker.hosted if run.is_as_stored())
        self._feed(
            autonomous.StepDone(self._loop.ends.sent_since(before), outcome.rows_left, taken, as_stored)
        )
        if len(self._uncounted) > UNCOUNTED_MAX or self.account.passed:
            self._recount()

    def _failed(self, work: Work, error: Exception, sent: dict[ConnectionId, int]) -> None:
        self._error = error
        self._announce(ElementFailed(self._loop.name, own_failure(error) or story_of(error)))
        for run in self._loop.worker.sources:
            run.closed = run.closed and work.slices.get(run.name) is not CLOSING  # it is told again
        self._note_uploads(wait=True)
        spoiled = frozenset(run.name for run in self._loop.worker.hosted if not run.go_back())
        spoiled |= {
            run.name
            for run in self._own.runs.values()
            if isinstance(run, KeyedRun) and not self._loop.worker.engine.has_live(run.state)
        }
        if isinstance(error, OperatorsKilled):
            spoiled |= error.operators & self._own.runs.keys()
        self._recount()
        rows = work.rows + sum(count_now(self._loop.worker, *each) for each in uncounted_of(work))
        self._feed(autonomous.StepFailed(story_of(error), rows, spoiled, sent))
        if isinstance(error, PoisonFound):
            self.on_poison(error)

    def _restore(self, name: OperatorName) -> None:
        try:
            found = self._own.restore(name)
        except Exception as error:
            self._refuse_fatal(error)
            self._not_ready(error, frozenset({name}))
            return
        run = self._own.runs[name]
        if isinstance(run, HostedRun) and run.note_restored():
            self._announce(AttributesFilled(name, run.filled))
        self._feed(autonomous.Restored(name, found.lost, found.reason))

    def _give_up(self, reason: str) -> None:
        self.failure = gave_up(self._loop.name, reason, self._error)
        self._announce(ElementGaveUp(self._loop.name, reason))

    def _discard(self) -> bool:
        """Throw input away that nobody will process."""
        taken, rows = self._loop.ends.throw_away()
        if taken:
            self._feed(autonomous.Discarded(taken, rows))
        return bool(taken)

    def _checkpoint(self, name: OperatorName) -> None:
        pin = self.account.pinned[name]
        self._own.begin(name, Covered(self.account.run, pin.step), pin.rows)
        if self._own.is_urgent(name):
            self._note_uploads(wait=True)

    def _note_uploads(self, wait: bool = False) -> None:
        """Checkpoints that have arrived in the store, or could not be stored; with `wait` all that are on their way."""
        for name, is_stored in self._own.arrived(wait):
            held = self._own.held(name) if is_stored else 0
            self._feed(autonomous.Checkpointed(name, held) if is_stored else autonomous.NotCheckpointed(name))

    # --- counting -----------------------------------------------------------------------------------------------

    def _recount(self) -> None:
        """Count what operators absorbed and nobody has counted: before it is forgotten or lost."""
        uncounted, self._uncounted = self._uncounted, []
        rows = sum(count_now(self._loop.worker, *each) for each in uncounted)
        if rows:
            self._feed(autonomous.Recounted(rows))

    def _save(self, account: Account) -> None:
        """A full disk stops this element until there is space again; it neither loses rows nor ends the run."""
        positions = positions_of(self._loop.worker.sources)
        self._seats = {name: known.state for name, known in positions.items()}
        uncounted = [Uncounted(name, piece.detail, True) for name, piece in self._uncounted]
        uncounted += [Uncounted(name, piece.detail, False) for name, piece in uncounted_of(self._work)]
        self._keep(account, positions, uncounted)
        self._let_go(self._seats)

    def _keep(
        self, account: Account, positions: dict[OperatorName, KnownPosition], uncounted: list[Uncounted]
    ) -> None:
        save = partial(self._books.save, account, positions, uncounted, self._own.aging.taken_s)
        until_space(save, self._loop, self._announce)
