"""Run-time side of a Python operator hosted in the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.chain import Restored
from holdfast.checkpoint.parts import OperatorPart, Whole
from holdfast.errors import StateError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName
from holdfast.language.context import Context
from holdfast.language.graph import HostedSpec
from holdfast.operators.python.dead_letters import Guard
from holdfast.operators.python.rows import Outbox, Row, rows_of, stamp
from holdfast.operators.python.user_errors import told
from holdfast.runtime.region.restore_budget import Chooser
from holdfast.runtime.runs.driver_load import DriverLoad
from holdfast.runtime.runs.operator_context import RunContext
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, blob_of
from holdfast.runtime.runs.user_thread import MakeThread, UserThread
from holdfast.runtime.runs.variable_chain import VersionedState
from holdfast.state.values import codec
from holdfast.state.variables import instance_state
from holdfast.state.variables.changed_attributes import taken_over
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.state_size import state_size
from holdfast.store.base import Store

T = TypeVar("T")
CHUNK_ROWS = 1 << 16
"""Rows that `process_batch` gets at once at the most."""
REMEMBERED_BYTES = 256 << 10
"""A state of up to this size is remembered before each step, outside of regions."""
FORGETFUL_STEPS = 100
"""After a larger one was met, so many steps pass until its size is looked at again."""
COMPARED_BYTES = 4 << 10
"""A state of up to this size is compared after each step with the one that a restart would find."""


class HostedRun(Remembering):
    """A Python operator in the driver. Its code runs in a thread of its own: see user_thread.py."""

    def __init__(
        self,
        name: OperatorName,
        spec: HostedSpec,
        source_index: int,
        stamped: tuple[bool, ...],
        make_thread: MakeThread,
        chooser: Chooser | None = None,
        place: Context | None = None,
    ) -> None:
        self.name = name
        self.epoch = INITIAL_EPOCH
        """Pinned or restored last."""
        self.context = RunContext(place or Context(name), lambda: self.epoch)
        self._spec = spec
        self._source_index = source_index
        self._stamped = stamped
        self._outbox = self._new_outbox()
        self._checked = False
        self.instance: Any = None
        self._letters = spec.on_error == "stream"
        self._emitted = [0] * len(spec.ports)
        self._pristine: Any = None
        self._chooser = chooser
        """None: every checkpoint holds the whole state."""
        self._versioned: VersionedState | None = None
        self.thread = UserThread(name, make_thread)
        self._load = DriverLoad(name)
        self.stops_when_ready = False
        """Whether rows are processed only up to where it may be checkpointed. Set by its life."""
        self.give_up: Callable[[], bool] = lambda: False
        """Does what the element does no longer matter? Set by its life."""
        self._before: bytes | None = None
        self._forgetful_steps = 0
        self._as_stored: bytes | None = None
        self._at_work: Row | None = None
        self._unguarded_calls = 0
        self._attributes: list[str] | None = None
        self.filled: tuple[str, ...] = ()
        """Attributes that the state restored last did not have: they are as in a fresh instance."""

    def _new_outbox(self) -> Outbox:
        return Outbox(self.name, self._spec.schemas, self._spec.missing, self._spec.names)

    def process(self, table: pa.Table, port: int, control: bool, deadline: float | None) -> int:
        """Hand rows to the operator until all are processed or it is `deadline`; returns how many were."""
        closed_by = f"a row of control port {port}" if control else None
        method = "process_batch" if hasattr(self.instance, "process_batch") else "process"
        work: Callable[[pa.Table, int, float | None], int] = self._rows
        if method == "process_batch":
            work = self._batches
        elif self._letters and not control:  # rows of control ports cause no output, and no errors either
            work = self._guarded_rows

        def alone() -> int:
            self._outbox.closed_by = closed_by
            return work(table, port, deadline)

        done = self._call(f"{method}()", alone)
        self._load.add(table, done)
        return done

    def _rows(self, table: pa.Table, port: int, deadline: float | None) -> int:
        process, submit_all = self.instance.process, self._outbox.submit_all
        done = 0
        for row in rows_of(table):
            self._at_work = row
            submit_all(process(row, port))
            done += 1
            if deadline is not None and (time.monotonic() >= deadline or self._stops_here()):
                break
        return done

    def _stops_here(self) -> bool:
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

    def _guarded_rows(self, table: pa.Table, port: int, deadline: float | None) -> int:
        """The same where rows may fail one by one. A large state is not remembered for it: it stays as the row left it."""

        def work(row: Row) -> None:
            self._outbox.submit_all(self.instance.process(row, port))

        guard = Guard(self.name, self._outbox, self._remembered, self._take)
        guard.begin(self._remembered())
        done = 0
        for row in rows_of(table):
            self._at_work = row
            guard.do(partial(work, row), row)
            done += 1
            if deadline is not None and (time.monotonic() >= deadline or self._stops_here()):
                break
        return done

    def _remembered(self) -> bytes | None:
        """The state, if it is small."""
        if self._unguarded_calls:
            self._unguarded_calls -= 1
            return None
        state = instance_state.take_state(self.instance)
        if len(state) <= REMEMBERED_BYTES:
            return state
        self._unguarded_calls = FORGETFUL_STEPS
        return None

    def _take(self, state: bytes) -> None:
        instance_state.give_state(self.instance, state)
        if self._versioned is not None:
            self._versioned.exchanged(self.instance)

    def _batches(self, table: pa.Table, port: int, deadline: float | None) -> int:
        done = 0
        while done < table.num_rows and (not done or deadline is None or time.monotonic() < deadline):
            if done and deadline is not None and self._stops_here():
                break
            piece = table.slice(done, CHUNK_ROWS)
            self._outbox.submit_all(self.instance.process_batch(piece, port))
            done += piece.num_rows
        return done

    def drain(self) -> None:
        def alone() -> None:
            self._outbox.closed_by = None
            self._outbox.submit_all(self.instance.drain())

        if hasattr(self.instance, "drain"):
            self._call("drain()", alone)

    def _call(self, method: str, work: Callable[[], T]) -> T:
        """Let the user's code work; its errors tell where they come from."""

        def named() -> T:
            self._at_work = None
            try:
                return work()
            except Exception as error:
                known = told(f"operator {self.name!r}, {method}", error, self._at_work)
                if known is error:
                    raise
                raise known from error

        return self.thread.call(method, named, self.give_up)

    def busy(self, now: float) -> tuple[str, float] | None:
        """For people: what of the user's code is at work, and for how long by now."""
        return self.thread.busy(now)

    # --- the version before a step, outside of regions ----------------------------------------------------------

    def remember(self) -> None:
        """Before a step: keep the state, if it is small, so that a failed step can be undone."""
        self._before = None
        if self.is_conditional:
            return
        if self._forgetful_steps:
            self._forgetful_steps -= 1
            return
        encoded = self._encoded()
        if len(encoded) <= REMEMBERED_BYTES:
            self._before = encoded
        else:
            self._forgetful_steps = FORGETFUL_STEPS

    def go_back(self) -> bool:
        """After a failed step: have the state from before it. False if that is gone."""
        before, self._before = self._before, None
        if before is None or not self.thread.is_alive:
            return False
        self._outbox = self._new_outbox()
        stored = codec.decode(before)
        self._take(stored["state"])
        self._emitted = list(stored["emitted"])
        return True

    def note_stored(self) -> None:
        """The state is what a restart would find: just restored, or in a checkpoint."""
        is_known = not self._forgetful_steps and not self.is_conditional
        self._as_stored = None if not is_known else instance_state.take_state(self.instance)

    def is_as_stored(self) -> bool:
        """After a step: True if a restart would find this very state. False also if that is not cheap to tell."""
        if self._before is None or len(self._before) > COMPARED_BYTES:
            return False
        return instance_state.take_state(self.instance) == self._as_stored

    def _encoded(self) -> bytes:
        return codec.encode(self._told(instance_state.take_state(self.instance)))

    def _told(self, state: bytes) -> dict[str, Any]:
        """What is stored with a state."""
        return {"state": state, "emitted": list(self._emitted), "attributes": self._attributes}

    def take_outputs(self) -> list[pa.Table]:
        """What was submitted, stamped where somebody orders by it."""
        tables = self._outbox.take()
        if self._letters:
            tables.append(self._outbox.take_failed())
        for port, table in enumerate(tables):
            if self._stamped[port]:
                tables[port] = stamp(table, self._source_index, self._emitted[port])
            self._emitted[port] += table.num_rows
        return tables

    def check_state(self) -> None:
        """After the first step: the state survives encoding, or the user hears which attribute does not."""
        if not self._checked and self.is_at_a_point():
            try:
                instance_state.check_state(self.instance)
            except StateError as error:
                raise StateError(f"operator {self.name!r}: {error.message}", cure=error.cure) from error
            self._checked = True

    @property
    def counts(self) -> dict[str, int]:
        """The size of the state, if the operator declares it, and how many rows failed."""
        counts = {"errors": self._emitted[-1]} if self._letters and self._emitted[-1] else {}
        if self.instance is None or not declared(type(self.instance)):
            return counts
        return {"state_bytes": state_size(self.instance), **counts}

    def pin(self, epoch: Epoch) -> Any:
        self.epoch = epoch
        # Encoded at once, if the operator may change its own objects in the next step.
        if instance_state.is_prepared(self.instance):
            return partial(
                self._finished, self.instance, instance_state.prepared(self.instance), self._told(b"")
            )
        if self._versioned is not None:
            return self._versioned.pin(epoch, self._told(instance_state.take_rest(self.instance)))
        return self._encoded()

    def _finished(self, instance: Any, prepared: Any, told: dict[str, Any]) -> bytes:
        """Encode what the operator prepared. Called in the background."""
        return codec.encode({**told, "state": instance_state.encoded(instance, prepared)})

    def part_of(self, epoch: Epoch, pinned: Any) -> Prepared:
        if callable(pinned):
            return Prepared(OperatorPart(form=Whole()), pinned())
        if self._versioned is None:
            return Prepared(OperatorPart(form=Whole()), pinned)
        return self._versioned.part_of(epoch, pinned)

    def stored(self, epoch: Epoch, pairs: Sequence[BlobRef]) -> None:
        if self._versioned is not None:
            self._versioned.stored(epoch, pairs)

    def restore(self, epoch: Epoch, part: OperatorPart | None, store: Store | None) -> None:
        self._outbox = self._new_outbox()
        self._before, self.filled, self.epoch = None, (), epoch
        if self.instance is None or not self.thread.is_alive:
            self._call("__init__()", self._make)
        versions = _versions(store, part) if part is not None and part.pairs else None
        if part is None:
            instance_state.to_initial(self.instance, self._pristine)
            self._emitted = [0] * len(self._spec.ports)
        else:
            stored = codec.decode(blob_of(store, part)) if versions is None else versions.rest
            state = self._taken_over(stored)
            instance_state.give_value(
                self.instance, state if versions is None else {**state, **versions.payloads}
            )
            ports = len(self._spec.ports)  # with or without errors: that may change between runs
            self._emitted = [*stored["emitted"], 0][:ports]
        if self._versioned is not None:
            # Before open(): what that changes counts as a change.
            self._versioned.restored(epoch, self.instance, versions, None if part is None else part.form)
        self._call("open()", lambda: instance_state.open_again(self.instance))

    def check_stored(self, stored: Mapping[str, Any]) -> None:
        """MismatchError if restoring what a checkpoint holds would be refused. Changes nothing."""
        if stored.get("attributes") is not None:
            if self.instance is None:
                self._call("__init__()", self._make)
            self._taken_over(stored)

    def _taken_over(self, stored: Mapping[str, Any]) -> Any:
        """The stored state, for an operator whose attributes may be others now."""
        state, fresh = (
            codec.decode(stored["state"]),
            instance_state.fresh_attributes(self.instance, self._pristine),
        )
        if fresh is None or type(state) is not dict:
            return state
        taken = taken_over(self.name, state, stored.get("attributes"), fresh, declared(type(self.instance)))
        self.filled = taken.filled
        return dict(taken.state)

    def _make(self) -> None:
        instance = self._spec.make()
        self._pristine = instance_state.initial_state(instance)
        fresh = instance_state.fresh_attributes(instance, self._pristine)
        self._attributes = None if fresh is None else sorted(fresh)
        instance._submit = lambda item, port=0: self._submit(instance, item, port)
        instance._context = self.context
        if self._chooser is not None and instance_state.is_incremental(instance):
            self._versioned = VersionedState(self._chooser)
        self.instance = instance

    def close(self) -> None:
        if self.instance is not None and self.thread.is_alive and hasattr(self.instance, "close"):
            self.thread.call("close()", lambda: self.instance.close(), lambda: True)
        self.thread.leave()

    def _submit(self, instance: Any, item: Any, port: int | str) -> None:
        """What an instance submits that was left behind goes nowhere."""
        if instance is self.instance:
            self._outbox.submit(item, port)


def _versions(store: Store | None, part: OperatorPart) -> Restored:
    assert store is not None
    fp("reset.op.load")
    restored = chain.restore(store, part.pairs)
    fp("reset.op.loaded")
    return restored
