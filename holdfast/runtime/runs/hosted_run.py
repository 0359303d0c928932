"""Run-time side of a Python operator hosted in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, PairReader
from holdfast.checkpoint.chain import Restored
from holdfast.checkpoint.parts import OperatorPart, Whole
from holdfast.errors import StateError, TopologyError
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName
from holdfast.language.context import Context
from holdfast.language.graph import HostedSpec
from holdfast.language.hosted import Operator
from holdfast.operators.python.dead_letters import Failures
from holdfast.operators.python.hosted_clock import Clock, times_beside
from holdfast.operators.python.rows import Outbox, Row, stamp
from holdfast.runtime.region.restore_budget import Chooser
from holdfast.runtime.runs import hosted_work
from holdfast.runtime.runs.driver_load import DriverLoad
from holdfast.runtime.runs.hosted_work import FORGETFUL_STEPS, HostedWork
from holdfast.runtime.runs.operator_context import RunContext
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, blob_of
from holdfast.runtime.runs.user_thread import MakeThread, UserThread
from holdfast.runtime.runs.variable_chain import VersionedState
from holdfast.state.values import codec
from holdfast.state.values.codec import Frozen
from holdfast.state.variables import instance_state
from holdfast.state.variables.changed_attributes import taken_over
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.state_size import own_size, state_size, whole_size
from holdfast.store.base import Store

T = TypeVar("T")
COMPARED_BYTES = 4 << 10
"""A state of up to this size is compared after each step with the one that a restart would find."""


class HostedRun(HostedWork, Remembering):
    """A Python operator in the driver. Its code runs in a thread of its own: see user_thread.py."""

    def __init__(
        self,
        name: OperatorName,
        spec: HostedSpec,
        source_index: int,
        stamped: tuple[bool, ...],
        make_thread: MakeThread,
        chooser: Chooser | None = None,
        clock: Clock | None = None,
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
        self._times: list[pa.Table] = []
        self.clock = clock
        """Event time, if somebody behind it goes by it."""
        self._caller: int | None = None
        self._stray: TopologyError | None = None
        self._checked = False
        self.instance: Any = None
        self._letters, self.poison = spec.letters, spec.poison
        self._guards = spec.on_error == "stream" or spec.poison is not None
        self.failures = Failures(spec.on_error == "stream", spec.poison)
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
        self._on_its_way: tuple[bytes | None] | None = None
        self._at_work: Row | None = None
        self._unguarded_calls = 0
        self._opens = False
        self._attributes: list[str] | None = None
        self.filled: tuple[str, ...] = ()
        """Attributes that the state restored last did not have: they are as in a fresh instance."""

    def _new_outbox(self) -> Outbox:
        return Outbox(self.name, self._spec.schemas, self._spec.missing, self._spec.names)

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
        if len(encoded) <= hosted_work.REMEMBERED_BYTES:
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
        self._to_time(stored)
        return True

    def note_restored(self) -> bool:
        """The state is what a restart would find. True if it lacked attributes."""
        self._as_stored, self._on_its_way = self._known_now(), None
        return bool(self.filled)

    def note_pinned(self) -> None:
        """The state is on its way into the store: a restart finds it, or the one before."""
        self._on_its_way = (self._known_now(),)

    def note_stored(self, is_durable: bool) -> None:
        """What was pinned has arrived, or not."""
        if is_durable and self._on_its_way is not None:
            (self._as_stored,) = self._on_its_way
        self._on_its_way = None

    def _known_now(self) -> bytes | None:
        is_known = not self._forgetful_steps and not self.is_conditional
        return instance_state.take_state(self.instance) if is_known else None

    def is_as_stored(self) -> bool:
        """After a step: True if a restart would find this very state. False also if that is not cheap to tell."""
        if self._before is None or len(self._before) > COMPARED_BYTES:
            return False
        state = instance_state.take_state(self.instance)
        return state == self._as_stored and self._on_its_way in (None, (state,))

    def _encoded(self) -> bytes:
        return codec.encode(self._told(instance_state.take_state(self.instance)))

    def _told(self, state: bytes) -> dict[str, Any]:
        """What is stored with a state."""
        told = {"state": state, "emitted": list(self._emitted), "attributes": self._attributes}
        return told if self.clock is None else {**told, "time": self.clock.stored()}

    def take_outputs(self) -> list[pa.Table]:
        """What was submitted, stamped where somebody orders by it."""
        if self._stray is not None:
            raise self._stray
        self._times = [
            times_beside(self._source_index, first, came)
            for first, came in zip(self._emitted, self._outbox.take_times(), strict=False)
        ]
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

    def state_size(self) -> int:
        if self.instance is None:
            return 0
        defined = getattr(type(self.instance), "state_size", None)
        if not callable(defined) or defined is Operator.state_size:
            return whole_size(self.instance)
        return self._call("state_size()", lambda: own_size(self.instance))

    def pin(self, epoch: Epoch) -> Any:
        self.epoch = epoch
        if instance_state.is_prepared(self.instance):
            return partial(
                self._finished, self.instance, instance_state.prepared(self.instance), self._told(b"")
            )
        if self._versioned is not None:
            return self._versioned.pin(epoch, self._told(instance_state.take_rest(self.instance)))
        # Taken at once, since the operator may change its own objects in the next step; encoded in the background.
        return partial(self._sealed, instance_state.freeze_state(self.instance), self._told(b""))

    def _sealed(self, state: Frozen, told: dict[str, Any]) -> bytes:
        return codec.encode({**told, "state": state.encoded()})

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

    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        self._outbox = self._new_outbox()
        self._before, self.filled, self.epoch = None, (), epoch
        if self.instance is None or not self.thread.is_alive:
            self._call("__init__()", self._make)
        versions = _versions(pairs or store, part) if part is not None and part.pairs else None
        if part is None:
            instance_state.to_initial(self.instance, self._pristine)
            self._emitted = [0] * len(self._spec.ports)
            self._to_time({})
        else:
            stored = codec.decode(blob_of(pairs or store, part)) if versions is None else versions.rest
            state = self._taken_over(stored)
            instance_state.give_value(
                self.instance, state if versions is None else {**state, **versions.payloads}
            )
            ports = len(self._spec.ports)  # with or without errors: that may change between runs
            self._emitted = [*stored["emitted"], 0][:ports]
            self._to_time(stored)
        if self._versioned is not None:
            # Before open(): what that changes counts as a change.
            self._versioned.restored(epoch, self.instance, versions, None if part is None else part.form)
        self._call("open()", lambda: instance_state.open_again(self.instance))

    def store_anew(self) -> None:
        """The next checkpoint holds all of the state, and refers to nothing that was stored before."""
        if self._versioned is not None:
            self._versioned.restored(self.epoch, self.instance, None, None)

    def _to_time(self, stored: Mapping[str, Any]) -> None:
        self._stray = None
        if self.clock is not None:
            self.clock.restore(stored.get("time"))

    def check_stored(self, stored: Mapping[str, Any]) -> None:
        """MismatchError if restoring what a checkpoint holds would be refused. Changes nothing."""
        if stored.get("attributes") is not None:
            if self.instance is None:
                self._call("__init__()", self._make)
            self._taken_over(stored)

    def _taken_over(self, stored: Mapping[str, Any]) -> Any:
        """The stored state, for an operator whose attributes may be others now."""
        state = codec.decode(stored["state"])
        fresh = instance_state.fresh_attributes(self.instance, self._pristine)
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

    def make_another(self, outbox: Outbox) -> None:
        versioned, self._outbox = self._versioned, outbox
        self._call("__init__()", self._make)
        self._versioned, self._opens = versioned, True

    def close(self) -> None:
        if self.instance is not None and self.thread.is_alive and hasattr(self.instance, "close"):
            self.thread.call("close()", lambda: self.instance.close(), lambda: True)
        self.thread.leave()

    def _submit(self, instance: Any, item: Any, port: int | str) -> None:
        """What an instance submits that was left behind goes nowhere."""
        if instance is not self.instance:
            return
        if self.clock is not None and threading.get_ident() != self._caller:
            self._stray = TopologyError(
                f"operator {self.name!r} submitted a row from a thread of its own: behind it event time of its input counts.",
                cure=f"Submit in process(), or declare event time again behind {self.name!r}: .event_time('at', delay=…).",
            )
            raise self._stray
        self._outbox.submit(item, port)


def _versions(store: PairReader | None, part: OperatorPart) -> Restored:
    assert store is not None
    fp("reset.op.load")
    restored = chain.restore(store, part.pairs)
    fp("reset.op.loaded")
    return restored
