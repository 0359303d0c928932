"""Checkpoints that operators outside of regions take by themselves: written, recorded, read back; old ones go.

Order of a checkpoint: segments, then values, then the record that names both, then everything else in the operator's entry is
deleted. So the record always names what is there. What a killed run left behind goes with the next checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.checkpoint import own_records
from holdfast.checkpoint.missed_rows_estimate import Pace
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.checkpoint.parts import places
from holdfast.checkpoint.retention import entry_of
from holdfast.clock import Clock
from holdfast.errors import DamagedError
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName, RegionName
from holdfast.runtime.element.operator_runs import Remembering, store_values
from holdfast.store.base import Store

AUTONOMOUS = RegionName("autonomous")
"""Stands for the region in the names of entries."""


class OwnCheckpoints:
    """Of the operators of one element. Called by the element's thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._numbers: dict[OperatorName, int] = {}

    def find(self, run: Remembering) -> OwnCheckpoint | None:
        """The newest checkpoint of an operator; None: it has none. Numbers go on from it."""
        with self._way_out(run):
            found = own_records.load(self._store, run.name)
        self._numbers[run.name] = 0 if found is None else found.number
        return found

    def restore(self, run: Remembering, found: OwnCheckpoint | None) -> None:
        """Give an operator the state of a checkpoint; None: its initial one."""
        with self._way_out(run):
            run.restore(INITIAL_EPOCH, None if found is None else found.part, self._store)

    @contextmanager
    def _way_out(self, run: Remembering) -> Iterator[None]:
        """Whatever is damaged, the operator can do without it."""
        try:
            yield
        except DamagedError as error:
            anew = f"holdfast checkpoints reset-operator {self._store.url} {run.name}"
            raise DamagedError(
                error.message, cure=f"Restore it from a backup, or let the operator begin anew: `{anew}`."
            ) from error

    def take(self, run: Remembering, pace: Pace | None = None) -> OwnCheckpoint:
        """Store an operator's state as of now. If it raises, the checkpoint before is what counts."""
        number = Epoch(self._numbers[run.name] + 1)
        prepared = run.part_of(number, run.pin(number))
        entry = entry_of(AUTONOMOUS, run.name)
        key = f"e{number}-t{self._clock.wall():.6f}"
        part = store_values(self._store, entry, key, number, {run: prepared})[run.name]
        made = OwnCheckpoint(number, part, pace)
        own_records.save(self._store, run.name, made)
        self._numbers[run.name] = number
        needed = places(part.pieces(run.name))
        self._store.delete(entry, [key for key in self._store.keys(entry) if (entry, key) not in needed])
        return made
