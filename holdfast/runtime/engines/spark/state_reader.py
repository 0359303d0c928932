"""`holdfast.read_state`: the state of a keyed operator in a published epoch, as a DataFrame."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.checkpoint.look.epoch_difference import Changes, Side, StateFiles, changes
from holdfast.checkpoint.look.epochs import (
    choose_epoch,
    choose_region,
    find_operator,
    open_reader,
    read_manifest,
)
from holdfast.checkpoint.look.segment_files import SegmentFiles
from holdfast.checkpoint.look.state_rows import rows_that_count
from holdfast.checkpoint.manifest import Manifest
from holdfast.errors import ConfigError, MismatchError
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.stored.parts import NOTHING, STATE_PART, Part
from holdfast.operators.stored.views import View, unique
from holdfast.runtime.engines.spark.known_state import Telling, telling
from holdfast.runtime.engines.spark.stateless import spark_schema
from holdfast.state.keyed.segment import open_foreign
from holdfast.store.base import SegmentRef, Store
from holdfast.store.files.segments import verify

if TYPE_CHECKING:
    from holdfast.language.topology import Topology

CHANGE = "change"
File = tuple[str, SegmentRef]
"""Where a segment's bytes are for tasks, and what they must be."""
Pair = tuple[tuple[File, ...], tuple[File, ...]]
"""What a partition had before, and what it has."""


def read_state(
    spark: SparkSession,
    store: str | Path | Store,
    operator: str,
    epoch: int | str | None = None,
    region: str | None = None,
    changed_since: int | str | None = None,
    part: str | None = None,
    topology: Topology | None = None,
) -> DataFrame:
    """The state of a keyed operator as a DataFrame: `holdfast.read_state(spark, "store", "totals")`.

    `epoch`: its number or the name of a savepoint; without it the newest. Columns are the keys and, of aggregates, the
    results as the operator emits them; of windows those that are not complete, with what they have come to; of keyed Python
    operators a column per variable, null where it is as declared; else the columns as stored. Joins keep rows of
    several kinds: say which by `part="left"`.

    `changed_since`: another epoch. Then only rows that differ between the two, with a column `change`: added, changed
    (as they are now) or removed (as they were).

    `topology`: the program itself is not needed, but tells more: functions written by the user, defaults of variables, which
    keys have outlived their lifetime.

    Tasks read the segments where they lie, one task per partition, so a store of plain files must be reachable from all
    executors. Segments of other stores are fetched by the driver into a temporary directory first, which lasts
    until the process ends: for `local[...]`. Name a savepoint if a run goes on meanwhile, or its owner may delete the epoch
    before the tasks have read it.
    """
    place = open_reader(store)
    name = choose_region(place, region, operator)
    after = _State.of(place, read_manifest(place, name, choose_epoch(place, name, epoch)), operator)
    known = None if topology is None else telling(spark, topology, after.manifest, operator)
    if changed_since is None:
        new = after.shown(_choose(part, after), known)
        return _frame(spark, StateTask(new.schema, new.view, tuple(new.files)), len(new.files))
    before = _State.of(place, read_manifest(place, name, choose_epoch(place, name, changed_since)), operator)
    return _changed(spark, before, after, _choose(part, before, after), known)


def _changed(
    spark: SparkSession, before: _State, after: _State, part: str, known: Telling | None
) -> DataFrame:
    """The rows that differ. An epoch in which the part has no rows yet, or no more, is an empty one."""
    known_in = [state.state.parts().keys() for state in (before, after)]
    new = after.shown(part, known) if part in known_in[1] else before.shown(part, known).emptied()
    old = before.shown(part, known) if part in known_in[0] else new.emptied()
    if not old.schema.equals(new.schema):
        epochs = f"epoch {before.manifest.epoch} than in {after.manifest.epoch}"
        raise MismatchError(
            f"operator {after.operator!r} has other columns in {epochs}.",
            cure="Read the two epochs one by one.",
        )
    names = unique([CHANGE, *new.schema.names])
    schema = pa.schema([pa.field(CHANGE, pa.string()), *_named(new.schema, names[1:])])
    tasks = _paired(old.files, new.files)
    return _frame(spark, ChangeTask(schema, (old.view, new.view), tasks), len(tasks))


def _named(schema: pa.Schema, names: list[str]) -> list[pa.Field]:
    return [field.with_name(name) for field, name in zip(schema, names, strict=True)]


def _frame(spark: SparkSession, task: StateTask | ChangeTask, count: int) -> DataFrame:
    """One task per partition: the frame they run over has a row for each."""
    return spark.range(0, count, 1, max(1, count)).mapInArrow(task, spark_schema(task.schema))


# --- what is read -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartView:
    """A part and how it is shown."""

    part: Part
    view: View


