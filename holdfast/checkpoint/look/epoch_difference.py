"""What changed between two epochs of a region: operators, rows of their states by key, positions of sources, bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.checkpoint.look.epochs import value_of
from holdfast.checkpoint.look.segment_files import SegmentFiles
from holdfast.checkpoint.look.state_rows import between, counted, ranges
from holdfast.checkpoint.look.table_matching import Matched, match_by_key, match_rows
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import OperatorPart
from holdfast.errors import HoldfastError
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.kinds import stored_rows
from holdfast.operators.stored.parts import NOTHING, RANGE_ROWS, Known, Part
from holdfast.operators.stored.views import View
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.store.base import SegmentRef, Store

UNKNOWN = Fingerprint("?")


@dataclass(frozen=True, slots=True)
class Side:
    """One partition, or several, of one part of an operator in one epoch: how to read it, and its segments' rows."""

    part: Part
    tables: tuple[pa.Table, ...]
    prepare: Callable[[pa.Table], pa.Table] | None = None
    """What to do with the rows that count before they are compared."""

    def between(self, low: int, high: int) -> pa.Table:
        """The rows that count, of a range of hashes."""
        rows = counted(self.part, [between(table, low, high) for table in self.tables])
        return rows if self.prepare is None else self.prepare(rows)


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows of a range of hashes before and after, and which of them differ."""

    before: pa.Table
    after: pa.Table
    matched: Matched


@dataclass(slots=True)
class PartDiff:
    """How many rows of one part differ."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    samples: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Rows to show, about as many as were asked for: what happened, and the row as people want to see it. Of a row that
    changed both forms stand one behind the other."""


@dataclass(frozen=True, slots=True)
class OperatorDiff:
    """What changed of one operator. `value`: its small state before and after, if it differs, as (before, after)."""

    operator: str
    kind: str
    present: tuple[bool, bool]
    parts: Mapping[str, PartDiff]
    value: tuple[Any, Any] | None
    bytes: tuple[int, int]
    new_bytes: int
    """Of the segments only the second epoch has."""

    @property
    def differs(self) -> bool:
        counts = any(part.added or part.changed or part.removed for part in self.parts.values())
        return counts or self.value is not None or self.present != (True, True)


# --- rows -------------------------------------------------------------------------------------------------------------


def changes(before: Side, after: Side, rows: int = RANGE_ROWS) -> Iterator[Changes]:
    """What differs between two states of the same keys, range by range, about `rows` rows at once."""
    for low, high in ranges([*before.tables, *after.tables], rows):
        old, new = before.between(low, high), after.between(low, high)
        if before.part.rule == after.part.rule != "rows":
            matched = match_by_key(old, new, after.part.keys)
        else:
            matched = match_rows(old, new)
        if len(matched.added) or len(matched.removed) or len(matched.changed_after):
            yield Changes(old, new, matched)


class StateFiles:
    """An operator's segments in one epoch, by part."""

    def __init__(self, store: Store, files: SegmentFiles, manifest: Manifest, operator: str) -> None:
        self._files = files
        self.stored = manifest.operators().get(operator)
        """None: the epoch has nothing of it."""
        self.fingerprint = manifest.fingerprint.get(operator, UNKNOWN)
        self.partitions = () if self.stored is None else self.stored.segments
        value = value_of(store, self.stored) if self.stored is not None and self.partitions else None
        meta = value.get("meta") if isinstance(value, dict) else None
        self.meta = meta if isinstance(meta, Mapping) else {}
        self._rows = stored_rows(self.fingerprint, self.meta)

    def parts(self, known: Aggregation | None = None) -> dict[str, Part]:
        """The parts there are, by name, in the order in which they are first met. `known`: the aggregation, if somebody has
        the topology."""
        found: dict[str, Part] = {}
        for ref in (ref for partition in self.partitions for ref in partition):
            schema = self._files.schema(ref)
            name = self._part_of(ref)
            if name not in found:
                found[name] = self._rows.part(name, schema, known)
        return found

    def refs(self, part: str, partition: int) -> list[SegmentRef]:
        """The segments of a part in a partition, oldest first."""
        return [ref for ref in self.partitions[partition] if self._part_of(ref) == part]

    def _part_of(self, ref: SegmentRef) -> str:
        return self._rows.part_of(ref.key, self._files.schema(ref))

    def view(self, part: Part, known: Known = NOTHING) -> View:
        return self._rows.view(part, known)

    def side(self, part: Part, partition: int | None, view: View | None = None) -> Side:
        """One partition, or (None) all of them; with a view, its rows as the view prepares them."""
        numbers = range(len(self.partitions)) if partition is None else (partition,)
        refs = [ref for number in numbers for ref in self.refs(part.name, number)]
        tables = tuple(self._files.table(ref) for ref in refs)
        return Side(part, tables, None if view is None else view.prepare)


