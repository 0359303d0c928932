"""An element outside of regions that writes into a log and nowhere else, without state: it needs no checkpoint.

With the rows of each step the log has a note of where the sources are behind them; both are there, or neither. After any end the element
goes on behind the last rows in its log: none is lost, none is there twice. A step that fails is done again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.errors import MismatchError, PoisonFound
from holdfast.ids import ConnectionId, OperatorName
from holdfast.protocol import autonomous
from holdfast.protocol.accounts import Account
from holdfast.runtime.element.alone_life import AloneLife
from holdfast.runtime.element.evaluation import Work
from holdfast.runtime.failures import own_failure, story_of
from holdfast.runtime.persisted.connectors import PersistSink
from holdfast.runtime.runs.operator_runs import CLOSING
from holdfast.runtime.runs.source_seats import positions_of
from holdfast.runtime.telling.events import ElementFailed

SAVE_S = 1.0
"""Where its sources are is in the log; the store is told now and then, and at the end, so that programs can be compared."""


class RecoveringLife(AloneLife):
    """Made where `compiler.persisted.in_plan.recovers_from_log` says so."""

    _durable: dict[OperatorName, Any]
    """Where the sources are behind all rows that are in the log."""
    _saved_at = float("-inf")
    _noted: dict[OperatorName, Any] | None = None
    """Where the sources are behind the last rows in the log; None: not looked up yet."""

    @property
    def _sink(self) -> PersistSink:
        (run,) = self._loop.worker.sinks
        assert isinstance(run.sink, PersistSink)
        return run.sink

    def _look_up(self) -> dict[OperatorName, Any]:
        noted = self._sink.noted_sources(own=True)
        here = {run.name for run in self._loop.worker.sources}
        gone, new = sorted(set(noted) - here), sorted(here - set(noted))
        if noted and gone and new:
            raise MismatchError(
                f"source {new[0]!r} is new and source {gone[0]!r}, from which {self._sink.describe()} was written, is gone: under"
                " its new name it would be read from the beginning again.",
                cure=f"Name it {gone[0]!r} again, or begin another log.",
            )
        return noted

    def begin(self) -> None:
        super().begin()
        self._durable = dict(self._seats)

    def _beginning(self, name: OperatorName) -> Any:
        if self._noted is None:
            self._noted = self._look_up()
        if name in self._noted or self._sink.only_outages:
            return self._noted.get(name)  # the store may know of rows that were in memory only
        return super()._beginning(name)

    def _at_risk(self, work: Work) -> int:
        return 0

    def last_account(self) -> Account:
        return replace(self.account, in_flight=0)

    def _run_step(self) -> None:
        self._sink.note_sources(self._seats)
        super()._run_step()
        self._durable = dict(self._seats)  # of a step that failed they were looked up

    def _failed(self, work: Work, error: Exception, sent: dict[ConnectionId, int]) -> None:
        """Whether its rows are in the log is looked up, never assumed; if not, they are taken again."""
        self._error = error
        self._announce(ElementFailed(self._loop.name, own_failure(error) or story_of(error)))
        for run in self._loop.worker.sources:
            run.closed = run.closed and work.slices.get(run.name) is not CLOSING
        self._noted = None
        self._seats = {run.name: self._beginning(run.name) for run in self._loop.worker.sources}
        self._astray = tuple(self._seats)
        self._feed(autonomous.StepFailed(story_of(error), 0, frozenset(), sent))
        if isinstance(error, PoisonFound):
            self.on_poison(error)

    def _settled(self) -> dict[OperatorName, Any]:
        return self._sink.durable_sources(self._durable)

    def _save(self, account: Account) -> None:
        durable = self._settled()
        self._let_go(durable)
        now_at = positions_of(self._loop.worker.sources)
        self._seats = {name: known.state for name, known in now_at.items()}
        # The store never knows of more than the log has: without a note this is where the element goes on.
        known = {name: replace(at, state=durable.get(name)) for name, at in now_at.items()}
        now = self._loop.clock.monotonic()
        if self._work.slices and now - self._saved_at < SAVE_S:
            return
        self._saved_at = now
        self._keep(account, known, [])
