"""Run-time side of a keyed operator: its live version, and what the store has of it.

The live version is a set of immutable segments that merges rearrange. The store has, for each partition,

    chain    the segments of a base, then the deltas since: for every key the newest row counts
    others   segments that belong to no keyed map (windows, waiting rows): stored as they are, each once

A *base* is the version's own segments, those that the store has already by reference, or the same joined. A *delta* is the rows that
steps changed since the checkpoint before, each key once; what live merges joined of them already is used, but they never
force anything into the store.

Must hold: `_chain` and `_changes` together are the current version, whenever the latter are kept. So `_changes` loses a segment only
when the chain has got its rows. An upload that fails leaves both as they were; an epoch that is given up after its
uploads leaves the chain longer, by segments that nobody deletes before the next epoch refers to them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.checkpoint.adaptive import Cost, Form
from holdfast.checkpoint.blobs import PairReader
from holdfast.checkpoint.group_size import Sample
from holdfast.checkpoint.parts import Groups, OperatorPart, StoredForm
from holdfast.errors import DamagedError
from holdfast.ids import Epoch, OperatorName
from holdfast.operators.shared.logic import Segments
from holdfast.runtime.engines.engine import Engine, KeyedState, KeyedTask, Spare, StepName
from holdfast.runtime.region.restore_budget import Chooser
from holdfast.runtime.runs.group_profile import GroupProfile
from holdfast.runtime.runs.operator_runs import Prepared, Remembering, blob_of
from holdfast.state.joins.sides import MERGED_ROWS
from holdfast.state.keyed.change_log import ChangeLogs
from holdfast.state.keyed.layout import Block, Merge, Run, age_of, blocks_of
from holdfast.state.keyed.segment import Segment
from holdfast.state.values import codec
from holdfast.store.base import SegmentRef, Store

Refs = list[SegmentRef]

JOINED_AFTER, JOINED_OVER = 8, 1.1
"""A base after so many deltas is joined if the store lacks so many times the bytes that it has then."""
MOST_LOGGED = 4
"""Changes that have so many times the bytes of the state they belong to are not logged any further."""
STALE = "stale"
"""Under this name an operator counts rows that restores removed from its windows as too old."""


@dataclass(frozen=True, slots=True)
class KeyedPin:
    """A version, and the changes of each partition since the checkpoint before it."""

    state: KeyedState
    changes: tuple[Segments, ...]
    complete: bool
    """True if the changes are all since the checkpoint before: it may become a delta."""
    life: int
    """Which restore it comes after."""

    @property
    def segments(self) -> list[Segment]:
        return [s for partition in (*self.state.partitions, *self.changes) for s in partition]


@dataclass
class Tolerance:
    """Outside of regions: what the next restore may do without, and what it did without."""

    missed: tuple[int, ...] = ()
    """Rows that each input brought since the state was stored, and that it lacks; empty: none are known."""
    lost: list[tuple[str, int]] = field(default_factory=list)
    """(what is wrong, rows) of damaged groups."""
    stale_rows: int = 0
    """Rows of windows that those which were missed would have pushed out."""

    def spare(self, form: StoredForm | None, meta: Any) -> Spare:
        """For the engine. `form`, `meta`: as stored with the state."""
        rows = form.rows if isinstance(form, Groups) else {}

        def note(ref: SegmentRef, error: DamagedError) -> None:
            self.lost.append((error.message, rows.get(ref.key, 0)))

        return Spare(note, self.missed, meta)


class KeyedRun(Remembering):
    """A keyed operator. Called by the element's thread, `part_of` by its uploads."""

    def __init__(
        self, name: OperatorName, task: KeyedTask, engine: Engine, entry: str, chooser: Chooser
    ) -> None:
        self.name = name
        self.task = task
        self.chooser = chooser
        self.tolerance: Tolerance | None = None
        """Set before a restore, outside of regions; None: a damaged group fails it."""
        self._engine = engine
        self._entry = entry
        self._store: Store | None = None
        self._chain: list[Refs] = []
        self._stored: dict[str, SegmentRef] = {}
        """What the newest checkpoint refers to, by name: a live segment of that name needs no second upload."""
        self._held: list[KeyedPin] = []
        """Pins whose upload is not finished."""
        self._live: dict[str, Segment] = {}
        self._life = 0
        self._lock = threading.Lock()
        self._changes = ChangeLogs(engine.partitions)
        self.state = KeyedState(tuple(() for _ in range(engine.partitions)))
        self._rows: tuple[tuple[Segments, ...], int] = (), 0
        """A version, and how many rows it has."""
        self.groups = GroupProfile(MERGED_ROWS) if task.logic.with_groups(MERGED_ROWS) else None
        """None: the operator keeps no groups, or the user says how large they are."""

    @property
    def counts(self) -> dict[str, int]:
        """For people: without what operators count for themselves."""
        shown = {name: count for name, count in self.state.counts.items() if not name.startswith("_")}
        return shown if self.groups is None else {**shown, "group_rows": self.groups.rows}

    def state_size(self) -> int:
        """Bytes of the segments of the current version, exactly."""
        return sum(segment.bytes for partition in self.state.partitions for segment in partition)

    def state_rows(self) -> int:
        """About how many rows the current version has. For the element's thread, which alone removes segments."""
        state, (counted, rows) = self.state, self._rows
        if state.partitions is not counted:
            exactly = self.task.logic.counted_rows(state.counts)
            rows = sum(self._rows_by_partition(state)) if exactly is None else exactly
            self._rows = state.partitions, rows
        return rows

    def _rows_by_partition(self, state: KeyedState) -> list[int]:
        if not state.held:
            return list(map(self.task.logic.rows_of, state.partitions))
        pairs = zip(state.held, state.partitions, strict=True)
        return [sum(s.rows for s in segments) if rows is None else rows for rows, segments in pairs]

    @property
    def had(self) -> tuple[int, ...] | None:
        """Rows of each input so far; None: the operator has nothing that becomes stale."""
        return self.task.logic.had(self.state.meta, self.state.counts)

    def advance(self, state: KeyedState) -> None:
        """A step succeeded: `state` is the current version; segments nobody needs any more are removed."""
        if self.groups is not None:
            self.groups.stepped()
        with self._lock:
            self._log_changes(state)
            self.state = state
            self._live.update((s.name, s) for partition in state.partitions for s in partition)
            gone = self._unneeded()
        for segment in gone:
            self._engine.remove_live(segment)

    def discard(self, state: KeyedState) -> None:
        """The step that made `state` failed after this operator's part of it: remove what it wrote."""
        with self._lock:
            made = [s for partition in state.partitions for s in partition if s.name not in self._live]
        for segment in made:
            self._engine.remove_live(segment)

    def remove_leftovers(self, name: StepName) -> None:
        """The step failed before this operator's part of it was known: remove what tasks may have written."""
        with self._lock:
            needed = set(self._live)
        self._engine.remove_leftovers(self.name, name, needed)

    def _log_changes(self, state: KeyedState) -> None:
        if not self._changes.are_kept:
            return
        parted = self.task.logic.parted
        self._changes.step(*([parted(p)[0] for p in of.partitions] for of in (self.state, state)))
        # They cost space until the next checkpoint, which is a base then.
        most = MOST_LOGGED * sum(s.bytes for p in state.partitions for s in p)
        if not self._held and self._changes.bytes > most:
            self._changes.clear()

    def _unneeded(self) -> list[Segment]:
        needed = {s.name for partition in self.state.partitions for s in partition}
        needed.update(segment.name for segment in self._changes.segments)
        needed.update(segment.name for pin in self._held for segment in pin.segments)
        return [self._live.pop(name) for name in list(self._live) if name not in needed]

    # --- checkpoints --------------------------------------------------------------------------------------------

    def _size_groups(self) -> None:
        """From the next step on groups have the size that costs least."""
        if self.groups is not None:
            rows = sum(s.rows for partition in self.state.partitions for s in partition)
            size = self.groups.chosen(rows, sum(self.had or ()), self.state_size())
            chosen = self.task.logic.with_groups(size)
            assert chosen is not None
            self.task = replace(self.task, logic=chosen)

    def pin(self, epoch: Epoch) -> KeyedPin:
        self._size_groups()
        with self._lock:
            complete, self._changes.are_kept = self._changes.are_kept, self.task.logic.chained is not None
            pin = KeyedPin(self.state, self._changes.pin(), complete, self._life)
            self._held.append(pin)
            self.state = replace(self.state, pins=self.state.pins + 1)
            return pin

    def part_of(self, epoch: Epoch, pinned: KeyedPin) -> Prepared:
        try:
            part = self._put(pinned)
        except BaseException:
            with self._lock:
                if pinned.life == self._life:  # before this pin changes may not have been logged
                    self._changes.clear()
            raise
        finally:
            with self._lock:
                self._held = [pin for pin in self._held if pin is not pinned]
        if pinned.state.meta is None and not pinned.state.counts:
            return Prepared(part)
        return Prepared(part, codec.encode({"meta": pinned.state.meta, "counts": dict(pinned.state.counts)}))

    def _put(self, pinned: KeyedPin) -> OperatorPart:
        begun = time.perf_counter()
        maps, others = zip(*map(self.task.logic.parted, pinned.state.partitions), strict=True)
        form: Form = "delta"
        refused: int | None = None
        chain, size = self._put_delta(pinned)
        if chain is None:
            form, refused = "base", size
            chain, size = self._put_base(maps)
        assert size is not None
        segments = [[*own, *other] for own, other in zip(chain, self._put_all(others), strict=True)]
        overhead = max(0, sum(ref.size for refs in chain for ref in refs) - size) if form == "base" else 0
        cost = Cost(size, time.perf_counter() - begun, overhead)
        with self._lock:
            if pinned.life == self._life:  # else a restore came in between: the state is another one now
                self._stored_as(pinned, form, cost, chain, segments, refused)
        rows = {s.name: s.rows for partition in pinned.state.partitions for s in partition}
        stored = Groups(rows) if self.task.logic.chained is None else self.chooser.record(form)
        return OperatorPart(segments=tuple(map(tuple, segments)), form=stored)

    def _put_base(self, maps: Sequence[Segments]) -> tuple[list[Refs], int]:
        """The version's own segments. Joined if only so the bound is kept, or if that is less to store and a base is rare
        enough to pay for it."""
        size = sum(map(_largest_run, maps))
        whole = sum(s.bytes for segments in maps for s in segments)
        new = sum(s.bytes for segments in maps for s in segments if s.name not in self._stored)
        must = self.chooser.base_fits(size) and not self.chooser.base_fits(whole)
        if not must and (self.chooser.history.deltas < JOINED_AFTER or new < JOINED_OVER * size):
            return self._put_all(maps), size
        chain = self._put_joined(maps, as_base=True)
        return chain, sum(ref.size for refs in chain for ref in refs)

    def _put_delta(self, pinned: KeyedPin) -> tuple[list[Refs] | None, int | None]:
        """The chain with a delta, and the delta's bytes, which are known only after its changes are joined. Without a chain
        it is to be a base; the bytes, if any, are those that the delta would have had, at least."""
        if not pinned.complete:
            return None, None
        logged = [[segment.bytes for segment in segments] for segments in pinned.changes]
        least = sum(max(sizes, default=0) for sizes in logged)
        if not self.chooser.may_accept(least, sum(map(sum, logged))):
            return None, least
        deltas = self._put_joined(pinned.changes)
        size = sum(ref.size for refs in deltas for ref in refs)
        if not self.chooser.accepts_delta(size):
            assert self._store is not None
            # Retention would not find it: no epoch will refer to it.
            gone = [ref.key for refs in deltas for ref in refs if ref.key not in self._stored]
            self._store.delete(self._entry, gone)
            return None, size
        return [[*old, *new] for old, new in zip(self._chain, deltas, strict=True)], size

    def _stored_as(
        self,
        pinned: KeyedPin,
        form: Form,
        cost: Cost,
        chain: list[Refs],
        segments: list[Refs],
        refused: int | None,
    ) -> None:
        self._chain = chain
        self._stored = {ref.key: ref for refs in segments for ref in refs}
        self._changes.stored(pinned.changes)
        if self.task.logic.chained is not None:
            self.chooser.took(form, cost, refused)
            if not self.chooser.tracking:
                self._changes.clear()

    def _put_all(self, partitions: Sequence[Segments]) -> list[Refs]:
        """References to segments; those the store does not have are stored."""
        assert self._store is not None
        new = [
            (number, segment)
            for number, segments in enumerate(partitions)
            for segment in segments
            if segment.name not in self._stored
        ]
        begun = time.perf_counter()
        refs = self._engine.put_segments(self._entry, new, self._store)
        if self.groups is not None:
            size = sum(segment.bytes for _, segment in new)
            self.groups.stored(Sample(len(new), size, time.perf_counter() - begun))
        found = self._stored | {s.name: ref for (_, s), ref in zip(new, refs, strict=True)}
        return [[found[segment.name] for segment in segments] for segments in partitions]

    def _put_joined(self, changes: Sequence[Segments], as_base: bool = False) -> list[Refs]:
        assert self._store is not None
        some = [(number, segments) for number, segments in enumerate(changes) if segments]
        stored = self._engine.put_joined(self.task, self._entry, some, self._store, as_base)
        refs: list[Refs] = [[] for _ in changes]
        for (number, _), put in zip(some, stored, strict=True):
            refs[number] = put
        return refs

    # --- restore ------------------------------------------------------------------------------------------------

    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        self._store = store
        part = part or OperatorPart()
        segments = list(map(list, part.segments))
        blob = {} if part.blob is None else codec.decode(blob_of(pairs or store, part))
        stored_meta = blob.get("meta")
        spare = None if self.tolerance is None else self.tolerance.spare(part.form, stored_meta)
        loaded = self._engine.load_keyed(self.task, segments, store, spare)
        meta = self.task.logic.resumed(stored_meta)
        if spare is not None and any(spare.missed):
            meta = self.task.logic.after_missed(meta, spare.missed)
        ages = [age_of(segment.name) or 0 for partition in loaded.partitions for segment in partition]
        pins = 1 + max(ages, default=0)
        state = KeyedState(loaded.partitions, meta, blob.get("counts", {}), pins, loaded.held)
        if self.tolerance is not None:
            self.tolerance.stale_rows = loaded.stale
        if loaded.stale:
            state = replace(state, counts=state.counting([{STALE: loaded.stale}]))
        with self._lock:
            self._life += 1
            self._held.clear()
            self._changes.clear()
        self.advance(state)
        with self._lock:
            self._resume_chain(segments, part.form, loaded.as_stored)

    def store_anew(self) -> None:
        """The next checkpoint holds all of the state, and refers to nothing that was stored before."""
        with self._lock:
            self._resume_chain([[] for _ in self.state.partitions], None, False)

    def _resume_chain(self, segments: list[Refs], form: StoredForm | None, as_stored: bool) -> None:
        """Go on with the stored chain, if what was loaded is exactly what the store has."""
        self._stored = {ref.key: ref for refs in segments for ref in refs} if as_stored else {}
        known = form is not None and as_stored and self.task.logic.chained is not None
        self.chooser.resume(form if known else None)
        self._changes.clear(are_kept=known and self.chooser.tracking)
        self._chain = [
            [ref for ref in refs if self.task.logic.parted((_named(ref),))[0]] for refs in segments
        ]


def _largest_run(segments: Segments) -> int:
    """Bytes of the run that has most of a partition's keys: about what the state would have if all were merged."""
    runs = [run for block in blocks_of(segments) for run in _runs(block)]
    return max((sum(segment.bytes for segment in run.segments) for run in runs), default=0)


def _runs(block: Block) -> tuple[Run, ...]:
    return (*block.inputs, block.pieces) if isinstance(block, Merge) else (block,)


def _named(ref: SegmentRef) -> Segment:
    return Segment(ref.key, "", 0, ref.size, ref.crc)
