"""A Python operator in the driver at work: rows go in by one of its methods, and what it makes is collected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import HostedSpec
from holdfast.language.hosted import Poison
from holdfast.language.operators.async_calls import Answer, CallTimeout
from holdfast.operators.python.dead_letters import Failures, Guard, is_outage, letter
from holdfast.operators.python.hosted_clock import Ahead, Clock
from holdfast.operators.python.rows import Outbox, Row, rows_of
from holdfast.operators.python.user_errors import told
from holdfast.runtime.runs.hosted.driver_load import DriverLoad
from holdfast.runtime.runs.hosted.guarded_rows import GuardedRows
from holdfast.runtime.runs.hosted.hosted_instance import HostedInstance
from holdfast.runtime.runs.hosted.hosted_output import HostedOutput
from holdfast.runtime.runs.hosted.known_states import SmallStates
from holdfast.runtime.runs.hosted.user_thread import UserThread
from holdfast.runtime.runs.variable_chain import VersionedState
from holdfast.state.variables import instance_state

T = TypeVar("T")
NO_RISES: Mapping[int, int] = {}
CHUNK_ROWS = 1 << 16
"""Rows that `process_batch` gets at once at the most."""


class HostedWork:
    """The part of `HostedRun` that works; what it works with is made there."""

    name: OperatorName
    clock: Clock | None
    thread: UserThread
    failures: Failures
    give_up: Callable[[], bool]
    stops_when_ready: bool
    _spec: HostedSpec
    _made: HostedInstance
    _output: HostedOutput
    _load: DriverLoad
    _versioned: VersionedState | None
    _small: SmallStates
    _at_work: Row | None

    @property
    def instance(self) -> Any:
        """The user's operator; None before it is made."""
        return self._made.value

    @property
    def filled(self) -> tuple[str, ...]:
        """Attributes that the state restored last did not have: they are as in a fresh instance."""
        return self._made.filled

    @property
    def poison(self) -> Poison | None:
        return self._spec.poison

    @property
    def _may_lose_rows(self) -> bool:
        """Its rows may fail one by one."""
        return self._spec.on_error == "stream" or self._spec.poison is not None

    def process(
        self,
        table: pa.Table,
        port: int,
        control: bool,
        deadline: float | None,
        rises: Mapping[int, int] = NO_RISES,
    ) -> int:
        """Hand rows to the operator until all are processed or it is `deadline`; returns how many were. `rises`: the
        watermarks that are reached at some of them."""
        closed_by = f"a row of control port {port}" if control else None
        method = "process_batch" if hasattr(self.instance, "process_batch") else "process"
        work: Callable[[pa.Table, int, float | None, Mapping[int, int]], int] = self._rows
        if method == "process_batch":
            work = self._batches if self.clock is None and not self._spec.letters else self._each
        guarded = None
        if (
            self._may_lose_rows and method == "process" and not control
        ):  # rows of control ports cause no output, and no errors either
            guarded = GuardedRows(self, table, port, deadline, rises)

        seconds = 0.0

        def alone() -> int:
            nonlocal seconds
            self._output.outbox.closed_by = closed_by
            # Of this thread alone: what others do to the machine says nothing about the operator.
            begun = time.thread_time()
            done = work(table, port, deadline, rises) if guarded is None else guarded.work()
            seconds = time.thread_time() - begun
            return done

        done = (
            self._call(getattr(self.instance, "_called_as", f"{method}()"), alone)
            if guarded is None
            else guarded.call(alone)
        )
        self._load.add(table, done)
        if self._versioned is not None:
            self._versioned.worked(port, done, seconds)
        return done

    def _rows(self, table: pa.Table, port: int, deadline: float | None, rises: Mapping[int, int]) -> int:
        process, submit_all = self.instance.process, self._output.outbox.submit_all
        done = 0
        for row in rows_of(table):
            self._at_work = row
            if done in rises:
                self._output.outbox.time_came(rises[done])
            submit_all(process(row, port))
            done += 1
            if deadline is not None and (time.monotonic() >= deadline or self.stops_here()):
                break
        return done

    def stops_here(self) -> bool:
        return self.stops_when_ready and self.is_at_a_point()

    def is_at_a_point(self) -> bool:
        """Whether it may be checkpointed as it is now."""
        return not self.is_conditional or bool(self.instance.may_checkpoint())

    @property
    def is_conditional(self) -> bool:
        return self._spec.conditional

    def may_checkpoint(self) -> bool:
        """Whether it may be checkpointed as it is now; if so, its threads wait from here on."""
        return self._call("may_checkpoint()", lambda: bool(self.instance.may_checkpoint()))

    def new_guard(self) -> Guard[bytes]:
        """For rows that may fail one by one, from the state as it is now."""
        guard = Guard(self.name, self._output.outbox, self._remembered, self._take, self.failures)
        guard.begin(self._remembered())
        return guard

    def process_one(self, row: Row, port: int) -> None:
        outbox = self._output.outbox  # that of the moment at which it begins
        outbox.submit_all(self.instance.process(row, port))

    def at_work(self, row: Row) -> Row:
        self._at_work = row
        return row

    def time_came(self, mark: int) -> None:
        self._output.outbox.time_came(mark)

    def _remembered(self) -> bytes | None:
        """The state, if it is small."""
        if not self.is_at_a_point():
            return None
        return self._small.take(lambda: instance_state.take_state(self.instance))

    def _take(self, state: bytes) -> None:
        self._made.give(state)
        if self._versioned is not None:
            self._versioned.exchanged(self.instance)

    def _batches(self, table: pa.Table, port: int, deadline: float | None, rises: Mapping[int, int]) -> int:
        done = 0
        while done < table.num_rows and (not done or deadline is None or time.monotonic() < deadline):
            if done and deadline is not None and self.stops_here():
                break
            piece = table.slice(done, CHUNK_ROWS)
            self._output.outbox.submit_all(self.instance.process_batch(piece, port))
            done += piece.num_rows
        return done

    def _each(self, table: pa.Table, port: int, deadline: float | None, rises: Mapping[int, int]) -> int:
        """The same for an operator that tells which rows it made of each."""
        done = 0
        while done < table.num_rows and (not done or deadline is None or time.monotonic() < deadline):
            for made in self.instance.process_each(table.slice(done, CHUNK_ROWS), port):
                if done in rises:
                    self._output.outbox.time_came(rises[done])
                self._take_answer(made)
                done += 1
        return done

    def _take_answer(self, answer: Answer) -> None:
        """What one row became; or, if the operator has a stream of errors, why it became nothing."""
        outbox = self._output.outbox
        mark = outbox.mark()
        try:
            if answer.error is not None:
                raise answer.error
            outbox.submit_all(answer.rows)
            if self._spec.letters:
                outbox.check(mark)
        except Exception as error:
            is_away = is_outage(error) and not isinstance(error, CallTimeout)
            if not self._spec.letters or is_away or isinstance(error, TopologyError):
                raise
            outbox.back_to(mark)
            outbox.failed.append(letter(self.name, answer.row, error))
            outbox.failed_at.append(outbox.where)

    def time_passes(self, port: int, rows: pa.Table, times: Sequence[pa.Table]) -> Ahead | None:
        """What a batch will do to the clock: rows with their positions, and the times beside them."""
        return None if self.clock is None else self.clock.ahead(port, rows, times)

    def time_passed(self, ahead: Ahead | None, done: int) -> None:
        """So many rows of the batch were processed."""
        if ahead is not None and self.clock is not None and self.clock.pass_by(ahead, done):
            self._output.outbox.time_came(self.clock.watermark)

    def take_times(self) -> dict[int, pa.Table]:
        """The times beside the rows that `take_outputs` gave last, by port; where time did not go on, none."""
        return self._output.take_times()

    def make_another(self, outbox: Outbox) -> None:
        """The instance is left behind in a call that hangs: another one goes on. Its state is given to it next."""
        raise NotImplementedError

    def drain(self) -> None:
        def alone() -> None:
            self._output.outbox.closed_by = None
            self._output.outbox.submit_all(self.instance.drain())

        if hasattr(self.instance, "drain"):
            self._call("drain()", alone)

    def _call(self, method: str, work: Callable[[], T]) -> T:
        """Let the user's code work; its errors tell where they come from."""
        return self.called(method, work, self.give_up)

    def called(self, method: str, work: Callable[[], T], give_up: Callable[[], bool]) -> T:

        def named() -> T:
            self._at_work = None
            try:
                return work()
            except Exception as error:
                known = told(f"operator {self.name!r}, {method}", error, self._at_work)
                if known is error:
                    raise
                raise known from error

        return self.thread.call(method, named, give_up)
