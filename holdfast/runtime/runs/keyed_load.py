"""Stored segments become live ones: fetched, verified, and dealt out again if the number of partitions changed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.durable import remove_quietly
from holdfast.errors import DamagedError
from holdfast.failpoints import fp
from holdfast.operators.shared.changes import one_run
from holdfast.operators.shared.logic import Place, Segments
from holdfast.runtime.engines.engine import KeyedTask, Loaded, Spare
from holdfast.state.keyed.layout import free_number, is_piece
from holdfast.state.keyed.segment import Segment, open_foreign, open_segment, write_segment
from holdfast.store.base import SegmentRef, Store

AT_ONCE = 2
"""Partitions loaded at the same time: reading, checksums and merging leave Python's lock."""
RUNS_LEFT = 4
"""So many deltas stay as they are."""
EVOLVED = "evolved-"
FRESH = "fresh"


def load_segments(
    task: KeyedTask,
    stored: list[list[SegmentRef]],
    store: Store | None,
    directory: Path,
    partitions: int,
    spare: Spare | None = None,
) -> Loaded:
    """The live state of stored segments, one list per stored partition, in `directory`. `spare` tells what may
    be left out, where the operator's segments are groups of rows that do not need each other."""
    if not stored:
        return Loaded(tuple(() for _ in range(partitions)))
    assert store is not None
    directory.mkdir(parents=True, exist_ok=True)
    sparing = spare if task.logic.chained is None else None
    with ThreadPoolExecutor(AT_ONCE) as pool:
        loaded = tuple(pool.map(lambda refs: _load(task, refs, store, directory, sparing), stored))
    evolved = any(s.name.startswith(EVOLVED) for segments in loaded for s in segments)
    fresh, stale = _without_stale(task, loaded, spare, directory)
    if len(fresh) != partitions:
        return Loaded(_repartitioned(task, fresh, directory, partitions), False, stale)
    as_chained = task.logic.chained is None or fresh == loaded
    return Loaded(fresh, not evolved and as_chained, stale)


def _load(
    task: KeyedTask, refs: Sequence[SegmentRef], store: Store, directory: Path, spare: Spare | None
) -> Segments:
    """One partition's segments; a long chain's deltas as one run, else every look-up would visit them all."""
    fp("reset.op.load")
    found = [_fetch(store, ref, directory, spare) for ref in refs]
    segments = tuple(_evolved(task, segment, directory) for segment in found if segment is not None)
    of_map, others = task.logic.parted(segments)
    deltas = of_map[len(of_map) - _deltas(of_map) :]
    if len(deltas) > RUNS_LEFT:
        assert task.logic.chained is not None
        base = of_map[: -len(deltas)]
        run = one_run(task.logic.chained, deltas, directory, free_number(of_map))
        for delta in deltas:
            remove_quietly(delta.path)
        segments = (*base, *run, *others)
    fp("reset.op.loaded")
    return segments


def _without_stale(
    task: KeyedTask, loaded: tuple[Segments, ...], spare: Spare | None, directory: Path
) -> tuple[tuple[Segments, ...], int]:
    """(the partitions without stale rows, how many those were). What is written again has a name that no other restore
    gives: how much was missed differs each time."""
    if spare is None or not any(spare.missed):
        return loaded, 0
    name = f"{FRESH}{uuid.uuid4().hex[:12]}"
    places = [Place(directory, f"{task.operator}-p{partition}-{name}") for partition in range(len(loaded))]
    fresh, stale = task.logic.without_stale(loaded, spare.meta, spare.missed, places)
    for segments, left in zip(loaded, fresh, strict=True):
        for segment in set(segments).difference(left):
            remove_quietly(segment.path)
    return fresh, stale


def _deltas(of_map: Segments) -> int:
    """How many of the newest segments are runs of their own: deltas, and changes that a base left alone."""
    count = 0
    for segment in reversed(of_map):
        if is_piece(segment):
            break
        count += 1
    return min(count, len(of_map) - 1)


def _repartitioned(
    task: KeyedTask, old: Sequence[Segments], directory: Path, partitions: int
) -> tuple[Segments, ...]:
    """The same state dealt out over another number of partitions, named after what it was dealt out from."""
    names = [segments[-1].name for segments in old if segments]
    name = names[0][:60] if names else "empty"
    return tuple(
        task.logic.repartition(old, p, partitions, Place(directory, f"{name}-of{partitions}-p{p}"))
        for p in range(partitions)
    )


def _evolved(task: KeyedTask, segment: Segment, directory: Path) -> Segment:
    """The segment, written again under a name of its own if the operator has changed since."""
    table = open_segment(segment.path)
    changed = task.logic.evolved(segment, table)
    return segment if changed is table else write_segment(directory, f"{EVOLVED}{segment.name}", changed)


def fetched(store: Store, ref: SegmentRef, directory: Path) -> Path:
    """Where a stored segment is now, verified, and each of its rows checked. A file of this very run under its name has the same bytes: names are
    never reused, and a file gets its name when it was verified."""
    path = directory / f"{ref.key}.arrow"
    if not path.exists():
        staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            store.fetch_segment(ref, staged)
            open_foreign(staged, store.describe(ref.entry, ref.key))
            staged.rename(path)
        finally:
            remove_quietly(staged)
    return path


def _fetch(store: Store, ref: SegmentRef, directory: Path, spare: Spare | None) -> Segment | None:
    try:
        path = str(fetched(store, ref, directory))
        return Segment(ref.key, path, open_segment(path).num_rows, ref.size, ref.crc)
    except DamagedError as error:
        if spare is None:
            raise
        spare.damaged(ref, error)
        return None
