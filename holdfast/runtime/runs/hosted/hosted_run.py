"""Run-time side of a Python operator hosted in the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, PairReader
from holdfast.checkpoint.chain import Restored
from holdfast.checkpoint.parts import OperatorPart, Whole
from holdfast.failpoints import fp
from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.language.context import Context
from holdfast.language.hosted import Operator
from holdfast.operators.python.dead_letters import Failures
from holdfast.operators.python.hosted_clock import Clock
from holdfast.operators.python.rows import Outbox, Row
from holdfast.runtime.region.restore_budget import Chooser
from holdfast.runtime.runs.hosted.driver_load import DriverLoad
from holdfast.runtime.runs.hosted.hosted_instance import HostedInstance
from holdfast.runtime.runs.hosted.hosted_output import HostedOutput
from holdfast.runtime.runs.hosted.hosted_work import HostedWork
from holdfast.runtime.runs.hosted.known_states import KnownStates, SmallStates
from holdfast.runtime.runs.hosted.operator_context import RunContext
from holdfast.runtime.runs.hosted.user_thread import MakeThread, UserThread
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, blob_of
from holdfast.runtime.runs.variable_chain import VersionedState
from holdfast.state.values import codec
from holdfast.state.values.codec import Frozen
from holdfast.state.variables import instance_state
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.state_size import own_size, state_size, whole_size
from holdfast.store.base import Store

T = TypeVar("T")


class HostedRun(HostedWork, Remembering):
    """A Python operator in the driver. Its code runs in a thread of its own: see user_thread.py."""

    def __init__(
        self,
        output: HostedOutput,
        make_thread: MakeThread,
        chooser: Chooser | None = None,
        clock: Clock | None = None,
        place: Context | None = None,
    ) -> None:
        name, spec = output.name, output.spec
        self.name = name
        self.epoch = INITIAL_EPOCH
        """Pinned or restored last."""
        self.context = RunContext(place or Context(name), lambda: self.epoch)
        self.clock = clock
        """Event time, if somebody behind it goes by it."""
        self.thread = UserThread(name, make_thread)
        self.failures = Failures(spec.on_error == "stream", spec.poison)
        self.stops_when_ready = False
        """Whether rows are processed only up to where it may be checkpointed. Set by its life."""
        self.give_up: Callable[[], bool] = lambda: False
        """Does what the element does no longer matter? Set by its life."""
        self._spec = spec
        self._made = HostedInstance(name)
        self._output = output
        self._known = KnownStates()
        self._chooser = chooser
        """None: every checkpoint holds the whole state."""
        self._versioned: VersionedState | None = None
        self._load = DriverLoad(name)
        self._small = SmallStates()
        self._at_work: Row | None = None

    def busy(self, now: float) -> tuple[str, float] | None:
        """For people: what of the user's code is at work, and for how long by now."""
        return self.thread.busy(now)

    # --- the version before a step, outside of regions ----------------------------------------------------------

    def remember(self) -> None:
        """Before a step: keep the state, if it is small, so that a failed step can be undone."""
        if self.is_conditional:
            self._known.forget()
        else:
            self._known.remember(self._encoded)

    def go_back(self) -> bool:
        """After a failed step: have the state from before it. False if that is gone."""
        before = self._known.take_before()
        if before is None or not self.thread.is_alive:
            return False
        self._output.clear()
        stored = codec.decode(before)
        self._take(stored["state"])
        self._count_from(stored["emitted"], stored)
        return True

    def note_restored(self) -> bool:
        """The state is what a restart would find. True if it lacked attributes."""
        if not self.is_conditional:
            self._known.restored(self._state)
        return bool(self.filled)

    def note_pinned(self) -> None:
        """The state is on its way into the store: a restart finds it, or the one before."""
        if not self.is_conditional:
            self._known.pinned(self._state)

    def note_stored(self, is_durable: bool) -> None:
        """What was pinned has arrived, or not."""
        self._known.arrived(is_durable)

    def is_as_stored(self) -> bool:
        """After a step: True if a restart would find this very state. False also if that is not cheap to tell."""
        return self._known.is_as_stored(self._state)

    def _state(self) -> bytes:
        return instance_state.take_state(self.instance)

    def _encoded(self) -> bytes:
        return codec.encode(self._beside(self._state()))

    def _beside(self, state: bytes) -> dict[str, Any]:
        """A state, and what is stored with it."""
        stored = {
            "state": state,
            "emitted": list(self._output.counts),
            "attributes": self._made.attributes,
        }
        return stored if self.clock is None else {**stored, "time": self.clock.stored()}

    def take_outputs(self) -> list[pa.Table]:
        """What was submitted, stamped where somebody orders by it."""
        return self._output.take()

    def check_state(self) -> None:
        """After the first step: the state survives encoding, or the user hears which attribute does not."""
        self._made.check_once(self.is_at_a_point)

    @property
    def counts(self) -> dict[str, int]:
        """The size of the state, if the operator declares it, and how many rows failed."""
        counts = {"errors": self._output.errors} if self._output.errors else {}
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
                self._finished, self.instance, instance_state.prepared(self.instance), self._beside(b"")
            )
        if self._versioned is not None:
            return self._versioned.pin(epoch, self._beside(instance_state.take_rest(self.instance)))
        # Taken at once, since the operator may change its own objects in the next step; encoded in the background.
        return partial(self._sealed, instance_state.freeze_state(self.instance), self._beside(b""))

    def _sealed(self, state: Frozen, beside: dict[str, Any]) -> bytes:
        return codec.encode({**beside, "state": state.encoded()})

    def _finished(self, instance: Any, prepared: Any, beside: dict[str, Any]) -> bytes:
        """Encode what the operator prepared. Called in the background."""
        return codec.encode({**beside, "state": instance_state.encoded(instance, prepared)})

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
        self._output.clear()
        self._known.forget()
        self._made.filled, self.epoch = (), epoch
        if self.instance is None or not self.thread.is_alive:
            self._call("__init__()", self._make)
        versions = _versions(pairs or store, part) if part is not None and part.pairs else None
        if part is None:
            self._made.to_initial()
            self._count_from((), {})
        else:
            stored = codec.decode(blob_of(pairs or store, part)) if versions is None else versions.rest
            state = self._made.taken_over(stored)
            instance_state.give_value(
                self.instance, state if versions is None else {**state, **versions.payloads}
            )
            self._count_from(stored["emitted"], stored)
        if self._versioned is not None:
            # Before open(): what that changes counts as a change.
            self._versioned.restored(epoch, self.instance, versions, None if part is None else part.form)
        self._call("open()", lambda: instance_state.open_again(self.instance))

    def store_anew(self) -> None:
        """The next checkpoint holds all of the state, and refers to nothing that was stored before."""
        if self._versioned is not None:
            self._versioned.restored(self.epoch, self.instance, None, None)

    def _count_from(self, counts: Sequence[int], stored: Mapping[str, Any]) -> None:
        """So many rows were made by now, and it is this time."""
        self._output.go_to(counts)
        if self.clock is not None:
            self.clock.restore(stored.get("time"))

    def check_stored(self, stored: Mapping[str, Any]) -> None:
        """MismatchError if restoring what a checkpoint holds would be refused. Changes nothing."""
        if stored.get("attributes") is not None:
            if self.instance is None:
                self._call("__init__()", self._make)
            self._made.taken_over(stored)

    def _make(self) -> None:
        instance = self._spec.make()
        self._made.take(instance)
        instance._submit = lambda item, port=0: self._submit(instance, item, port)
        instance._context = self.context
        if self._chooser is not None and instance_state.is_incremental(instance):
            self._versioned = VersionedState(self._chooser)

    def make_another(self, outbox: Outbox) -> None:
        versioned, self._output.outbox = self._versioned, outbox
        self._call("__init__()", self._make)
        self._versioned, self._made.is_unopened = versioned, True

    def close(self) -> None:
        if self.instance is not None and self.thread.is_alive and hasattr(self.instance, "close"):
            self.thread.call("close()", lambda: self.instance.close(), lambda: True)
        self.thread.leave()

    def _submit(self, instance: Any, item: Any, port: int | str) -> None:
        """What an instance submits that was left behind goes nowhere."""
        if instance is not self.instance:
            return
        if self.clock is not None and not self.thread.is_current:
            self._output.refuse_stray()
        self._output.outbox.submit(item, port)


def _versions(store: PairReader | None, part: OperatorPart) -> Restored:
    assert store is not None
    fp("reset.op.load")
    restored = chain.restore(store, part.pairs)
    fp("reset.op.loaded")
    return restored
