"""Stored segments become live ones: fetched, verified, and dealt out again if the number of partitions changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.failpoints import fp
from holdfast.runtime.engine import KeyedTask
from holdfast.runtime.executor.logic import Place, Segments
from holdfast.state.segment import Segment, open_segment, write_segment
from holdfast.store.base import SegmentRef, Store


def load_segments(
    task: KeyedTask,
    stored: list[list[SegmentRef]],
    store: Store | None,
    directory: Path,
    partitions: int,
) -> tuple[Segments, ...]:
    """The live state of stored segments, one list per stored partition, in `directory`."""
    if not stored:
        return tuple(() for _ in range(partitions))
    assert store is not None
    directory.mkdir(parents=True, exist_ok=True)
    loaded: list[tuple[Segment, ...]] = []
    for refs in stored:
        fp("reset.op.load")
        fetched = [_fetch(store, ref, directory) for ref in refs]
        loaded.append(tuple(_evolved(task, segment, directory) for segment in fetched))
        fp("reset.op.loaded")
    if len(loaded) != partitions:
        return _repartitioned(task, loaded, directory, partitions)
    return tuple(loaded)


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
    return segment if changed is table else write_segment(directory, f"evolved-{segment.name}", changed)


def _fetch(store: Store, ref: SegmentRef, directory: Path) -> Segment:
    path = directory / f"{ref.key}.arrow"
    if not path.exists():
        # A live file of this very run under the same name has the same bytes: names are never reused.
        store.fetch_segment(ref, path)
    return Segment(ref.key, str(path), open_segment(str(path)).num_rows, ref.size, ref.crc)
