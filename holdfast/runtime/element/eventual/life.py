"""An element outside of regions whose aggregate or join keeps its checkpoints in its output log: results are there exactly once.

It saves nothing before a step: the log tells what has happened. Whatever fails, the element goes back to what the log tells and goes
on from there. After six failures in a row without a step between them it gives up; nothing is lost by that, the next run goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, OperatorName
from holdfast.language.checkpoint_form import Eventual
from holdfast.language.graph import SinkSpec
from holdfast.operators.aggregates.eventual import TellingLogic
from holdfast.operators.aggregates.recording import WindowRecorder
from holdfast.operators.joins.recording import JoinRecorder
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.protocol.accounts import Account
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.element.eventual.recording import JoinRecording, Recording, WindowRecording
from holdfast.runtime.element.eventual.restoring import (
    JoinRestore,
    NextName,
    Restore,
    WindowRestore,
    sources_of,
)
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import StepName
from holdfast.runtime.failures import check_engine, gave_up, is_fatal, is_no_space, story_of
from holdfast.runtime.links.connection import Interrupted
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.telling.events import ElementFailed, ElementGaveUp, ElementPaused
from holdfast.runtime.telling.feed import Announce
from holdfast.runtime.telling.window_events import WindowsRestored
from holdfast.sinks.log_sink import LogSink
from holdfast.state.eventual.books import Pace

FAILURES_MAX = 5
RETRY_S = 0.1
"""How long to wait after a failure; twice as long after each further one."""
SPACE_PROBE_S = 0.5


class EventualLife(OutsideLife):
    """Called by the element's thread, but for what may be called from any."""

    def __init__(
        self,
        loop: ElementLoop,
        recording: Recording[Any, Any],
        account: Account,
        announce: Announce,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._recording = recording
        self._restore = restore_of(loop.worker, recording, loop.next_name)
        self._account = account
        self._announce = announce
        self._on_fatal = on_fatal
        self.on_loss = lambda: None
        self.on_poison = lambda error: None
        self._failed_in_a_row = 0
        self._begun = self._draining = self._over = self._parked = False
        loop.worker.recordings[recording.name] = recording
        loop.life = self

    # --- what the run asks ---

    def stop_when_possible(self) -> None:
        self._draining = True
        self._loop.wake()

    def park(self, now: bool) -> None:
        self._parked = now
        self._loop.wake()

    @property
    def is_parked(self) -> bool:
        return self._parked

    def keep_all(self) -> None:
        """Its log has all."""

    @property
    def account(self) -> Account:
        return self._account

    def last_account(self) -> Account:
        return self._account

    def count(self, account: Account) -> None:
        self._account = account

    def is_starved(self, silent: Collection[ConnectionId]) -> bool:
        dry = self.bounded and all(run.dry for run in self._loop.worker.sources)
        return self._begun and not self._parked and (dry or self._over)

    # --- what the loop asks ---

    @property
    def waiting(self) -> str:
        return "somebody who resumes it" if self._parked else "input"

    @property
    def may_step(self) -> bool:
        return self._begun and not self._parked and not self._over

    @property
    def may_read_sources(self) -> bool:
        return self.may_step

    def takes(self, connection: ConnectionId) -> bool:
        return True

    def begin(self) -> None:
        self._go_back()
        self._begun = True

    def turn(self) -> bool:
        if self._draining and not self._over and (self._parked or self._loop.worker.sources_are_finished()):
            self._over, self._parked = True, False
            return True
        return False

    def name_step(self, number: int) -> StepName:
        return StepName(self._loop.name, Attempt(self._account.run), number, int(INITIAL_EPOCH))

    def step(self, work: Work) -> None:
        self._recording.after = self._recording.stands()
        try:
            self._loop.run_step(work)
        except Exception as error:
            self._failed(error)
            return
        self._failed_in_a_row = 0
        self._recording.before = self._recording.after

    def must_give_up(self) -> bool:
        return self._loop.stopping

    def attempt(self, plan: Callable[[], Any]) -> Any:
        try:
            return plan()
        except Exception as error:
            self._failed(error)
            return None

    def rest(self) -> None:
        self._loop.wait()

    def is_over(self) -> bool:
        return self.is_starved(())

    def end(self) -> None:
        """What is told too late is kept too long, and nothing worse."""
        if self.failure is None:
            with contextlib.suppress(HoldfastError):
                self._recording.let_go()

    def fatal(self, error: BaseException) -> None:
        self._on_fatal(error)

    def close(self) -> None:
        self._loop.finished = True

    # --- failures ---

    def _failed(self, error: Exception) -> None:
        self._tell(error)
        if not self._over:
            self._go_back()

    def _go_back(self) -> None:
        """To what the log tells, as soon as that can be done."""
        while not self._over:
            try:
                self._restore.perform()
            except Exception as error:
                self._tell(error)
                continue
            self._recording.before = self._recording.stands()
            found, cost = self._restore.windows, (self._restore.bytes_read, self._restore.rows_replayed)
            if found is not None:
                self._announce(WindowsRestored(self._recording.name, found, *cost))
            return

    def _tell(self, error: Exception) -> None:
        """Tell of a failure and wait a little; or give up. Raises if it does not concern this element alone."""
        if is_fatal(error) or self._loop.stopping:
            raise error
        check_engine(self._loop.worker.engine.is_alive(), error)
        if is_no_space(error):
            self._announce(ElementPaused(self._loop.name, str(error)))
            self._wait(SPACE_PROBE_S, "space in the log")
            return
        self._announce(ElementFailed(self._loop.name, story_of(error)))
        self._failed_in_a_row += 1
        if self._failed_in_a_row > FAILURES_MAX:
            reason = f"failed {self._failed_in_a_row} times in a row: {story_of(error)}"
            self.failure = gave_up(self._loop.name, reason, error)
            self._announce(ElementGaveUp(self._loop.name, reason, keeps_input=True))
            self._over = True
            return
        self._wait(RETRY_S * 2.0**self._failed_in_a_row, f"another try: {story_of(error)}")

    def _wait(self, seconds: float, why: str) -> None:
        until = time.monotonic() + seconds
        with self._loop.ends.signals.condition:
            while (left := until - time.monotonic()) > 0:
                if self._loop.stopping:
                    raise Interrupted
                self._loop.metrics.waiting = why
                self._loop.ends.signals.condition.wait(left)


def recording_of(worker: Worker) -> Recording[Any, Any] | None:
    """How an element's operator keeps its checkpoints in its log; None: it does not."""
    for op in worker.element.operators:
        form = op.annotations.checkpoint_form
        if form is None or form.eventual is None:
            continue
        run = worker.runs[op.name]
        assert isinstance(run, KeyedRun)
        made, pace = str(worker.plan.fingerprint[op.name]), pace_of(form.eventual)
        sources = [run.source for run in sources_of(worker, op)]
        given = (_sink_behind(worker, op.name), sources, worker.engine, worker.clock)
        match run.task.logic:
            case TellingLogic() as logic:
                return WindowRecording(run.task, WindowRecorder(logic, pace, made), *given)
            case WindowJoin(windows=(left, right)) as join:
                # How much a window holds is no part of what operators are made of.
                of_join = JoinRecorder(join, pace, f"{made}, left keeps {left}, right keeps {right}")
                return JoinRecording(run.task, of_join, *given)
        raise AssertionError(run.task.logic)
    return None


def restore_of(worker: Worker, recording: Recording[Any, Any], next_name: NextName) -> Restore[Any]:
    kind = JoinRestore if isinstance(recording, JoinRecording) else WindowRestore
    return kind(worker, recording, next_name)


def pace_of(form: Eventual) -> Pace:
    """In microseconds."""
    every = None if form.every_s is None else max(1, round(form.every_s * 1e6))
    return Pace(every, round(form.slow_after_s * 1e6), form.shots)


def _sink_behind(worker: Worker, name: OperatorName) -> LogSink:
    """The compiler has seen to it that there is one, and nothing else."""
    for op in worker.element.operators:
        if isinstance(op.spec, SinkSpec) and any(s.operator == name for p in op.inputs for s in p.streams):
            assert isinstance(op.spec.sink, LogSink)
            return op.spec.sink
    raise AssertionError(f"no log behind {name}")
