"""A Python operator in the driver with threads of its own, whose bodies are its `run(context)`.

A thread changes state and submits rows under a permit, so that both belong to the same epoch. The element closes the
permits after `drain()`, and opens them again when the epoch has the state; a thread that asks meanwhile waits. After a
reset it goes on, the same thread, with the state that the operator has then. Rows that threads submitted leave with the
element's next step.

What must hold: the state is looked at, taken and given only while no thread has a permit. A thread that does not give
its permit back is left behind together with its instance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.checkpoint.blobs import PairReader
from holdfast.checkpoint.parts import OperatorPart
from holdfast.errors import StepFailed, TopologyError
from holdfast.ids import Epoch
from holdfast.operators.python.user_errors import told
from holdfast.runtime.links.connection import Interrupted
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.hosted.hosted_work import NO_RISES
from holdfast.runtime.runs.hosted.operator_context import ThreadContext
from holdfast.runtime.runs.hosted.permits import Permits, ThreadOver
from holdfast.store.base import Store

T = TypeVar("T")
PATIENCE_S = 5.0
"""How long a reset waits for permits to be given back."""
TURN_S = 0.02
TURN_ROWS = 1000
"""`process` works for about so long, and on so many rows at the most, before threads have their turn."""
JOIN_S = 1.0


class Slot:
    """One thread of an instance. Its thread writes; `over` and `generation` change under `permits.condition`."""

    def __init__(self, run: ThreadedRun, instance: Any, number: int) -> None:
        self.number = number
        self.permits = run.permits
        self.generation = self.permits.generation
        """Of the state that the thread saw last."""
        self.over = False
        self._run = run
        self._instance = instance
        self._thread: threading.Thread | None = None

    def begin(self, make_thread: Callable[[Callable[[], None], str], threading.Thread]) -> None:
        self.over = False
        self.generation = self.permits.generation
        self._thread = make_thread(self._body, f"own-{self._run.name}-{self.number}")
        self._thread.start()

    def join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def submit(self, rows: Any, port: int | str) -> None:
        if not self.permits.ended:
            self._run.submit_from_thread(rows, port)

    def ask_for_epoch(self) -> None:
        self._run.ask_for_epoch()

    def _body(self) -> None:
        context = ThreadContext(self._run.context, self)
        try:
            while self._is_behind(self._once(context)):
                pass
        except ThreadOver:
            pass
        finally:
            with self.permits.condition:
                self.over = True
            self._run.wake()

    def _once(self, context: ThreadContext) -> Exception | None:
        try:
            self._instance.run(context)
        except Exception as error:
            return error
        return None

    def _is_behind(self, error: Exception | None) -> bool:
        """Whether the operator got another state since the thread looked: then it begins again. Else it is at its end."""
        with self.permits.condition:
            if self.permits.ended:
                return False
            if self.generation != self.permits.generation:
                self.generation = self.permits.generation
                return True
            if error is not None:
                self._run.failed(error)
            self.over = True
        return False


class ThreadedRun(HostedRun):
    """`wake`, `permits` and `failed` may be used by any thread; the rest by the element's."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.permits = Permits(self.name)
        self.wake: Callable[[], None] = lambda: None
        """There is something to do for the element. Set by its life."""
        self._slots: list[Slot] = []
        self._has_new_state = False
        self._failure: Exception | None = None
        self._epoch_asked = False
        self._epoch_told = False

    # --- what threads ask -------------------------------------------------------------------------------------------

    def submit_from_thread(self, rows: Any, port: int | str) -> None:
        if not self.permits.has():
            raise TopologyError(
                f"operator {self.name!r} submitted a row from a thread without a permit.",
                cure="Write: with context.permit(): …; context.submit(row), together with the change of state.",
            )
        count = self._output.outbox.submit(rows, port)
        with self.permits.condition:
            self.permits.backlog += count
        self.wake()

    def _submit(self, instance: Any, item: Any, port: int | str) -> None:
        if instance is not self.instance:
            return
        if self.thread.is_current:
            super()._submit(instance, item, port)
        else:
            self.submit_from_thread(item, port)

    def ask_for_epoch(self) -> None:
        with self.permits.condition:
            self._epoch_asked = True
            self.permits.close()
        self.wake()

    def failed(self, error: Exception) -> None:
        failure = told(f"operator {self.name!r}, run()", error)
        if failure is not error:
            failure.__cause__ = error
        self._failure = failure

    # --- what the element's life asks ---------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Rows that threads submitted and that no step has taken."""
        return self.permits.backlog

    @property
    def is_over(self) -> bool:
        """Every thread has come to its end, for the state as it is, and what it submitted was taken."""
        started = bool(self._slots) and not self._has_new_state and self._failure is None
        return started and all(slot.over for slot in self._slots) and not self.pending

    def let(self, go_on: bool) -> None:
        """Whether threads may have permits. The first time, and after each restore, those that are not at work begin."""
        if not go_on or self.instance is None:
            self.permits.close()
            return
        if self._epoch_asked:
            return
        if self._has_new_state:
            self._has_new_state = False
            if not self._slots:
                self._slots = [Slot(self, self.instance, n) for n in range(self._spec.threads)]
                begin = self._slots
            else:
                begin = [slot for slot in self._slots if slot.over]
            for slot in begin:
                slot.begin(self.thread.make_thread)
        self.permits.open()

    def take_wish(self) -> bool:
        """True once after `make_consistent()`."""
        told, self._epoch_told = self._epoch_told, self._epoch_asked
        return self._epoch_asked and not told

    def raise_failure(self) -> None:
        """Raises what a thread raised."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def busy(self, now: float) -> tuple[str, float] | None:
        called, held = super().busy(now), self.permits.held_for()
        return called if called is not None and called[1] >= held else ("a permit", held)

    @property
    def has_worked(self) -> bool:
        """A thread has had a permit since the last pin or restore: it may have changed the state."""
        return self.permits.used

    # --- as every Python operator, while no thread has a permit -------------------------------------------------------

    def _call(self, method: str, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self.permits.seized(self.give_up):
                try:
                    return work()
                finally:
                    self._output.outbox.closed_by = None

        return super()._call(method, alone)

    def may_checkpoint(self) -> bool:
        def alone() -> bool:
            is_ready = bool(self.instance.may_checkpoint())
            if is_ready:
                self.permits.close()
            return is_ready

        is_ready = self._call("may_checkpoint()", alone)
        # What a thread does next may be what makes it ready: then it stops right behind its permit.
        self.permits.watch(None if is_ready else self._is_at_a_point_of_threads)
        return is_ready

    def _is_at_a_point_of_threads(self) -> bool:
        is_ready = self.stops_here()
        if is_ready:
            self.wake()
        return is_ready

    def process(
        self,
        table: pa.Table,
        port: int,
        control: bool,
        deadline: float | None,
        rises: Mapping[int, int] = NO_RISES,
    ) -> int:
        if hasattr(self.instance, "process_batch"):
            return super().process(table, port, control, deadline)
        done = 0
        while done < table.num_rows and (not done or deadline is None or time.monotonic() < deadline):
            if done and deadline is not None and self.stops_here():
                break
            until = min(time.monotonic() + TURN_S, deadline or float("inf"))
            done += super().process(table.slice(done, TURN_ROWS), port, control, until)
        return done

    def drain(self) -> None:
        super().drain()
        if not self.permits.await_closed(self.give_up):
            raise Interrupted

    def take_outputs(self) -> list[pa.Table]:
        with self.permits.seized(self.give_up):
            tables = super().take_outputs()
            with self.permits.condition:
                self.permits.backlog = 0
                self.permits.condition.notify_all()
        return tables

    def check_state(self) -> None:
        with self.permits.seized(self.give_up):
            super().check_state()

    @property
    def counts(self) -> dict[str, int]:
        try:
            with self.permits.seized(self.give_up):
                return super().counts
        except Interrupted:
            return {}

    def pin(self, epoch: Epoch) -> Any:
        with self.permits.seized(self.give_up):
            self._epoch_asked = self._epoch_told = self.permits.used = False
            return super().pin(epoch)

    def remember(self) -> None:
        """Threads go on while a step is under way: there is no state before it."""

    def go_back(self) -> bool:
        """What threads did stays. The state is good unless one of them failed, or a call was left behind."""
        return self.instance is not None and self.thread.is_alive and self._failure is None

    def note_restored(self) -> bool:
        return bool(self.filled)

    def note_pinned(self) -> None:
        """What a restart would find is not known."""

    def is_as_stored(self) -> bool:
        return False

    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        until = time.monotonic() + PATIENCE_S
        is_quiet = self.permits.await_closed(lambda: time.monotonic() > until or self.permits.ended)
        if self.instance is not None and not (is_quiet and self.thread.is_alive):
            self._leave_behind()
        self._failure = None
        self._epoch_asked = self._epoch_told = self.permits.used = False
        super().restore(epoch, part, store, pairs)
        with self.permits.condition:
            self.permits.generation += 1
            self.permits.backlog = 0
            self.permits.condition.notify_all()
        self._has_new_state = True

    def _leave_behind(self) -> None:
        """The instance, with its threads and whatever they hold: another one takes its place."""
        self.permits.end()
        self.permits = Permits(self.name)
        self._slots = []
        self._made.value = None

    def close(self) -> None:
        self.permits.end()
        for slot in self._slots:
            slot.join()
        super().close()

    def check_threads(self) -> None:
        """StepFailed if a permit has been out for longer than the user's code may take."""
        held, limit = self.permits.held_for(), self.thread.limit_s
        if limit is not None and held > limit:
            raise StepFailed(
                f"a thread of operator {self.name!r} has not given its permit back for {held:.0f} s."
            )
