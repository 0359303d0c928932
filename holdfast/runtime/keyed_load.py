"""Stored segments become live ones: fetched, verified, and dealt out again if the number of partitions changed."""

from __future__ import annotations

from pathlib import Path

from holdfast.failpoints import fp
from holdfast.runtime.engine import KeyedState, KeyedTask
from holdfast.runtime.executor.keyed import repartition
from holdfast.state.segment import Segment, open_segment
from holdfast.store.base import SegmentRef, Store


def load_segments(
    task: KeyedTask, stored: list[list[SegmentRef]], store: Store | None, directory: Path, partitions: int
) -> KeyedState:
    """The live state of stored segments, one list per stored partition, in `directory`."""
    if not stored:
        return KeyedState(tuple(() for _ in range(partitions)))
    assert store is not None
    directory.mkdir(parents=True, exist_ok=True)
    loaded: list[tuple[Segment, ...]] = []
    for refs in stored:
        fp("reset.op.load")
        loaded.append(tuple(_fetch(store, ref, directory) for ref in refs))
        fp("reset.op.loaded")
    if len(loaded) != partitions:
        return repartition(task, loaded, directory, partitions)
    return KeyedState(tuple(loaded))


def _fetch(store: Store, ref: SegmentRef, directory: Path) -> Segment:
    path = directory / f"{ref.key}.arrow"
    if not path.exists():
        # A live file of this very run under the same name has the same bytes: names are never reused.
        store.fetch_segment(ref, path)
    return Segment(ref.key, str(path), open_segment(str(path)).num_rows, ref.size, ref.crc)