# --- operators --------------------------------------------------------------------------------------------------------


def compare(
    store: Store, before: Manifest, after: Manifest, operators: Sequence[str] | None = None, rows: int = 0
) -> list[OperatorDiff]:
    """What changed from one epoch to another; `rows`: so many changed rows of each part are handed out."""
    names = sorted(before.operators().keys() | after.operators().keys()) if operators is None else operators
    with SegmentFiles(store) as files:
        return [_compare_operator(store, files, before, after, name, rows) for name in names]


def _compare_operator(
    store: Store, files: SegmentFiles, before: Manifest, after: Manifest, name: str, rows: int
) -> OperatorDiff:
    old, new = (StateFiles(store, files, manifest, name) for manifest in (before, after))
    known = {ref for partition in old.partitions for ref in partition}
    added = [ref for partition in new.partitions for ref in partition if ref not in known]
    same_segments = old.partitions == new.partitions
    return OperatorDiff(
        operator=name,
        kind=(old if new.stored is None else new).fingerprint.kind,
        present=(old.stored is not None, new.stored is not None),
        parts={} if same_segments else _compare_parts(old, new, rows),
        value=_compare_values(store, old.stored, new.stored),
        bytes=(_size(old.stored), _size(new.stored)),
        new_bytes=sum(ref.size for ref in added),
    )


def _compare_parts(old: StateFiles, new: StateFiles, rows: int) -> dict[str, PartDiff]:
    olds, news = old.parts(), new.parts()
    found = {}
    for name in dict.fromkeys([*olds, *news]):
        parts = (olds.get(name) or news[name], news.get(name) or olds[name])
        views = (old.view(parts[0]), new.view(parts[1]))
        found[name] = diff = PartDiff()
        for number in _pairs(old, new):
            sides = (old.side(parts[0], number, views[0]), new.side(parts[1], number, views[1]))
            for change in changes(*sides, min(view.rows_at_once for view in views)):
                _add_up(diff, change, views, rows)
    return found


def _pairs(old: StateFiles, new: StateFiles) -> Sequence[int | None]:
    """Partitions to be compared one by one; all at once if keys may have moved between them."""
    same = len(old.partitions) == len(new.partitions)
    return range(len(new.partitions)) if same else [None]


def _add_up(diff: PartDiff, change: Changes, views: tuple[View, View], rows: int) -> None:
    matched = change.matched
    diff.added += len(matched.added)
    diff.changed += len(matched.changed_after)
    diff.removed += len(matched.removed)
    if len(diff.samples) < rows:
        diff.samples += _samples(change, views, rows - len(diff.samples))


def _samples(change: Changes, views: tuple[View, View], rows: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first changed rows, then added, then removed ones."""
    matched = change.matched
    old, new = views
    for before, after in zip(matched.changed_before[:rows], matched.changed_after[:rows], strict=True):
        yield from _shown("changed from", old, change.before, [before])
        yield from _shown("changed to", new, change.after, [after])
    left = max(0, rows - len(matched.changed_after))
    yield from _shown("added", new, change.after, matched.added[:left].tolist())
    left = max(0, left - len(matched.added))
    yield from _shown("removed", old, change.before, matched.removed[:left].tolist())


def _shown(
    what: str, view: View, table: pa.Table, rows: Sequence[int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    finished = view.finish(table.take(pa.array(rows, pa.int64())))[0]
    yield from ((what, row) for row in finished.to_pylist())


def _compare_values(
    store: Store, old: OperatorPart | None, new: OperatorPart | None
) -> tuple[Any, Any] | None:
    """The small states, decoded, if their bytes differ."""
    marks = [[(ref.size, ref.crc) for ref in part.values] if part else [] for part in (old, new)]
    return None if marks[0] == marks[1] else (decoded(store, old), decoded(store, new))


def decoded(store: Store, part: OperatorPart | None) -> Any:
    """The operator's small state; a sentence in its place if a class of the topology is needed to decode it."""
    try:
        return None if part is None else value_of(store, part)
    except HoldfastError as error:
        return f"({error.message})"


def _size(part: OperatorPart | None) -> int:
    return 0 if part is None else part.bytes
