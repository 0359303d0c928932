"""Checkpoints that operators outside of regions take by themselves, each on its own schedule: written, recorded, read back.

Order of a checkpoint: segments, then values, then the record that names both, then everything else in the operator's entry is
deleted. So the record always names what is there. What a killed run left behind goes with the next checkpoint.

An operator that cannot read its checkpoint begins anew; what that costs is counted, and nobody else pays for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from holdfast.checkpoint import own_records
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.checkpoint.parts import places
from holdfast.checkpoint.stored_names import entry_of, own_entries, own_key
from holdfast.clock import Clock
from holdfast.errors import DamagedError, NoSpaceError
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName
from holdfast.protocol.accounts import Covered
from holdfast.runtime.element.aging import Aging
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.runs.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import Remembering, SinkRun, SourceRun, store_values
from holdfast.runtime.telling.events import (
    OperatorCheckpointed,
    OperatorCheckpointFailed,
    OperatorDamaged,
    RowsStale,
)
from holdfast.runtime.telling.feed import Announce
from holdfast.store.base import Store


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
        self._due: dict[OperatorName, float] = {}

    @property
    def kept(self) -> frozenset[OperatorName]:
        """Operators that store checkpoints."""
        return frozenset(self._every)

    def keep_all(self) -> None:
        """From now on every operator with a name of its own stores its state: now, and when the element ends. Any thread may call it."""
        if self._store is not None:
            self._every = {**dict.fromkeys(self._named, math.inf), **self._every}

    def due(self) -> frozenset[OperatorName]:
        now = self._clock.monotonic()
        return frozenset(
            name for name in self._every if now >= self._due.get(name, 0.0) and self._is_at_a_point(name)
        )

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
        run.tolerates_damage = True
        run.missed = self.aging.missed(run, found)
        run.restore(INITIAL_EPOCH, part, self._store)
        if run.stale_rows:
            reason = f"about {sum(run.missed)} rows since its checkpoint were missed and would have pushed them out"
            self._announce(RowsStale(run.name, run.stale_rows, tuple(run.missed), reason))
        if self.aging.restored(run, found):
            self._due[run.name] = self._clock.monotonic()
        lost = sum(rows for _, rows in run.lost_groups)
        return Restoration(lost, "; ".join(why for why, _ in run.lost_groups))

    def _next(self, name: OperatorName) -> float:
        return self._clock.monotonic() + self._every.get(name, 0.0)

    # --- storing ------------------------------------------------------------------------------------------------

    def store(self, name: OperatorName, covers: Covered, rows: int) -> bool:
        """Store the state of an operator as it is now, `rows` rows after the checkpoint before, which stays if there is
        no space: then False."""
        try:
            self._take(self.runs[name], covers, rows)
        except NoSpaceError as error:
            self._announce(OperatorCheckpointFailed(name, str(error)))
            return False
        finally:
            self._due[name] = self._next(name)
        return True

    def _take(self, run: Remembering, covers: Covered, rows: int) -> None:
        assert self._store is not None
        before = self._newest.get(run.name)
        number, rows = (1, rows) if before is None else (before.number + 1, before.rows + rows)
        pace = self.aging.measured(run) if isinstance(run, KeyedRun) else None
        prepared = run.part_of(Epoch(number), run.pin(Epoch(number)))
        key = partial(own_key, number, self._clock.wall())
        part = store_values(self._store, entry_of(None, run.name), key, Epoch(number), {run: prepared})[
            run.name
        ]
        made = OwnCheckpoint(number, part, pace, (covers.run, covers.step), rows)
        own_records.save(self._store, run.name, made)
        self._newest[run.name] = made
        needed = places(part.pieces(run.name))
        for entry in own_entries(run.name):
            gone = [name for name in self._store.keys(entry) if (entry, name) not in needed]
            if gone:
                self._store.delete(entry, gone)
        self._announce(OperatorCheckpointed(run.name, number))


def known_checkpoint(store: Store, operator: OperatorName) -> OwnCheckpoint | None:
    """The stored checkpoint of an operator; None: it has none, or a damaged one, and begins anew."""
    try:
        return own_records.load(store, operator)
    except DamagedError:
        return None