@dataclass(frozen=True)
class _Shown:
    """A part of a state: how to show it, and per partition its files, oldest first."""

    view: PartView
    files: list[tuple[File, ...]]

    @property
    def schema(self) -> pa.Schema:
        return _plain(self.view.view.schema)

    def emptied(self) -> _Shown:
        """The same without rows."""
        return _Shown(self.view, [() for _ in self.files])


@dataclass(frozen=True)
class _State:
    """The keyed state of an operator in one epoch."""

    store: Store
    manifest: Manifest
    operator: str
    files: SegmentFiles
    state: StateFiles

    @staticmethod
    def of(store: Store, manifest: Manifest, operator: str) -> _State:
        if not find_operator(manifest, operator).segments:
            kind = manifest.fingerprint.get(operator, Fingerprint("operator")).kind
            raise ConfigError(
                f"operator {operator!r} is a {kind} and keeps no keyed rows.",
                cure=f"See `holdfast checkpoints show {store.url} --operator {operator}`.",
            )
        files = SegmentFiles(store, verified=False)
        atexit.register(files.close)
        return _State(store, manifest, operator, files, StateFiles(store, files, manifest, operator))

    @property
    def meta(self) -> Any:
        return self.state.meta

    def shown(self, name: str, tell: Telling | None) -> _Shown:
        known = None if tell is None else tell(self.meta)
        parts = self.state.parts(None if known is None else known.aggregation)
        part = parts[name]
        files = [
            tuple((str(self.files.path(ref)), ref) for ref in self.state.refs(name, number))
            for number in range(len(self.state.partitions))
        ]
        view = self.state.view(part, known or NOTHING)
        return _Shown(PartView(part, view), files)


def _choose(wanted: str | None, *states: _State) -> str:
    """The part that is meant: the one named, the state itself, or the only one."""
    names = list(dict.fromkeys(name for state in states for name in state.state.parts()))
    operator, epoch = states[-1].operator, states[-1].manifest.epoch
    if wanted is None and STATE_PART in names:
        return STATE_PART
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted in names:
        return str(wanted)
    if not names:
        raise ConfigError(
            f"operator {operator!r} has not kept a row by epoch {epoch}.", cure="Choose a later epoch."
        )
    said = "keeps rows of several kinds" if wanted is None else f"keeps no rows of a kind {wanted!r}"
    listed = ", ".join(f"part={name!r}" for name in names)
    raise ConfigError(f"operator {operator!r} {said}.", cure=f"Say which: {listed}.")


def _paired(old: list[tuple[File, ...]], new: list[tuple[File, ...]]) -> tuple[Pair, ...]:
    """The files of each task. Keys may have moved if the number of partitions differs: then one task reads everything."""
    if len(old) == len(new):
        return tuple(zip(old, new, strict=True))
    return ((tuple(file for each in old for file in each), tuple(file for each in new for file in each)),)


# --- what tasks do ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateTask:
    """Reads the partitions whose numbers come in."""

    schema: pa.Schema
    view: PartView
    files: tuple[tuple[File, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        view = self.view.view
        for number in _numbers(batches):
            tables = _opened(self.files[number])
            for rows in rows_that_count(self.view.part, tables, view.rows_at_once):
                yield from _cast(view.finish(view.prepare(rows))[0], self.schema)


@dataclass(frozen=True)
class ChangeTask:
    """Compares the partitions whose numbers come in."""

    schema: pa.Schema
    views: tuple[PartView, PartView]
    files: tuple[Pair, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = min(view.view.rows_at_once for view in self.views)
        for number in _numbers(batches):
            before, after = (
                Side(view.part, tuple(_opened(files)), view.view.prepare)
                for view, files in zip(self.views, self.files[number], strict=True)
            )
            for change in changes(before, after, rows):
                yield from self._rows_of(change)

    def _rows_of(self, change: Changes) -> Iterator[pa.RecordBatch]:
        old, new = (view.view for view in self.views)
        matched = change.matched
        for what, view, table, rows in (
            ("added", new, change.after, matched.added),
            ("changed", new, change.after, matched.changed_after),
            ("removed", old, change.before, matched.removed),
        ):
            shown = view.finish(table.take(pa.array(rows)))[0]
            said = pa.array([what]).take(pa.array([0] * shown.num_rows, pa.int64()))
            yield from _cast(shown.add_column(0, CHANGE, said), self.schema)


def _numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _opened(files: tuple[File, ...]) -> list[pa.Table]:
    """Segments, verified where they are used: between the look of the driver and that of the task time may pass."""
    for path, ref in files:
        verify(Path(path), ref)
    return [open_foreign(path) for path, _ in files]


def _cast(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if table.num_rows:
        yield from table.rename_columns(schema.names).cast(schema).to_batches(max_chunksize=1 << 16)


def _plain(schema: pa.Schema) -> pa.Schema:
    """As Spark names types."""
    return pa.schema([field.with_type(_plain_type(field.type)).with_nullable(True) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}.get(kind, kind)
