"""Checkpoints that operators outside of regions take by themselves, each on its own schedule: written, recorded, read back.

A checkpoint is taken between two steps and stored in the background, one of the element at a time; of several that are due the one that is
most overdue for its period comes first (`checkpoint/due_checkpoints.py`).

Order of a checkpoint: segments, then values, then the record that names both, then everything else in the operator's entry is
deleted. So the record always names what is there. What a killed run left behind goes with the next checkpoint.

An operator that cannot read its checkpoint begins anew; what that costs is counted, and nobody else pays for it.
"""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.checkpoint import own_records
from holdfast.checkpoint.due_checkpoints import Due, by_priority
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.checkpoint.parts import OperatorPart, places
from holdfast.checkpoint.stored_names import entry_of, own_entries, own_key
from holdfast.clock import Clock
from holdfast.errors import DamagedError, NoSpaceError
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName
from holdfast.protocol.accounts import Covered
from holdfast.runtime.element.aging import Aging
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun, Tolerance
from holdfast.runtime.runs.operator_runs import Remembering, SinkRun, SourceRun, store_values
from holdfast.runtime.telling.events import (
    OperatorCheckpointed,
    OperatorCheckpointFailed,
    OperatorDamaged,
    RowsStale,
)
from holdfast.runtime.telling.feed import Announce
from holdfast.store.base import Store

Begun = tuple[OperatorName, "Future[OwnCheckpoint | None]"]


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restore of an operator cost beyond the rows since its checkpoint."""

    lost: int | None = 0
    """None: what it held cannot be told any more."""
    reason: str = ""


class OwnCheckpoints:
    """Of the operators of one element. Called by its thread."""

    def __init__(self, worker: Worker, store: Store | None, clock: Clock, announce: Announce) -> None:
        self._store = store
        self._clock = clock
        self._announce = announce
        self.runs: dict[OperatorName, Remembering] = {
            run.name: run for run in worker.runs.values() if not isinstance(run, SourceRun | SinkRun)
        }
        policies = {op.name: op.annotations.checkpoint_every_s for op in worker.element.operators}
        self._every = {name: every for name in self.runs if (every := policies[name]) is not None and store}
        kept = [run for run in self.runs.values() if isinstance(run, KeyedRun) and run.name in self._every]
        self.aging = Aging(worker.plan, kept, clock)
        named = {op.name for op in worker.element.operators if op.named}
        self._named = [name for name in self.runs if name in named]
        self._newest: dict[OperatorName, OwnCheckpoint] = {}
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoint-{worker.element.name}")
        self._under_way: Begun | None = None
        self._earlier: list[Begun] = []
        self._urgent: set[OperatorName] = set()
        """Operators whose next checkpoint must be stored before they go on: another restore of the one before would count, or remove, the
        same rows again."""
        self._due: dict[OperatorName, float] = {}

    @property
    def kept(self) -> frozenset[OperatorName]:
        """Operators that store checkpoints."""
        return frozenset(self._every)

    def keep_all(self) -> None:
        """From now on every operator with a name of its own stores its state: now, and when the element ends. Any thread may call it."""
        if self._store is not None:
            self._every = {**dict.fromkeys(self._named, math.inf), **self._every}

    def due(self) -> tuple[OperatorName, ...]:
        """Operators whose checkpoint should be taken now, the most overdue first; none while one is on its way."""
        if self._under_way is not None:
            return ()
        dues = [Due(name, every, self._due.get(name, 0.0)) for name, every in self._every.items()]
        return tuple(n for n in by_priority(dues, self._clock.monotonic()) if self._is_at_a_point(n))

    @property
    def is_storing(self) -> bool:
        """A checkpoint is on its way. Any thread may ask."""
        return self._under_way is not None

    @property
    def musts(self) -> frozenset[OperatorName]:
        """Operators whose checkpoints are wanted even if nothing happened: the one before would cost rows again, or how fast rows came
        has to be known."""
        return self.aging.operators | self._urgent

    def _is_at_a_point(self, name: OperatorName) -> bool:
        run = self.runs[name]
        return not isinstance(run, HostedRun) or not run.is_conditional or run.may_checkpoint()

    # --- restoring ----------------------------------------------------------------------------------------------

    def restore(self, name: OperatorName) -> Restoration:
        """Give an operator the state of its checkpoint; without a readable one, the initial state."""
        run = self.runs[name]
        try:
            found = self._find(name)
            cost = self._restore(run, found)
            if found is None and name in self._every:
                cost = Restoration(None)  # nothing, if it never had one
        except DamagedError as error:
            self._announce(OperatorDamaged(name, error.message))
            before = self._newest.pop(name, None)
            self._urgent.add(name)
            self._clear(name)
            run.restore(INITIAL_EPOCH, None, self._store)
            reason = f"the checkpoint of operator {name} is damaged, it begins anew: {error.message}"
            cost = Restoration(None if before is None else before.rows, reason)
        self._due.setdefault(name, self._next(name))
        return cost

    def _clear(self, name: OperatorName) -> None:
        """Make room for new checkpoints where a damaged one lies: a damaged entry takes nothing in."""
        assert self._store is not None
        for entry in own_entries(name):
            if self._store.has_entry(entry):
                self._store.delete_entry(entry)
        self._store.create_entry(entry_of(None, name))

    def held(self, name: OperatorName) -> int:
        """Rows that went into the newest checkpoint of an operator."""
        return self._newest[name].rows

    def _find(self, name: OperatorName) -> OwnCheckpoint | None:
        found = own_records.load(self._store, name) if self._store and name in self._every else None
        self._newest.pop(name, None)
        if found is not None:
            self._newest[name] = found
        return found

    def _restore(self, run: Remembering, found: OwnCheckpoint | None) -> Restoration:
        self._due[run.name] = self._next(run.name)
        part = None if found is None else found.part
        if not isinstance(run, KeyedRun):
            run.restore(INITIAL_EPOCH, part, self._store)
            return Restoration()
        tolerance = run.tolerance = Tolerance(tuple(self.aging.missed(run, found)))
        run.restore(INITIAL_EPOCH, part, self._store)
        if tolerance.stale_rows:
            reason = f"about {sum(tolerance.missed)} rows since its checkpoint were missed and would have pushed them out"
            self._announce(RowsStale(run.name, tolerance.stale_rows, tolerance.missed, reason))
        if self.aging.restored(run, found):
            self._urgent.add(run.name)
            self._due[run.name] = self._clock.monotonic()
        lost = sum(rows for _, rows in tolerance.lost)
        if lost:
            self._urgent.add(run.name)
        return Restoration(lost, "; ".join(why for why, _ in tolerance.lost))

    def _next(self, name: OperatorName) -> float:
        return self._clock.monotonic() + self._every.get(name, 0.0)

    # --- storing ------------------------------------------------------------------------------------------------

    def begin(self, name: OperatorName, covers: Covered, rows: int) -> None:
        """Take the state of an operator as it is now, `rows` rows after the checkpoint before, and store it in the background."""
        run = self.runs[name]
        self._due[name] = self._next(name)
        number, rows = self._numbered(name, rows)
        pace = self.aging.measured(run) if isinstance(run, KeyedRun) else None
        pinned = run.pin(Epoch(number))
        if isinstance(run, HostedRun):
            run.note_pinned()
        made = OwnCheckpoint(number, OperatorPart(), pace, (covers.run, covers.step), rows)
        if self._under_way is not None:
            self._earlier.append(self._under_way)  # a restore that found damage is not told when to come
        self._under_way = (name, self._threads.submit(self._store_pinned, run, pinned, made))

    def is_urgent(self, name: OperatorName) -> bool:
        """True if steps must wait until the checkpoint that was begun is stored. Asked once."""
        is_so = name in self._urgent
        self._urgent.discard(name)
        return is_so

    def _numbered(self, name: OperatorName, rows: int) -> tuple[int, int]:
        before = self._newest.get(name)
        return (1, rows) if before is None else (before.number + 1, before.rows + rows)

    def arrived(self, wait: bool = False) -> list[tuple[OperatorName, bool]]:
        """Checkpoints that are in the store, or could not be stored, since this was asked last; with `wait` all that were begun."""
        pending = [*self._earlier, *([] if self._under_way is None else [self._under_way])]
        done = [each for each in pending if wait or each[1].done()]
        self._earlier = [each for each in self._earlier if each not in done]
        self._under_way = None if self._under_way in done else self._under_way
        return [(name, self._took(name, future.result())) for name, future in done]

    def _took(self, name: OperatorName, made: OwnCheckpoint | None) -> bool:
        run = self.runs[name]
        if isinstance(run, HostedRun):
            run.note_stored(made is not None)
        if made is None:
            return False
        self._newest[name] = made
        self._announce(OperatorCheckpointed(name, made.number))
        return True

    def close(self) -> None:
        """Nothing more is begun. Waits for what is on its way: nobody may write when the run has ended."""
        self._threads.shutdown(wait=True)

    def _store_pinned(self, run: Remembering, pinned: Any, made: OwnCheckpoint) -> OwnCheckpoint | None:
        """Called in the background. None: there is no space, and the checkpoint before stays."""
        assert self._store is not None
        epoch = Epoch(made.number)
        key = partial(own_key, made.number, self._clock.wall())
        try:
            prepared = run.part_of(epoch, pinned)
            part = store_values(self._store, entry_of(None, run.name), key, epoch, {run: prepared})[run.name]
            made = replace(made, part=part)
            own_records.save(self._store, run.name, made)
            needed = places(part.pieces(run.name))
            for entry in own_entries(run.name):
                gone = [name for name in self._store.keys(entry) if (entry, name) not in needed]
                if gone:
                    self._store.delete(entry, gone)
        except NoSpaceError as error:
            self._announce(OperatorCheckpointFailed(run.name, str(error)))
            return None
        return made


def known_checkpoint(store: Store, operator: OperatorName) -> OwnCheckpoint | None:
    """The stored checkpoint of an operator; None: it has none, or a damaged one, and begins anew."""
    try:
        return own_records.load(store, operator)
    except DamagedError:
        return None
